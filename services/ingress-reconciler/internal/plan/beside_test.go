package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

func TestPools(t *testing.T) {
	t.Parallel()
	const named, made = "inferencePool: {name: shared}\n", "inferencePool: {endpointPickerRef: {name: picker}}\n"
	none := func(in *Input) { in.Pools = map[string]bool{} }
	tests := []struct {
		name, config string
		roles        []isvc.Role
		change       func(in *Input)
		want         string // pool that requests go to, or reason
		pool         *Pool
	}{
		{name: "named", config: byGateway + named, change: func(in *Input) { in.Pools = map[string]bool{"shared": true} }, want: "shared"},
		{name: "named, and missing", config: byGateway + named, change: func(in *Input) { in.Pools = map[string]bool{"shared": false} }, want: "engine InferencePoolNotFound"},
		{name: "not served", config: byGateway + named, want: "engine APIUnavailable"},
		{name: "made, and not served", config: byGateway + made, want: "engine APIUnavailable"},
		{name: "by Ingress", config: example + named, change: none, want: "engine InferencePoolUnsupported"},
		{name: "by VirtualService", config: byIstio + made, change: none, want: "engine InferencePoolUnsupported"},
		{name: "made", config: byGateway + made, change: none, want: "chat-fairlead", pool: &Pool{
			Name: "chat-fairlead", Selector: map[string]string{"ome.io/inferenceservice": "chat", "component": "engine"}, TargetPort: 8080,
			Picker: settings.EndpointPicker{Name: "picker", Port: 9002, FailureMode: "FailClose"},
		}},
		{name: "made, beside a router", config: byGateway + made, roles: []isvc.Role{isvc.Router, isvc.Engine}, change: none, want: "chat-fairlead", pool: &Pool{
			Name: "chat-fairlead", Selector: map[string]string{"ome.io/inferenceservice": "chat", "component": "engine"}, TargetPort: 8080,
			Picker: settings.EndpointPicker{Name: "picker", Port: 9002, FailureMode: "FailClose"},
		}},
		{name: "made, of leaders", config: byGateway + made, change: func(in *Input) {
			none(in)
			in.Service.Components[isvc.Engine].Nodes = true
		}, want: "chat-fairlead", pool: &Pool{
			Name: "chat-fairlead", TargetPort: 8080, Picker: settings.EndpointPicker{Name: "picker", Port: 9002, FailureMode: "FailClose"},
			Selector: map[string]string{"ome.io/inferenceservice": "chat", "component": "engine", "leaderworkerset.sigs.k8s.io/worker-index": "0"},
		}},
		{name: "made, of heads of Ray", config: byGateway + made, change: func(in *Input) {
			none(in)
			in.Service.Components[isvc.Engine].Mode = isvc.MultiNodeRayVLLM
			in.Services[0].Spec.Ports[0].TargetPort = intstr.FromInt32(8000)
		}, want: "chat-fairlead", pool: &Pool{
			Name: "chat-fairlead", TargetPort: 8000, Picker: settings.EndpointPicker{Name: "picker", Port: 9002, FailureMode: "FailClose"},
			Selector: map[string]string{"ome.io/inferenceservice": "chat", "component": "engine", "ray.io/node-type": "head"},
		}},
		{name: "made, of no engine", config: byGateway + made, roles: []isvc.Role{isvc.Router}, change: none, want: "router InferencePoolUnsupported"},
		{name: "made, of an engine without a Service", config: byGateway + made, roles: []isvc.Role{isvc.Router, isvc.Engine}, change: func(in *Input) {
			none(in)
			in.Services = in.Services[:1]
		}, want: "router ServiceNotFound"},
		{name: "made, of a port by name", config: byGateway + made, change: func(in *Input) {
			none(in)
			in.Services[0].Spec.Ports[0].TargetPort = intstr.FromString("http1")
		}, want: "engine InferencePoolUnsupported"},
		{name: "not ready", config: byGateway + made, change: func(in *Input) {
			none(in)
			in.Service.Conditions = nil
		}, want: "engine ComponentNotReady"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			roles := tt.roles
			if roles == nil {
				roles = []isvc.Role{isvc.Engine}
			}
			in := input(t, tt.config, roles...)
			if tt.change != nil {
				tt.change(in)
			}
			got := build(t, in)
			said := strings.Join(reasons(got), ",")
			for _, e := range got.Exposures {
				said += e.Backend.Pool
			}
			assert.Equal(t, tt.want, said)
			assert.Equal(t, tt.pool, got.Pool)
			assert.Equal(t, len(got.Exposures) == 0, len(got.Keep) > 0)
		})
	}
}

func TestAPoolIsForTheEntryAlone(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway+"componentHosts: true\ninferencePool: {name: shared}\n", isvc.Router, isvc.Engine)
	in.Pools = map[string]bool{"shared": true}
	assert.Equal(t, []string{
		"chat.models.example.com/ -> shared:8080 by gateways/public", "chat-engine.models.example.com/ -> chat-engine:8080 by gateways/public",
	}, lines(build(t, in)))
}

func TestFallback(t *testing.T) {
	t.Parallel()
	const fallback = "fallbackService: {enabled: true, type: LoadBalancer}\n"
	in := input(t, example+fallback, isvc.Router, isvc.Engine)
	in.Services[0].Spec.Ports[0].TargetPort = intstr.FromString("http1")
	got := build(t, in)
	require.NotNil(t, got.Fallback)
	assert.Equal(t, &Fallback{
		Name: "chat-external", Type: "LoadBalancer", Selector: map[string]string{"ome.io/inferenceservice": "chat", "component": "router"},
		Port: 8080, TargetPort: backend.Port{Name: "http1"},
	}, got.Fallback)

	in.Service.Conditions = nil
	got = build(t, in)
	assert.NotNil(t, got.Fallback, "it waits for pods by itself")
	assert.Empty(t, got.Exposures)

	in.Services = nil
	got = build(t, in)
	assert.Nil(t, got.Fallback)
	assert.Equal(t, []Slot{Entry}, got.Keep, "what is there stays")
	assert.Equal(t, []string{"router ServiceNotFound"}, reasons(got), "it is said once")

	in = input(t, example+"enabled: false\n"+fallback, isvc.Engine)
	assert.Nil(t, build(t, in).Fallback)
	assert.Nil(t, build(t, input(t, example, isvc.Engine)).Fallback)
}

func TestAFallbackOfKnativeIsMissed(t *testing.T) {
	t.Parallel()
	in := input(t, example+"ingressGateway: istio/public\nstrategy: virtualservice\nfallbackService: {enabled: true}\n", isvc.Engine)
	in.Knative[isvc.Engine], in.Services = true, nil
	got := build(t, in)
	assert.Len(t, got.Exposures, 1)
	assert.Nil(t, got.Fallback)
	assert.Equal(t, []string{"engine ServiceNotFound"}, reasons(got))
}

func TestNamesOfWhatStandsBeside(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "chat-fairlead", PoolName("chat"))
	assert.Equal(t, "chat-external", FallbackName("chat", "-external"))
	fits := strings.Repeat("n", 54)
	assert.Equal(t, fits+"-fairlead", PoolName(fits), "63 characters")
	assert.Regexp(t, "^n{45}-[0-9a-f]{8}-fairlead$", PoolName(fits+"n"))
	assert.NotEqual(t, PoolName(fits+"nn"), PoolName(fits+"nm"))
	for n := 1; n <= 253; n++ {
		for _, name := range []string{strings.Repeat("n", n), strings.Repeat("a-", n/2) + "a"} {
			assert.Empty(t, validation.IsDNS1035Label(PoolName(name)))
			assert.Empty(t, validation.IsDNS1035Label(FallbackName(name, "-abcdefghijklmnopqrs")))
		}
	}
}

// No pod can have a label with such a name.
func TestANameTooLongToSelectBy(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway+"domainTemplate: long.{{ .IngressDomain }}\ninferencePool: {endpointPickerRef: {name: picker}}\nfallbackService: {enabled: true}\n", isvc.Engine)
	in.Pools = map[string]bool{}
	in.Service.Name = strings.Repeat("n", 64)
	in.Services[0].Name = backend.Name(in.Service.Name, isvc.Engine)
	got := build(t, in)
	assert.Nil(t, got.Pool)
	assert.Nil(t, got.Fallback)
	assert.Equal(t, []string{"engine InferencePoolUnsupported", "engine InvalidConfiguration"}, reasons(got))

	in.Service.Name = strings.Repeat("n", 63)
	in.Services[0].Name = backend.Name(in.Service.Name, isvc.Engine)
	got = build(t, in)
	assert.NotNil(t, got.Pool)
	assert.NotNil(t, got.Fallback)
	assert.Empty(t, got.Reasons)
}
