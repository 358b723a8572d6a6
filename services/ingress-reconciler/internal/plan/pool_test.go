package plan

import (
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// picker returns the Service of an endpoint picker.
func picker(ports ...int32) *corev1.Service {
	s := &corev1.Service{}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: p})
	}
	return s
}

// existing returns an InferencePool that a user created.
func existing(selector map[string]string, change ...func(*inferencev1.InferencePool)) *inferencev1.InferencePool {
	p := &inferencev1.InferencePool{}
	p.Spec.Selector.MatchLabels = map[inferencev1.LabelKey]inferencev1.LabelValue{}
	for key, value := range selector {
		p.Spec.Selector.MatchLabels[inferencev1.LabelKey(key)] = inferencev1.LabelValue(value)
	}
	p.Spec.EndpointPickerRef = &inferencev1.EndpointPickerRef{Name: "picker", Port: &inferencev1.Port{Number: 9002}}
	for _, f := range change {
		f(p)
	}
	return p
}

// served adds InferencePools, one of them named shared, and a picker.
func served(selector map[string]string) func(in *Input) {
	return func(in *Input) {
		in.Pools, in.Pickers = map[string]*inferencev1.InferencePool{}, map[string]*corev1.Service{"picker": picker(9002)}
		if selector != nil {
			in.Pools["shared"] = existing(selector)
		}
	}
}

// then combines changes.
func then(changes ...func(in *Input)) func(in *Input) {
	return func(in *Input) {
		for _, f := range changes {
			f(in)
		}
	}
}

type labels = map[string]string

const pooled, namedPool = "inferencePool: {name: shared}\n", "inferencePool: {endpointPickerRef: {name: picker}}\n"

func TestPoolsThatAreCreated(t *testing.T) {
	t.Parallel()
	none := served(nil)
	pool := func(port int32, selector labels) *Pool {
		return &Pool{
			Name: "chat-fairlead", TargetPort: port, Selector: selector,
			Picker: settings.EndpointPicker{Name: "picker", Port: 9002, FailureMode: "FailClose"},
		}
	}
	selected := func(selector labels) func(in *Input) {
		return func(in *Input) { in.Services[len(in.Services)-1].Spec.Selector = selector }
	}
	raw := labels{"app": "chat-engine", "ome.io/inferenceservice": "chat", "component": "engine"}
	leaders := labels{
		"ome.io/inferenceservice": "chat", "component": "engine", "ome.io/managed-by": "OMENative", "ome.io/runner": "leader",
		"ome.io/pod-ordinal": "0",
	}
	tests := []struct {
		name, config string
		roles        []isvc.Role
		change       func(in *Input)
		want         string // backends and reasons
		pool         *Pool
	}{
		{name: "not served", config: byGateway + namedPool, want: "engine APIUnavailable"},
		{name: "by Ingress", config: example + namedPool, change: none, want: "engine InferencePoolUnsupported"},
		{name: "by VirtualService", config: byIstio + namedPool, change: none, want: "engine InferencePoolUnsupported"},
		{name: "of an engine", config: byGateway + namedPool, change: none, want: "chat-fairlead", pool: pool(8080, raw)},
		{
			name: "of leaders of OME 1.2", config: byGateway + namedPool, change: then(none, selected(labels{"ray.io/node-type": "head"})),
			want: "chat-fairlead", pool: pool(8080, labels{
				"ray.io/node-type": "head", "ome.io/inferenceservice": "chat", "component": "engine",
			}),
		},
		{
			name: "of leaders of OME 1.3", config: byGateway + namedPool, change: then(none, selected(leaders)), want: "chat-fairlead",
			pool: pool(8080, leaders),
		},
		{name: "of the heads of Ray", config: byGateway + namedPool, change: then(none, func(in *Input) {
			in.Service.Components[isvc.Engine].Mode = isvc.MultiNodeRayVLLM
			in.Services[0].Spec.Ports[0].TargetPort = intstr.FromInt32(8000)
		}), want: "chat-fairlead", pool: pool(8000, raw)},
		{
			name: "with a decoder", config: byGateway + namedPool, roles: []isvc.Role{isvc.Decoder, isvc.Engine}, change: none,
			want: "chat-fairlead,engine DecoderWithoutRouter (warning)", pool: pool(8080, raw),
		},
		{
			name: "with a router", config: byGateway + namedPool, roles: []isvc.Role{isvc.Router, isvc.Engine}, change: none,
			want: "chat-router,router InferencePoolUnsupported (warning)",
		},
		{
			name: "with a router and a decoder", config: byGateway + namedPool, roles: []isvc.Role{isvc.Router, isvc.Engine, isvc.Decoder},
			change: none, want: "chat-router,router InferencePoolUnsupported (warning)",
		},
		{
			name: "of no engine", config: byGateway + namedPool, roles: []isvc.Role{isvc.Router}, change: none,
			want: "chat-router,router InferencePoolUnsupported (warning)",
		},
		{
			name: "of an engine without a Service", config: byGateway + namedPool,
			change: then(none, func(in *Input) { in.Services = nil }), want: "engine ServiceNotFound",
		},
		{
			name: "of a Service without a selector", config: byGateway + namedPool, change: then(none, selected(nil)),
			want: "engine InferencePoolUnsupported",
		},
		{name: "of a port by name", config: byGateway + namedPool, change: then(none, func(in *Input) {
			in.Services[0].Spec.Ports[0].TargetPort = intstr.FromString("http1")
		}), want: "engine InferencePoolUnsupported"},
		{
			name: "not ready", config: byGateway + namedPool, change: then(none, func(in *Input) { in.Service.Conditions = nil }),
			want: "engine ComponentNotReady",
		},
		{
			name: "without a picker", config: byGateway + namedPool, change: then(none, func(in *Input) { in.Pickers = nil }),
			want: "engine EndpointPickerNotFound",
		},
		{
			name: "with a picker of another port", config: byGateway + namedPool,
			change: then(none, func(in *Input) { in.Pickers["picker"] = picker(9003) }), want: "engine EndpointPickerNotFound",
		},
		{name: "with a picker of another protocol", config: byGateway + namedPool, change: then(none, func(in *Input) {
			in.Pickers["picker"].Spec.Ports[0].Protocol = corev1.ProtocolUDP
		}), want: "engine EndpointPickerNotFound"},
		{
			name: "with a picker of several ports", config: byGateway + namedPool,
			change: then(none, func(in *Input) { in.Pickers["picker"] = picker(9090, 9002) }), want: "chat-fairlead",
			pool: pool(8080, raw),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, summary := plannedPool(t, tt.config, tt.roles, tt.change)
			assert.Equal(t, tt.want, summary)
			assert.Equal(t, tt.pool, got.Pool)
			assert.Equal(t, len(got.Exposures) == 0, len(got.FrozenSlots) > 0, "objects stay while their wanted state is unknown")
		})
	}
}

// plannedPool returns a plan, and the backends of its routes and its reasons as text.
func plannedPool(t *testing.T, config string, roles []isvc.Role, change func(in *Input)) (Plan, string) {
	t.Helper()
	if roles == nil {
		roles = []isvc.Role{isvc.Engine}
	}
	in := input(t, config, roles...)
	if change != nil {
		change(in)
	}
	got := build(t, in)
	var summary []string
	for _, e := range got.Exposures {
		summary = append(summary, cmp.Or(e.Backend.Pool, e.Backend.Name))
	}
	return got, strings.Join(append(summary, reasons(got)...), ",")
}

// A pool of the entry's pods is used for each kind of entry. A pool of other pods would bypass the router.
func TestPoolsThatExist(t *testing.T) {
	t.Parallel()
	both := []isvc.Role{isvc.Router, isvc.Engine}
	leaders := func(in *Input) {
		in.Services[0].Spec.Selector = labels{
			"ome.io/inferenceservice": "chat", "component": "engine", "ome.io/runner": "leader", "ome.io/pod-ordinal": "0",
		}
	}
	tests := []struct {
		name, config string
		roles        []isvc.Role
		change       func(in *Input)
		want         string
	}{
		{name: "of the engine", change: served(labels{"component": "engine", "ome.io/inferenceservice": "chat"}), want: "shared"},
		{name: "by labels that are not known", change: served(labels{"tier": "gold"}), want: "shared"},
		{name: "of other pods", change: served(labels{"app": "x"}), want: "shared,engine InferencePoolMismatch (warning)"},
		{
			name: "of another service", change: served(labels{"ome.io/inferenceservice": "code"}),
			want: "shared,engine InferencePoolMismatch (warning)",
		},
		{
			name: "of workers, too", change: then(served(labels{"component": "engine", "ome.io/inferenceservice": "chat"}), leaders),
			want: "shared,engine InferencePoolMismatch (warning)",
		},
		{name: "of leaders", change: then(served(labels{"component": "engine", "ome.io/runner": "leader"}), leaders), want: "shared"},
		{name: "missing", change: served(nil), want: "engine InferencePoolNotFound"},
		{name: "not served", want: "engine APIUnavailable"},
		{name: "by Ingress", config: example, change: served(labels{}), want: "engine InferencePoolUnsupported"},
		{
			name: "of the router", roles: both, change: served(labels{"component": "router", "ome.io/inferenceservice": "chat"}),
			want: "shared",
		},
		{name: "of the router, by OME's selector", roles: both, change: served(labels{"app": "chat-router"}), want: "shared"},
		{
			name: "of the router, and labels that are not known", roles: both,
			change: served(labels{"component": "router", "tier": "gold"}), want: "shared",
		},
		{
			name: "of the engine, with a router", roles: both, change: served(labels{"component": "engine"}),
			want: "chat-router,router InferencePoolUnsupported (warning)",
		},
		{
			name: "of both", roles: both, change: served(labels{"ome.io/inferenceservice": "chat"}),
			want: "chat-router,router InferencePoolUnsupported (warning)",
		},
		{
			name: "of other pods, with a router", roles: both, change: served(labels{"app": "x"}),
			want: "chat-router,router InferencePoolUnsupported (warning)",
		},
		{
			name: "by labels that are not known, with a router", roles: both, change: served(labels{"tier": "gold"}),
			want: "chat-router,router InferencePoolUnsupported (warning)",
		},
		{name: "of a router without an engine", roles: both[:1], change: served(labels{"component": "router"}), want: "shared"},
		{
			name: "whose picker is missing", change: then(served(labels{"component": "engine"}), func(in *Input) { in.Pickers = nil }),
			want: "engine EndpointPickerNotFound",
		},
		{
			name:   "whose picker has another port",
			change: then(served(labels{"component": "engine"}), func(in *Input) { in.Pickers["picker"] = picker(1) }),
			want:   "engine EndpointPickerNotFound",
		},
		{name: "whose picker is no Service", change: then(served(nil), func(in *Input) {
			in.Pools["shared"] = existing(labels{"component": "engine"},
				func(p *inferencev1.InferencePool) { p.Spec.EndpointPickerRef.Kind = "Other" })
			in.Pickers = nil
		}), want: "shared"},
		{name: "without a picker", change: then(served(nil), func(in *Input) {
			in.Pools["shared"] = existing(labels{"component": "engine"},
				func(p *inferencev1.InferencePool) { p.Spec.EndpointPickerRef = nil })
			in.Pickers = nil
		}), want: "shared"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, summary := plannedPool(t, cmp.Or(tt.config, byGateway)+pooled, tt.roles, tt.change)
			assert.Equal(t, tt.want, summary)
			assert.Nil(t, got.Pool)
		})
	}
}

func TestPickerOfEachService(t *testing.T) {
	t.Parallel()
	const config = byGateway + "inferencePool: {endpointPickerRef: {name: '{{ .Name }}-{{ .Labels.tier }}-epp', port: 9}}\n"
	in := input(t, config, isvc.Engine)
	in.Pools = map[string]*inferencev1.InferencePool{}
	in.Service.Labels = labels{"tier": "gold"}
	name, ok := PickerService(in)
	assert.True(t, ok)
	assert.Equal(t, "chat-gold-epp", name)
	in.Pickers = map[string]*corev1.Service{name: picker(9)}
	got := build(t, in)
	require.NotNil(t, got.Pool)
	assert.Equal(t, settings.EndpointPicker{Name: "chat-gold-epp", Port: 9, FailureMode: "FailClose"}, got.Pool.Picker)

	in.Pickers = nil
	assert.Equal(t,
		[]Reason{{
			Role: isvc.Engine, Reason: ReasonPickerNotFound,
			Message: "InferencePool chat-fairlead: Service chat-gold-epp of the endpoint picker does not exist: create it, or correct " +
				"endpointPickerRef",
		}},
		build(t, in).Reasons)

	for tier, want := range map[string]string{
		"":                      `inferencePool.endpointPickerRef.name: render template: `,
		"A":                     `inferencePool.endpointPickerRef.name: "chat-A-epp" is not the name of a Service: `,
		strings.Repeat("x", 60): `is not the name of a Service: `,
	} {
		in.Service.Labels = labels{"tier": tier}
		if tier == "" {
			in.Service.Labels = nil
		}
		_, ok = PickerService(in)
		assert.False(t, ok)
		got = build(t, in)
		require.Len(t, got.Reasons, 1)
		assert.Equal(t, ReasonInvalidConfiguration, got.Reasons[0].Reason)
		assert.Contains(t, got.Reasons[0].Message, want)
		assert.Equal(t, []Slot{Entry}, got.FrozenSlots)
	}
}

func TestPickerServiceToLookUp(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, config string
		change       func(in *Input)
		want         string
	}{
		{name: "no pool", change: served(labels{})},
		{name: "a pool that is created", config: namedPool, change: served(nil), want: "picker"},
		{name: "a pool that is created, without the kind", config: namedPool, want: "picker"},
		{name: "a pool that exists", config: pooled, change: served(labels{}), want: "picker"},
		{name: "a pool that does not", config: pooled, change: served(nil)},
		{
			name: "a pool with a picker of another kind", config: pooled,
			change: then(served(labels{}),
				func(in *Input) { in.Pools["shared"].Spec.EndpointPickerRef.Group = new(inferencev1.Group("x")) }),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, byGateway+tt.config, isvc.Engine)
			if tt.change != nil {
				tt.change(in)
			}
			got, ok := PickerService(in)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.want != "", ok)
		})
	}
}

func TestAPoolIsForTheEntryAlone(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway+"componentHosts: true\n"+pooled, isvc.Decoder, isvc.Engine)
	served(labels{"component": "engine"})(in)
	assert.Equal(t, []string{
		"chat.models.example.com/ -> shared:8080 by gateways/public",
		"chat-decoder.models.example.com/ -> chat-decoder:8080 by gateways/public",
	}, lines(build(t, in)))
}

// OME 1.3 also sends requests to the workers of a runtime: the warning explains how to prevent it.
func TestWorkersThatOMEsServiceSelects(t *testing.T) {
	t.Parallel()
	native := labels{"ome.io/inferenceservice": "chat", "component": "engine", "ome.io/managed-by": "OMENative"}
	of := func(config string) *Input {
		in := input(t, config, isvc.Engine)
		served(nil)(in)
		in.Services[0].Spec.Selector = native
		revision := in.Services[0].DeepCopy()
		revision.Name, revision.Labels["ome.io/revision-hash"] = "chat-engine-rev-a", "a"
		revision.Spec.Selector = labels{"ome.io/runner": "leader", "ome.io/pod-ordinal": "0", "ome.io/revision-hash": "a"}
		in.Services = append(in.Services, revision)
		return in
	}
	got := build(t, of(byGateway+"fallbackService: {enabled: true}\n"))
	assert.Equal(t, []string{"chat.models.example.com/ -> chat-engine:8080 by gateways/public"}, lines(got))
	assert.Equal(t, []Reason{{
		Role: isvc.Engine, Reason: ReasonWorkersSelected, Warning: true,
		Message: "OME's Service chat-engine also sends requests to worker pods: add leader: {} and worker: {} to spec.engine",
	}}, got.Reasons)
	leaders := labels{
		"ome.io/inferenceservice": "chat", "component": "engine", "ome.io/managed-by": "OMENative", "ome.io/runner": "leader",
		"ome.io/pod-ordinal": "0",
	}
	assert.Equal(t, leaders, got.Fallback.Selector)

	got = build(t, of(byGateway+namedPool))
	assert.Equal(t, leaders, got.Pool.Selector)
	assert.Empty(t, got.Reasons, "a pool selects only the leaders")
}

func TestFallback(t *testing.T) {
	t.Parallel()
	const fallback = "fallbackService: {enabled: true, type: LoadBalancer}\n"
	in := input(t, example+fallback, isvc.Router, isvc.Engine)
	in.Services[0].Spec.Ports[0].TargetPort = intstr.FromString("http1")
	got := build(t, in)
	require.NotNil(t, got.Fallback)
	assert.Equal(t, &Fallback{
		Name: "chat-external", Type: "LoadBalancer",
		Selector: labels{"app": "chat-router", "ome.io/inferenceservice": "chat", "component": "router"}, Port: 8080,
		TargetPort: backend.Port{Name: "http1"},
	}, got.Fallback)

	in.Service.Conditions = nil
	got = build(t, in)
	assert.NotNil(t, got.Fallback, "the fallback Service does not depend on readiness")
	assert.Empty(t, got.Exposures)

	in.Services = nil
	got = build(t, in)
	assert.Nil(t, got.Fallback)
	assert.Equal(t, []Slot{Entry}, got.FrozenSlots, "existing objects stay")
	assert.Equal(t, []string{"router ServiceNotFound"}, reasons(got), "the reason is not repeated")

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

func TestPoolAndFallbackNames(t *testing.T) {
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

// The name is longer than a label value, so no pod can have it as a label.
func TestANameTooLongToSelectBy(t *testing.T) {
	t.Parallel()
	in := input(t,
		byGateway+
			"domainTemplate: long.{{ .IngressDomain }}\ninferencePool: {endpointPickerRef: {name: picker}}\nfallbackService: {enabled: "+
			"true}\n",
		isvc.Engine)
	served(nil)(in)
	in.Service.Name = strings.Repeat("n", 64)
	in.Services[0].Name = backend.ServiceName(in.Service.Name, isvc.Engine)
	delete(in.Services[0].Labels, backend.LabelService)
	got := build(t, in)
	assert.Nil(t, got.Pool)
	assert.Nil(t, got.Fallback)
	assert.Equal(t, []string{"engine InferencePoolUnsupported", "engine InvalidConfiguration"}, reasons(got))

	in.Service.Name = strings.Repeat("n", 63)
	in.Services[0].Name = backend.ServiceName(in.Service.Name, isvc.Engine)
	got = build(t, in)
	assert.NotNil(t, got.Pool)
	assert.NotNil(t, got.Fallback)
	assert.Empty(t, got.Reasons)
}
