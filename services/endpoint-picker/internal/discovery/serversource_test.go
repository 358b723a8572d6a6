package discovery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
)

// names is a DNS server.
type names struct {
	mu      sync.Mutex
	answers map[string][]netip.Addr
	lookups []time.Duration // of any name, since the start
	start   time.Time
	delay   time.Duration
}

func (n *names) set(name string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[name] = nil
	for _, a := range addresses {
		n.answers[name] = append(n.answers[name], netip.MustParseAddr(a))
	}
}

func (n *names) lookup(ctx context.Context, _, name string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lookups = append(n.lookups, time.Since(n.start))
	if n.delay > 0 {
		select {
		case <-time.After(n.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if n.answers[name] == nil {
		return nil, errors.New("no such host")
	}
	return append([]netip.Addr{}, n.answers[name]...), nil
}

// serverBench is a ServerSource that runs.
type serverBench struct {
	*ServerSource

	names   *names
	logs    *zaptest.ObservedLogs
	changes atomic.Int32
}

func newServerBench(t *testing.T, urls ...string) *serverBench {
	t.Helper()
	core, logs := zaptest.New(zap.InfoLevel)
	p := ServerParams{Log: zap.New(core), TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	for _, u := range urls {
		server, err := ParseServer(u)
		require.NoError(t, err)
		p.Servers = append(p.Servers, server)
	}
	b := &serverBench{ServerSource: NewServerSource(p), names: &names{answers: map[string][]netip.Addr{}, start: time.Now()}, logs: logs}
	b.ServerSource.lookup = b.names.lookup
	b.OnChange(func() { b.changes.Add(1) })
	return b
}

// run follows the names until the test ends.
func (b *serverBench) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// list returns the endpoints as "name address".
func (b *serverBench) list() (list []string) {
	endpoints, _ := b.ReadPool()
	for _, d := range endpoints {
		list = append(list, d.PodName()+" "+d.Address.String())
	}
	return list
}

func TestServersOfURLs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newServerBench(t, "http://10.0.0.9:8000", "https://vllm:8443", "http://alias:8443", "http://[fd00::1]:8000", "http://six:80")
		b.names.set("vllm", "fd00::5", "10.0.0.3", "::ffff:10.0.0.2", "10.0.0.3", "169.254.169.254")
		b.names.set("alias", "10.0.0.2")
		b.names.set("six", "fd00::6", "fe80::6")
		b.run(t)
		require.True(t, b.WaitForSync(t.Context()))
		assert.Equal(t, []string{
			"default/vllm-10.0.0.2 10.0.0.2:8443", "default/vllm-10.0.0.3 10.0.0.3:8443", "default/10.0.0.9 10.0.0.9:8000",
			"default/fd00::1 [fd00::1]:8000", "default/six-fd00::6 [fd00::6]:80",
		}, b.list())
		endpoints, err := b.ReadPool()
		require.NoError(t, err)
		require.NotNil(t, endpoints[0].TLS, "as the first URL with the address says")
		assert.Equal(t, "vllm", endpoints[0].TLS.ServerName)
		assert.Equal(t, uint16(tls.VersionTLS12), endpoints[0].TLS.MinVersion)
		assert.Nil(t, endpoints[2].TLS)
		assert.Equal(t, 3, b.logs.FilterMessage("Resolved model server").Len())
		assert.EqualValues(t, 3, b.changes.Load())
	})
}

func TestNamesAreResolvedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newServerBench(t, "http://vllm:8000")
		b.names.set("vllm", "10.0.0.1")
		b.run(t)
		require.True(t, b.WaitForSync(t.Context()))
		before, err := b.ReadPool()
		require.NoError(t, err)

		b.names.set("vllm", "10.0.0.2", "10.0.0.1")
		time.Sleep(refreshInterval + 1)
		assert.Equal(t, []string{"default/vllm-10.0.0.1 10.0.0.1:8000", "default/vllm-10.0.0.2 10.0.0.2:8000"}, b.list())
		after, err := b.ReadPool()
		require.NoError(t, err)
		assert.Equal(t, before[0].Identity, after[0].Identity, "it keeps its load")
		b.names.set("vllm", "10.0.0.1", "10.0.0.2")
		time.Sleep(refreshInterval)
		assert.EqualValues(t, 2, b.changes.Load(), "the order means nothing")

		b.names.set("vllm")
		time.Sleep(time.Minute)
		assert.Len(t, b.list(), 2, "the last addresses stay")
		b.names.set("vllm", "169.254.169.254")
		time.Sleep(time.Minute)
		assert.Len(t, b.list(), 2, "nothing that a host can have")
		assert.Equal(t, 1, b.logs.FilterMessage("Could not resolve model server, trying again").Len(), "said once")
		b.names.set("vllm", "10.0.0.1", "10.0.0.2")
		time.Sleep(lastRetry)
		assert.Equal(t, 3, b.logs.FilterMessage("Resolved model server").Len(), "said, although nothing has changed")
		assert.EqualValues(t, 2, b.changes.Load())
	})
}

// TestNameThatIsMissing begins with a name that nobody knows. The other servers are there at once.
func TestNameThatIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newServerBench(t, "http://10.0.0.1:8000", "http://vllm:8000")
		b.run(t)
		require.True(t, b.WaitForSync(t.Context()))
		assert.Zero(t, time.Since(b.names.start))
		assert.Len(t, b.list(), 1)
		time.Sleep(2 * time.Minute)
		var want []time.Duration
		for _, at := range []int{0, 1, 3, 7, 15, 31, 61, 91} {
			want = append(want, time.Duration(at)*time.Second)
		}
		b.names.mu.Lock()
		assert.Equal(t, want, b.names.lookups)
		b.names.mu.Unlock()
		b.names.set("vllm", "10.0.0.2")
		time.Sleep(lastRetry)
		assert.Len(t, b.list(), 2)
	})
}

func TestSlowNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newServerBench(t, "http://10.0.0.1:8000", "http://vllm:8000")
		b.names.set("vllm", "10.0.0.2")
		b.names.delay = time.Hour
		b.run(t)
		require.True(t, b.WaitForSync(t.Context()))
		assert.Equal(t, syncPatience, time.Since(b.names.start))
		time.Sleep(lookupTimeout)
		assert.Equal(t, context.DeadlineExceeded.Error(), b.logs.All()[0].ContextMap()["error"])

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, b.WaitForSync(ended))
	})
}

func TestNameWithTooManyAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newServerBench(t, "http://vllm:8000")
		var many []string
		for i := range 2 * maxAddresses {
			many = append(many, fmt.Sprintf("10.0.%d.%d", i>>8, i&255))
		}
		b.names.set("vllm", many...)
		b.run(t)
		require.True(t, b.WaitForSync(t.Context()))
		assert.Len(t, b.list(), maxAddresses)
	})
}
