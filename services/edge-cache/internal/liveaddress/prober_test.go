package liveaddress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// node is a network of pods: the ports on which addresses listen.
type node struct {
	*Prober

	t      *testing.T
	mu     sync.Mutex
	open   map[string]string // ports by address
	online bool
	dials  int
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, open: map[string]string{}}
	n.Prober = NewProber(ProberParams{Node: "edge-1", Online: func() bool { return n.online }, Dial: n.dial})
	n.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.9.0.0/24"}}})
	n.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/26", "fd00::/64"}},
	})
	return n
}

func (n *node) dial(_ context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials++
	host, port, _ := net.SplitHostPort(address)
	ports, used := n.open[host]
	switch {
	case !used:
		return nil, context.DeadlineExceeded
	case !strings.Contains(" "+ports+" ", " "+port+" "):
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	a, b := net.Pipe()
	_ = b.Close()
	return a, nil // at once, however busy the machine is: the context ends after 250 ms
}

// slice makes a slice of a service with ports. Endpoints are uid=address, on the node unless they begin with !.
func slice(service, ports string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, text := range strings.Fields(ports) {
		port, _ := strconv.Atoi(text)
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Port: ptr.To(int32(port))})
	}
	for _, text := range endpoints {
		text, other := strings.CutPrefix(text, "!")
		uid, address, _ := strings.Cut(text, "=")
		e := discoveryv1.Endpoint{
			Addresses: []string{address}, NodeName: ptr.To("edge-1"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: uid, UID: types.UID(uid)},
		}
		if other {
			e.NodeName = ptr.To("edge-2")
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// rounds asks as often as a dead address needs to be noticed, and returns what was found as uid=address.
func (n *node) rounds() string {
	n.t.Helper()
	var found map[string]string
	for range confirmations {
		pods, err := n.ListPods(n.t.Context())
		require.NoError(n.t, err)
		found = map[string]string{}
		for uid, pod := range pods {
			assert.Equal(n.t, "ns", pod.Namespace)
			found[uid] = pod.Addresses[0].String()
		}
	}
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(found), "map["), "]")
}

func TestPods(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		slices []*discoveryv1.EndpointSlice
		open   map[string]string
		online bool
		want   string
	}{
		{
			name: "a pod with another address", slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5")},
			open: map[string]string{"10.1.0.9": "8080"}, want: "a1:10.1.0.9",
		},
		{
			name: "its own address answers", slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5")},
			open: map[string]string{"10.1.0.5": "8080", "10.1.0.9": "8080"},
		},
		{
			name: "the API server answers", slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5")},
			open: map[string]string{"10.1.0.9": "8080"}, online: true,
		},
		{
			name: "not all ports answer", slices: []*discoveryv1.EndpointSlice{slice("a", "8080 9090", "a1=10.1.0.5")},
			open: map[string]string{"10.1.0.9": "8080", "10.1.0.10": "9090"},
		},
		{
			name:   "all ports of all slices count",
			slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5"), slice("b", "9090", "a1=10.1.0.5")},
			open:   map[string]string{"10.1.0.9": "8080", "10.1.0.10": "8080 9090"}, want: "a1:10.1.0.10",
		},
		{
			name:   "two Services with the same port",
			slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5"), slice("b", "8080", "b1=10.1.0.6")},
			open:   map[string]string{"10.1.0.9": "8080"},
		},
		{
			name:   "a port more tells two Services apart only for the one without it",
			slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5"), slice("b", "8080 9090", "b1=10.1.0.6")},
			open:   map[string]string{"10.1.0.9": "8080", "10.1.0.10": "8080 9090"}, want: "a1:10.1.0.9",
		},
		{
			name:   "another Service with the port lives",
			slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5"), slice("b", "8080", "b1=10.1.0.6")},
			open:   map[string]string{"10.1.0.6": "8080", "10.1.0.9": "8080"}, want: "a1:10.1.0.9",
		},
		{
			name: "more addresses than pods", slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5")},
			open: map[string]string{"10.1.0.9": "8080", "10.1.0.10": "8080"},
		},
		{
			name:   "pods of one Service may be exchanged",
			slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5", "a2=10.1.0.6")},
			open:   map[string]string{"10.1.0.9": "8080", "10.1.0.10": "8080"}, want: "a1:10.1.0.9 a2:10.1.0.10",
		},
		{
			name: "fewer addresses than pods", slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5", "a2=10.1.0.6")},
			open: map[string]string{"10.1.0.9": "8080"}, want: "a1:10.1.0.9",
		},
		{
			name:   "the address of another endpoint",
			slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5"), slice("b", "9090", "b1=10.1.0.9")},
			open:   map[string]string{"10.1.0.9": "8080 9090"},
		},
		{
			name:   "the first and the last address are not those of pods",
			slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5")},
			open:   map[string]string{"10.1.0.0": "8080", "10.1.0.1": "8080", "10.1.0.63": "8080"},
		},
		{
			name: "outside of the range", slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=192.0.2.1")},
			open: map[string]string{"10.1.0.9": "8080"},
		},
		{
			name: "another node", slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "!a1=10.1.0.5")},
			open: map[string]string{"10.1.0.9": "8080"},
		},
		{
			name:   "two addresses for one pod",
			slices: []*discoveryv1.EndpointSlice{slice("a", "8080", "a1=10.1.0.5"), slice("b", "8080", "a1=10.1.0.6")},
			open:   map[string]string{"10.1.0.9": "8080"},
		},
		{
			name:   "too many ports",
			slices: []*discoveryv1.EndpointSlice{slice("a", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17", "a1=10.1.0.5")},
			open:   map[string]string{"10.1.0.9": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.open, n.online = tt.open, tt.online
			for _, s := range tt.slices {
				n.ObserveSlice("ns/"+s.Name, s)
			}
			assert.Equal(t, tt.want, n.rounds())
		})
	}
}

// TestPodsOverTime follows a pod through its states: it is not looked for at the first failure, keeps an address that counts, loses one
// that does not, and is forgotten when its own address answers, or its slice has another one. After the outage the address stays until
// then.
func TestPodsOverTime(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.ObserveSlice("ns/a", slice("a", "8080", "a1=10.1.0.5"))
	n.open["10.1.0.9"] = "8080"
	pods, err := n.ListPods(t.Context())
	require.NoError(t, err)
	assert.Empty(t, pods, "one failure can be a pod that is slow")
	assert.Equal(t, "a1:10.1.0.9", n.rounds())
	n.online = true
	assert.Equal(t, "a1:10.1.0.9", n.rounds())
	n.online = false
	n.open["10.1.0.10"] = "8080"
	assert.Empty(t, n.rounds(), "another address makes both doubtful")
	delete(n.open, "10.1.0.9")
	assert.Equal(t, "a1:10.1.0.10", n.rounds())
	n.online = true
	n.ObserveSlice("ns/a", slice("a", "8080", "a1=10.1.0.10"))
	assert.Empty(t, n.rounds())
	before := n.dials
	assert.Empty(t, n.rounds())
	assert.Equal(t, before, n.dials, "online, nothing is probed")
	n.ForgetSlice("ns/a")
	n.online = false
	assert.Empty(t, n.rounds())
	assert.Equal(t, before, n.dials, "nothing is left to look for")
}

// TestSettledGuess has a pod that starts later, and listens on the port of a Service.
func TestSettledGuess(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.ObserveSlice("ns/a", slice("a", "8080", "a1=10.1.0.5", "a2=10.1.0.6"))
	n.open["10.1.0.9"] = "8080"
	for range settledRounds {
		assert.Equal(t, "a1:10.1.0.9", n.rounds())
	}
	n.open["10.1.0.8"] = "8080"
	assert.Equal(t, "a1:10.1.0.9 a2:10.1.0.8", n.rounds(), "the other pod of the Service")
	n.open["10.1.0.7"] = "8080"
	assert.Equal(t, "a1:10.1.0.9", n.rounds(), "one of two")
	delete(n.open, "10.1.0.9")
	delete(n.open, "10.1.0.8")
	assert.Equal(t, "a1:10.1.0.7", n.rounds())
}

// TestSeenIsBounded has more pods than the Prober looks at.
func TestSeenIsBounded(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.0.0.0/8"}}})
	var endpoints []string
	for i := range 2 * maxPods {
		endpoints = append(endpoints, fmt.Sprintf("u%d=%s", i, netip.AddrFrom4([4]byte{10, 7, byte(i / 256), byte(i)})))
	}
	n.ObserveSlice("ns/a", slice("a", "8080", endpoints...))
	assert.Empty(t, n.rounds())
	assert.LessOrEqual(t, n.dials, confirmations*(maxPods+maxAddresses))
}
