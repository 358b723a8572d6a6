package observe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/golden"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

const binding = `
- {apiVersion: fairlead.dev/v1alpha1, kind: BackendSetBinding, metadata: {namespace: models, name: chat, uid: b1},
   spec: {loadBalancerId: ocid1.loadbalancer.oc1..a, backendSetName: chat, serviceRef: {name: chat, port: PORT}}}
- {apiVersion: v1, kind: Service, metadata: {namespace: models, name: chat}, spec: {ports: [{name: http, port: 80, targetPort: 8000},
    {name: metrics, port: 9090}, {name: dns, port: 53, protocol: UDP}]}}
- {apiVersion: v1, kind: Service, metadata: {namespace: models, name: unnamed}, spec: {ports: [{port: 80}]}}
`

// observerOf returns an Observer of objects.
func observerOf(t *testing.T, gates bool, text string) *Observer {
	t.Helper()
	var world kit.Snapshot
	for _, m := range golden.Decode[[]map[string]any](t, []byte(text)) {
		world.Objects = append(world.Objects, &unstructured.Unstructured{Object: m})
	}
	caches, err := informers.Options{Gates: gates}.Declare().Read(world)
	require.NoError(t, err)
	return New(caches)
}

// endpointsOf returns the endpoints of the Service of the first binding.
func endpointsOf(o *Observer, isPod func(netip.Addr) bool) (ServiceEndpoints, error) {
	b := informers.ListAll[v1alpha1.BackendSetBinding](o.caches.Bindings)[0]
	return o.ServiceEndpoints(cache.ObjectName{Namespace: b.Namespace, Name: b.Spec.ServiceRef.Name}, b.Spec.ServiceRef.Port, isPod)
}

// slice returns an EndpointSlice of Service chat.
func slice(name, ports, endpoints string, changes ...string) string {
	text := fmt.Sprintf("- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: models, name: %s, labels: "+
		"{kubernetes.io/service-name: chat}}, "+
		"addressType: IPv4, ports: [%s], endpoints: [%s]}\n", name, ports, endpoints)
	return strings.NewReplacer(changes...).Replace(text)
}

// format returns "10.0.0.1:8000 ready, ...".
func format(all []plan.Endpoint) string {
	names := map[plan.State]string{
		plan.Ready: "ready", plan.Finishing: "finishing", plan.Terminating: "terminating", plan.NotReady: "not ready",
	}
	var texts []string
	for _, e := range all {
		texts = append(texts, e.Address.String()+" "+names[e.State])
	}
	return strings.Join(texts, ", ")
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	const http = "{name: http, port: 8000}"
	tests := []struct {
		name    string
		port    string
		objects string
		want    string
		refused string
	}{
		{name: "no slice"},
		{
			name: "the port of the slice, not of the Service", objects: slice("a", http, "{addresses: [10.0.0.1]}"),
			want: "10.0.0.1:8000 ready",
		},
		{name: "a port by its number", port: "80", objects: slice("a", http, "{addresses: [10.0.0.1]}"), want: "10.0.0.1:8000 ready"},
		{
			name: "another port", port: "metrics", objects: slice("a", http+", {name: metrics, port: 9091}", "{addresses: [10.0.0.1]}"),
			want: "10.0.0.1:9091 ready",
		},
		{name: "each slice has its ports", objects: slice("a", http, "{addresses: [10.0.0.1]}") + slice("b", "{name: http, port: 8001}",
			"{addresses: [10.0.0.2]}"),
			want: "10.0.0.1:8000 ready, 10.0.0.2:8001 ready"},
		{name: "a slice without the port", objects: slice("a", "{name: other, port: 1}", "{addresses: [10.0.0.1]}")},
		{name: "a slice with an empty port", objects: slice("a", "{name: http}", "{addresses: [10.0.0.1]}")},
		{name: "a UDP port of the name", objects: slice("a", "{name: http, port: 8000, protocol: UDP}", "{addresses: [10.0.0.1]}")},
		{
			name: "only the first address counts", objects: slice("a", http, "{addresses: [10.0.0.1, 10.0.0.2]}"),
			want: "10.0.0.1:8000 ready",
		},
		{
			name: "an endpoint without addresses", objects: slice("a", http, "{addresses: []}, {addresses: [10.0.0.2]}"),
			want: "10.0.0.2:8000 ready",
		},
		{
			name: "absent conditions are ready", objects: slice("a", http, "{addresses: [10.0.0.1], conditions: {}}"),
			want: "10.0.0.1:8000 ready",
		},
		{
			name: "not ready", objects: slice("a", http, "{addresses: [10.0.0.1], conditions: {ready: false}}"),
			want: "10.0.0.1:8000 not ready",
		},
		{
			name:    "terminating and serving",
			objects: slice("a", http, "{addresses: [10.0.0.1], conditions: {ready: false, serving: true, terminating: true}}"),
			want:    "10.0.0.1:8000 finishing",
		},
		{
			name:    "terminating",
			objects: slice("a", http, "{addresses: [10.0.0.1], conditions: {ready: false, serving: false, terminating: true}}"),
			want:    "10.0.0.1:8000 terminating",
		},
		{
			name:    "an absent serving condition is the ready one",
			objects: slice("a", http, "{addresses: [10.0.0.1], conditions: {ready: false, terminating: true}}"),
			want:    "10.0.0.1:8000 terminating",
		},
		{name: "terminating, of a Service that publishes all addresses", objects: slice("a", http,
			"{addresses: [10.0.0.1], conditions: {ready: true, serving: true, terminating: true}}"),
			want: "10.0.0.1:8000 finishing"},
		{name: "two slices of one pod: the better state counts", objects: slice("a", http,
			"{addresses: [10.0.0.1], conditions: {ready: false}}") + slice("b", http, "{addresses: [10.0.0.1]}"),
			want: "10.0.0.1:8000 ready"},
		{
			name:    "dual-stack",
			objects: slice("a", http, "{addresses: [10.0.0.1]}") + slice("b", http, "{addresses: ['fd00::1']}", "IPv4", "IPv6"),
			want:    "10.0.0.1:8000 ready",
		},
		{name: "IPv6 only", objects: slice("a", http, "{addresses: ['fd00::1']}", "IPv4", "IPv6"), refused: "no IPv4 endpoints"},
		{name: "names of hosts", objects: slice("a", http, "{addresses: [a.example.com]}", "IPv4", "FQDN"), refused: "no IPv4 endpoints"},
		{name: "addresses that are not those of pods", objects: slice("a", http,
			"{addresses: [10.0.0.1]}, {addresses: [192.0.2.1]}, {addresses: [169.254.169.254]}, {addresses: [127.0.0.1]}, "+
				"{addresses: [x]}"),
			want: "10.0.0.1:8000 ready", refused: "127.0.0.1, 169.254.169.254, 192.0.2.1 and 1 more"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			port := tt.port
			if port == "" {
				port = "http"
			}
			o := observerOf(t, false, strings.Replace(binding, "PORT", port, 1)+tt.objects)
			got, err := endpointsOf(o, func(a netip.Addr) bool { return a.As4()[0] != 192 })
			require.NoError(t, err)
			assert.Equal(t, tt.want, format(got.Endpoints))
			if tt.refused == "" {
				assert.Empty(t, got.Refused)
			}
			assert.Contains(t, got.Refused, tt.refused)
			assert.False(t, got.Missing)
		})
	}
}

func TestPortsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for port, want := range map[string]string{
		"8000": "Service chat has no port 8000; it has http/80, metrics/9090, dns/53",
		"grpc": "Service chat has no port grpc; it has http/80, metrics/9090, dns/53",
		"dns":  "port dns of Service chat has the protocol UDP, and load balancers forward TCP",
	} {
		o := observerOf(t, false, strings.Replace(binding, "PORT", port, 1))
		_, err := endpointsOf(o, func(netip.Addr) bool { return true })
		assert.EqualError(t, err, want)
	}
}

func TestServicesThatDoNotExist(t *testing.T) {
	t.Parallel()
	o := observerOf(t, false,
		strings.ReplaceAll(strings.Replace(binding, "PORT", "http", 1), "kind: Service, metadata: {namespace: models, name: chat}",
			"kind: Service, metadata: {namespace: models, name: other}"))
	got, err := endpointsOf(o, func(netip.Addr) bool { return true })
	require.NoError(t, err)
	assert.Equal(t, ServiceEndpoints{Missing: true}, got)
}

// TestEndpointsHavePods: of the slices with an address, the one with the better state has the pod.
func TestEndpointsHavePods(t *testing.T) {
	t.Parallel()
	const ports = "{name: http, port: 8000}"
	o := observerOf(t, false, strings.Replace(binding, "PORT", "http", 1)+
		slice("a", ports,
			"{addresses: [10.0.0.1], conditions: {ready: false}, targetRef: {kind: Pod, name: old, uid: old}}, {addresses: [10.0.0.2], "+
				"targetRef: {kind: Node, name: node, uid: node}}, {addresses: [10.0.0.3]}")+
		slice("b", ports, "{addresses: [10.0.0.1], targetRef: {kind: Pod, name: new, uid: new}}"))
	got, err := endpointsOf(o, func(netip.Addr) bool { return true })
	require.NoError(t, err)
	var pods []string
	for _, e := range got.Endpoints {
		pods = append(pods, e.Pod)
	}
	assert.Equal(t, []string{"new", "", ""}, pods)
}

func TestOccupants(t *testing.T) {
	t.Parallel()
	const ports = "{name: http, port: 8000, protocol: TCP}"
	other := func(name, ports, endpoints string) string {
		return slice(name, ports, endpoints, "namespace: models", "namespace: others", "service-name: chat", "service-name: embed")
	}
	tests := []struct {
		name, objects string
		want          []plan.Occupant
	}{
		{name: "none", objects: slice("a", ports, "{addresses: [10.0.0.9]}")},
		{name: "the own Service", objects: slice("a", ports, "{addresses: [10.0.0.1]}")},
		{name: "of another namespace", objects: other("a", ports,
			"{addresses: [10.0.0.9]}, {addresses: [10.0.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: embed-1, uid: e1}}"),
			want: []plan.Occupant{{Service: "others/embed", Pod: "e1", SamePort: true}}},
		{name: "of the own namespace", objects: slice("a", ports, "{addresses: [10.0.0.1]}", "service-name: chat", "service-name: embed"),
			want: []plan.Occupant{{Service: "models/embed", SamePort: true}}},
		{
			name: "several ports", objects: other("a", "{name: metrics, port: 9090}, "+ports, "{addresses: [10.0.0.1]}"),
			want: []plan.Occupant{{Service: "others/embed", SamePort: true}},
		},
		{
			name:    "other ports",
			objects: other("a", "{name: metrics, port: 9090}, {name: dns, port: 8000, protocol: UDP}", "{addresses: [10.0.0.1]}"),
			want:    []plan.Occupant{{Service: "others/embed"}},
		},
		{name: "no port", objects: other("a", "", "{addresses: [10.0.0.1]}"), want: []plan.Occupant{{Service: "others/embed"}}},
		{name: "mapped to IPv6, and with zeros", objects: other("a", ports,
			"{addresses: ['::ffff:10.0.0.1']}, {addresses: ['::ffff:a00:1']}, {addresses: ['010.0.00.1']}, {addresses: "+
				"[chat.example.com]}"),
			want: []plan.Occupant{
				{Service: "others/embed", SamePort: true}, {Service: "others/embed", SamePort: true},
				{Service: "others/embed", SamePort: true},
			}},
		{name: "not ready", objects: other("a", ports, "{addresses: [10.0.0.1], conditions: {ready: false}}")},
		{
			name:    "terminating, of a Service that publishes all addresses",
			objects: other("a", ports, "{addresses: [10.0.0.1], conditions: {ready: true, terminating: true}}"),
		},
		{name: "not the first address", objects: other("a", ports, "{addresses: [10.0.0.9, 10.0.0.1]}, {addresses: []}")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := observerOf(t, false, strings.Replace(binding, "PORT", "http", 1)+tt.objects)
			assert.Equal(t, tt.want, o.FindOccupants(netip.MustParseAddrPort("10.0.0.1:8000"), []string{"models/chat"}))
			assert.Equal(t, tt.want, o.FindOccupants(netip.MustParseAddrPort("[::ffff:10.0.0.1]:8000"), []string{"models/chat"}))
		})
	}
}

// TestOccupantsByIPv6 are those of backends that another client has written: the program writes IPv4 only.
func TestOccupantsByIPv6(t *testing.T) {
	t.Parallel()
	o := observerOf(t, false, strings.Replace(binding, "PORT", "http", 1)+slice("a", "{name: http, port: 8000}",
		"{addresses: ['FD00:0::1']}, {addresses: ['fd00::2']}",
		"addressType: IPv4", "addressType: IPv6", "service-name: chat", "service-name: embed"))
	assert.Equal(t, []plan.Occupant{{Service: "models/embed", SamePort: true}},
		o.FindOccupants(netip.MustParseAddrPort("[fd00::1]:8000"), nil))
}

// TestAHugeService has more endpoints than are considered.
func TestAHugeService(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for n := range 10 {
		var endpoints []string
		for i := range 1000 {
			endpoints = append(endpoints, fmt.Sprintf("{addresses: [10.%d.%d.%d]}", n, i/250, i%250))
		}
		all.WriteString(slice(fmt.Sprintf("s%d", n), "{name: http, port: 8000}", strings.Join(endpoints, ", ")))
	}
	o := observerOf(t, false, strings.Replace(binding, "PORT", "http", 1)+all.String())
	got, err := endpointsOf(o, func(netip.Addr) bool { return true })
	require.NoError(t, err)
	assert.Len(t, got.Endpoints, maxEndpoints)
	assert.Contains(t, got.Refused, "more than 4096 endpoints")
	assert.True(t, slices.IsSortedFunc(got.Endpoints, func(a, b plan.Endpoint) int { return a.Address.Compare(b.Address) }))
}

// gated returns a pod with the readiness gate, and others, and with conditions: "ContainersReady Ready:ReadinessGatesNotReady", which is
// False because it has a reason.
func gated(name, conditions string, others ...string) string {
	gates, states := "{conditionType: fairlead.dev/oci-lb-ready}", []string{}
	for _, g := range others {
		gates += ", {conditionType: " + g + "}"
	}
	for _, c := range strings.Fields(conditions) {
		kind, reason, isFalse := strings.Cut(c, ":")
		states = append(states,
			fmt.Sprintf("{type: %s, status: '%s', reason: '%s'}", strings.Replace(kind, "gate", "fairlead.dev/oci-lb-ready", 1),
				map[bool]string{true: "False", false: "True"}[isFalse], reason))
	}
	return fmt.Sprintf(
		"- {apiVersion: v1, kind: Pod, metadata: {namespace: models, name: %[1]s, uid: of-%[1]s}, spec: {readinessGates: [%s]}, status: "+
			"{conditions: [%s]}}\n",
		name, gates, strings.Join(states, ", "))
}

// endpointOf returns the endpoint of a pod that is not ready.
func endpointOf(pod, uid string) string {
	return fmt.Sprintf("{addresses: [10.0.0.1], conditions: {ready: false}, targetRef: {kind: Pod, name: %s, uid: %s}}", pod, uid)
}

func TestPodsThatWaitForTheirGate(t *testing.T) {
	t.Parallel()
	const closed, open = "ContainersReady Initialized Ready:ReadinessGatesNotReady " +
		"gate:WaitingForLoadBalancer", "ContainersReady Initialized gate "
	tests := []struct {
		name, pod string
		off       bool
		want      string
	}{
		{name: "closed", pod: gated("a", closed), want: "ready"},
		{name: "no condition yet", pod: gated("a", "ContainersReady Ready:ReadinessGatesNotReady"), want: "ready"},
		{name: "open, and the kubelet is late", pod: gated("a", open+"Ready:ReadinessGatesNotReady"), want: "ready"},
		{name: "open, and the slice is late", pod: gated("a", open+"Ready"), want: "ready"},
		{
			name: "containers that are not ready", pod: gated("a", "ContainersReady:ContainersNotReady Ready:ContainersNotReady"),
			want: "not ready",
		},
		{
			name: "containers that are no longer ready",
			pod:  gated("a", "ContainersReady:ContainersNotReady Ready:ContainersNotReady gate"), want: "not ready",
		},
		{name: "open, of a dead node", pod: gated("a", open+"Ready:"), want: "not ready"},
		{name: "another gate is closed", pod: gated("a", closed+" example.com/other:Updating", "example.com/other"), want: "not ready"},
		{name: "another gate without a condition", pod: gated("a", closed, "example.com/other"), want: "not ready"},
		{name: "another gate is open", pod: gated("a", closed+" example.com/other", "example.com/other"), want: "ready"},
		{
			name: "another gate has closed",
			pod:  gated("a", open+"Ready:ReadinessGatesNotReady example.com/other:Updating", "example.com/other"), want: "not ready",
		},
		{name: "no gate", pod: strings.Replace(gated("a", closed), "fairlead.dev/oci-lb-ready", "example.com/other", 1), want: "not ready"},
		{name: "an earlier pod of the name", pod: strings.Replace(gated("a", closed), "of-a", "another", 1), want: "not ready"},
		{name: "gates are off", pod: gated("a", closed), off: true, want: "not ready"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := observerOf(t, !tt.off,
				strings.Replace(binding, "PORT", "http", 1)+tt.pod+slice("a", "{name: http, port: 8000}", endpointOf("a", "of-a")))
			got, err := endpointsOf(o, func(netip.Addr) bool { return true })
			require.NoError(t, err)
			assert.Equal(t, "10.0.0.1:8000 "+tt.want, format(got.Endpoints))
		})
	}
}

func TestUsesOfPods(t *testing.T) {
	t.Parallel()
	o := observerOf(t, true, strings.Replace(binding, "PORT", "http", 1)+gated("a", "")+gated("b", "")+"- {apiVersion: v1, kind: Pod, "+
		"metadata: {namespace: models, name: c}}\n"+
		slice("a", "{name: http, port: 8000}",
			endpointOf("a", "of-a")+", "+strings.Replace(endpointOf("a", "another"), "10.0.0.1", "10.0.0.4", 1)))
	assert.Len(t, o.ListGatedPods(), 2)
	pod := o.FindGatedPod(cache.ObjectName{Namespace: "models", Name: "a"})
	require.NotNil(t, pod)
	uses := o.BindingsOfPod(pod)
	require.Len(t, uses, 1)
	assert.Equal(t, "chat", uses[0].Binding.Name)
	assert.Equal(t, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8000")}, uses[0].Addresses)
	assert.Nil(t, o.FindGatedPod(cache.ObjectName{Namespace: "models", Name: "c"}), "it has no gate")
}
