package network

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func openPool(t *testing.T, file string) *AddressPool {
	t.Helper()
	p, err := OpenAddressPool(3, file)
	require.NoError(t, err)
	return p
}

func take(t *testing.T, p *AddressPool) string {
	t.Helper()
	ip, err := p.Take()
	require.NoError(t, err)
	return ip.String()
}

func poolFile(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "last-pod-address")
}

func TestAddressPool_FreedAddressComesLast(t *testing.T) {
	t.Parallel()
	p := openPool(t, poolFile(t))
	first := take(t, p)
	assert.Equal(t, "10.244.3.2", first)
	assert.Equal(t, "10.244.3.3", take(t, p))
	p.Give(net.ParseIP(first))

	last := ""
	for range lastPodAddress - 3 {
		last = take(t, p)
		assert.NotEqual(t, first, last)
	}
	assert.Equal(t, "10.244.3.254", last)
	assert.Equal(t, first, take(t, p))
}

func TestAddressPool_SkipsWhatIsTaken(t *testing.T) {
	t.Parallel()
	p := openPool(t, poolFile(t))
	for range lastPodAddress - firstPodAddress + 1 {
		take(t, p)
	}
	p.Give(net.ParseIP("10.244.3.200"))
	p.Give(net.ParseIP("10.244.3.100"))
	assert.Equal(t, "10.244.3.100", take(t, p))
	assert.Equal(t, "10.244.3.200", take(t, p))
}

func TestAddressPool_Exhausted(t *testing.T) {
	t.Parallel()
	p := openPool(t, poolFile(t))
	seen := map[string]bool{}
	for range 253 {
		seen[take(t, p)] = true
	}
	assert.Len(t, seen, 253)
	_, err := p.Take()
	require.ErrorIs(t, err, ErrNoAddress)

	for _, freed := range []net.IP{net.IPv4(10, 244, 3, 77), net.IPv4(10, 244, 3, 77).To4()} { // the second time a whole ring away
		p.Give(freed)
		assert.Equal(t, "10.244.3.77", take(t, p))
	}
}

func TestAddressPool_GoesOnAfterReboot(t *testing.T) {
	t.Parallel()
	file := poolFile(t)
	p := openPool(t, file)
	take(t, p)
	gone := take(t, p)

	p = openPool(t, file)
	for range 252 {
		assert.NotEqual(t, gone, take(t, p))
	}
	assert.Equal(t, gone, take(t, p), "nobody has it any more")
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing but the file itself")
}

func TestAddressPool_RefusesAWrongFile(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "empty", give: "", want: `read address pool last-pod-address: "" is no pod address`},
		{name: "no number", give: "ten", want: `"ten" is no pod address`},
		{name: "the gateway", give: "1", want: `"1" is no pod address`},
		{name: "the broadcast address", give: "255", want: `"255" is no pod address`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := poolFile(t)
			require.NoError(t, os.WriteFile(file, []byte(tt.give), 0o644))
			_, err := OpenAddressPool(1, file)
			require.ErrorContains(t, err, tt.want)
		})
	}
	_, err := OpenAddressPool(1, t.TempDir())
	require.ErrorContains(t, err, "read address pool: ")
}

func TestAddressPool_ReadsTheEndsOfItsRange(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "first", give: "2", want: "10.244.3.3"},
		{name: "last, with a line break", give: "254\n", want: "10.244.3.2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := poolFile(t)
			require.NoError(t, os.WriteFile(file, []byte(tt.give), 0o644))
			assert.Equal(t, tt.want, take(t, openPool(t, file)))
		})
	}
}

// An address whose place cannot be kept might be given out twice.
func TestAddressPool_GivesNothingItCannotWriteDown(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "missing", "last-pod-address")
	_, err := openPool(t, file).Take()
	require.ErrorContains(t, err, "write address pool: ")
}

func TestAddressPool_TakenByManyAtOnce(t *testing.T) {
	t.Parallel()
	p := openPool(t, poolFile(t))
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[string]bool{}
	for range 8 {
		wg.Go(func() {
			for range 20 {
				ip, err := p.Take()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				assert.False(t, seen[ip.String()], "%s was given out twice", ip)
				seen[ip.String()] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	assert.Len(t, seen, 160)
}

func TestPlan_AddressesOfDifferentNodesAndPodsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]string{ControlIP: "control plane", nobodyMAC.String(): "nobody"}
	unique := func(what, who string) {
		assert.NotContains(t, seen, what, "%s is also %s", who, seen[what])
		seen[what] = who
	}
	for i := 1; i <= 64; i++ {
		unique(NodeIP(i), "node")
		unique(PodCIDR(i), "range")
		unique(podGateway(i).String(), "gateway")
		for _, mac := range []net.HardwareAddr{controlMAC(i), nodeMAC(i), gatewayMAC(i), podMAC(net.IPv4(10, 244, byte(i), 2)), podMAC(net.IPv4(10, 244, byte(i), 254))} {
			unique(mac.String(), "hardware address")
		}
	}
}
