package ome

import (
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// parse decodes an InferenceService in YAML's flow style with the fields that a release has.
func parse(tb testing.TB, r Release, metadata, spec string) *inferenceService {
	tb.Helper()
	raw, err := yaml.YAMLToJSON([]byte("{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {namespace: models, name: chat" + metadata + "}, spec: {" + spec + "}}"))
	require.NoError(tb, err)
	u := &unstructured.Unstructured{}
	require.NoError(tb, u.UnmarshalJSON(raw))
	s, err := decode(u, r)
	require.NoError(tb, err)
	return s
}

func TestComponents(t *testing.T) {
	t.Parallel()
	type modes map[Role]mode
	const runtime = `, annotations: {emulator.fairlead.dev/runtime: "router, engine"}`
	const workers = `, annotations: {emulator.fairlead.dev/runtime-workers: "engine=2,router=1"}`
	tests := []struct {
		name, metadata, spec string
		release              Release
		option               []Role
		want                 modes
		wantErr              error
	}{
		{name: "one", release: Release12, spec: "engine: {}", want: modes{Engine: modeRaw}},
		{name: "all", release: Release12, spec: "engine: {}, decoder: {}, router: {}", want: modes{Engine: modeRaw, Decoder: modeRaw, Router: modeRaw}},
		{name: "predictor", release: Release12, spec: "predictor: {model: {name: m}}", want: modes{Engine: modeRaw}},
		{name: "no engine", release: Release12, spec: "router: {}", wantErr: errNoEngine},
		{name: "the runtime's in 1.2", metadata: runtime, release: Release12, wantErr: errNoEngine},
		{name: "nodes", release: Release12, spec: "engine: {leader: {}}, decoder: {worker: {}}, router: {leader: {}}", want: modes{Engine: modeMultiNode, Decoder: modeMultiNode, Router: modeRaw}},
		{name: "annotated", release: Release12, spec: "engine: {leader: {}, annotations: {ome.io/deploymentMode: MultiNodeRayVLLM}}", want: modes{Engine: modeRay}},
		{name: "invalid annotation", release: Release12, spec: "engine: {annotations: {ome.io/deploymentMode: PDDisaggregated}}", want: modes{Engine: modeRaw}},
		{name: "no replicas", release: Release12, spec: "engine: {minReplicas: 0}", want: modes{Engine: modeServerless}},
		{name: "no replicas of a router", release: Release12, spec: "engine: {}, router: {minReplicas: 0}", want: modes{Engine: modeRaw, Router: modeServerless}},
		{name: "no replicas beside a decoder", release: Release12, spec: "engine: {minReplicas: 0}, decoder: {minReplicas: 0}", want: modes{Engine: modeRaw, Decoder: modeRaw}},
		{name: "a mode of 1.3 in 1.2", release: Release12, spec: "deploymentMode: OMENative, engine: {}", want: modes{Engine: modeRaw}},

		{name: "the runtime's", metadata: runtime, release: Release13, want: modes{Engine: modeRaw, Router: modeRaw}},
		{name: "every runtime's", release: Release13, option: []Role{Engine, Decoder}, want: modes{Engine: modeRaw, Decoder: modeRaw}},
		{name: "this runtime's", metadata: runtime, release: Release13, option: []Role{Engine, Decoder}, want: modes{Engine: modeRaw, Router: modeRaw}},
		{name: "the runtime's and its own", metadata: runtime, release: Release13, spec: "engine: {leader: {}}", want: modes{Engine: modeNative, Router: modeRaw}},
		{name: "no replicas, no Knative", release: Release13, spec: "engine: {minReplicas: 0}", want: modes{Engine: modeRaw}},
		{name: "native", release: Release13, spec: "deploymentMode: OMENative, engine: {}, router: {}", want: modes{Engine: modeNative, Router: modeNative}},
		{name: "raw, on nodes", release: Release13, spec: "deploymentMode: RawDeployment, engine: {worker: {}}", want: modes{Engine: modeRaw}},
		{name: "raw, on nodes of one component", release: Release13, spec: "deploymentMode: RawDeployment, engine: {worker: {}, annotations: {ome.io/deploymentMode: OMENative}}", want: modes{Engine: modeNative}},
		{name: "invalid mode for all", release: Release13, spec: "deploymentMode: MultiNode, engine: {}", want: modes{Engine: modeRaw}},
		{name: "native by annotation", release: Release13, spec: "engine: {annotations: {ome.io/deploymentMode: OMENative}}", want: modes{Engine: modeNative}},
		{name: "nodes by annotation", release: Release13, spec: "engine: {annotations: {ome.io/deploymentMode: MultiNode}, leader: {}}", want: modes{Engine: modeMultiNode}},
		{name: "nodes of a router by annotation", release: Release13, spec: "engine: {}, router: {annotations: {ome.io/deploymentMode: MultiNode}}", wantErr: errMode},
		{name: "virtual by a component's annotation", release: Release13, spec: "engine: {annotations: {ome.io/deploymentMode: VirtualDeployment}}", wantErr: errMode},
		{name: "a router on nodes", release: Release13, spec: "engine: {}, router: {leader: {}}", want: modes{Engine: modeRaw, Router: modeRaw}},
		{name: "the runtime's workers", metadata: workers, release: Release13, spec: "engine: {}, decoder: {}", want: modes{Engine: modeNative, Decoder: modeRaw}},
		{name: "the runtime's workers in 1.2", metadata: workers, release: Release12, spec: "engine: {}", want: modes{Engine: modeRaw}},
		{name: "replicas of a user", release: Release13, spec: "replicaRefs: {engine: [a], router: [b]}", want: modes{Engine: modeNative, Router: modeNative}},
		{name: "replicas of a user in 1.2", release: Release12, spec: "replicaRefs: {engine: [a]}", wantErr: errNoEngine},
		{name: "replicas of a user without an engine", release: Release13, spec: "replicaRefs: {router: [b]}, engine: {}", want: modes{Engine: modeRaw}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			list, err := components(parse(t, tt.release, tt.metadata, tt.spec), &Options{Release: tt.release, Runtime: tt.option})
			require.ErrorIs(t, err, tt.wantErr)
			var got modes
			for _, c := range list {
				if got == nil {
					got = modes{}
				}
				got[c.role] = c.mode
				assert.Equal(t, "chat-"+string(c.role), c.name)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	type ports map[string]int32
	tests := []struct {
		name, spec, metadata string
		release              Release
		want                 ports
	}{
		{name: "of the runtime", spec: "engine: {}", metadata: ", annotations: {emulator.fairlead.dev/runtime-ports: 'engine=grpc1:8080, engine=metrics:9090, router=http:1, wrong'}", want: ports{"grpc1": 8080, "metrics": 9090}},
		{
			name: "of the specification before the runtime's", spec: "engine: {runner: {name: a, ports: [{containerPort: 1, name: x}]}}",
			metadata: ", annotations: {emulator.fairlead.dev/runtime-ports: engine=grpc1:8080}", want: ports{"x": 1},
		},
		{name: "empty", spec: "engine: {}", want: ports{"ome-container": 8080}},
		{name: "runner without ports", spec: "engine: {runner: {name: sglang}}", want: ports{"sglang": 8080}},
		{name: "runner before containers", spec: "engine: {runner: {name: a, ports: [{containerPort: 1, name: x}]}, containers: [{name: b, ports: [{containerPort: 2}]}]}", want: ports{"x": 1}},
		{name: "first container", spec: "engine: {containers: [{name: a, ports: [{containerPort: 1}, {containerPort: 3, name: m}]}, {name: b, ports: [{containerPort: 2}]}]}", want: ports{"": 1, "m": 3}},
		{name: "leader", spec: "engine: {leader: {runner: {name: a, ports: [{containerPort: 5, name: l}]}}, worker: {runner: {name: b, ports: [{containerPort: 6}]}}}", want: ports{"l": 5}},
		{name: "leader beside a container", release: Release13, spec: "engine: {leader: {runner: {name: a, ports: [{containerPort: 5, name: l}]}}, runner: {name: c, ports: [{containerPort: 7}]}}", want: ports{"l": 5}},
		{name: "raw, beside a leader", release: Release13, spec: "deploymentMode: RawDeployment, engine: {leader: {runner: {name: a, ports: [{containerPort: 5, name: l}]}}, runner: {name: c, ports: [{containerPort: 7, name: r}]}}", want: ports{"r": 7}},
		{name: "Ray", spec: "engine: {annotations: {ome.io/deploymentMode: MultiNodeRayVLLM}}", want: ports{"chat-engine": 8080, "dashboard": 8265, "metrics": 8000, "redis": 6379}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			release := cmp.Or(tt.release, Release12)
			list, err := components(parse(t, release, tt.metadata, tt.spec), &Options{Release: release})
			require.NoError(t, err)
			got := ports{}
			for _, p := range list[0].ports() {
				got[p.Name] = p.Port
				assert.EqualValues(t, p.Port, p.TargetPort.IntValue())
				assert.Equal(t, corev1.ProtocolTCP, p.Protocol)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestTruncate(t *testing.T) {
	t.Parallel()
	fits := strings.Repeat("a", 56) + "-engine"
	assert.Equal(t, fits, truncate(fits))
	tests := []struct{ name, give, want string }{
		{"one too long", strings.Repeat("a", 57) + "-engine", "f1fbf2e0-" + strings.Repeat("a", 47) + "-engine"},
		{"a hash that begins with a digit", strings.Repeat("c", 57) + "-engine", "a8ff3263-" + strings.Repeat("c", 47) + "-engine"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := truncate(tt.give)
			assert.Equal(t, tt.want, got)
			assert.Len(t, got, 63)
		})
	}
}

func TestServiceType(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give string
		want corev1.ServiceType
	}{
		{"", corev1.ServiceTypeClusterIP}, {"LoadBalancer", corev1.ServiceTypeLoadBalancer}, {"NodePort", corev1.ServiceTypeNodePort},
		{"loadbalancer", corev1.ServiceTypeClusterIP}, {"ExternalName", corev1.ServiceTypeClusterIP},
	}
	for _, tt := range tests {
		t.Run(tt.give, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, serviceType(map[string]string{annotationServiceType: tt.give}))
		})
	}
}

func TestLoadBalancers(t *testing.T) {
	t.Parallel()
	s := parse(t, Release12, `, annotations: {ome.io/service-type: LoadBalancer, ome.io/load-balancer-ip: 192.0.2.1, service.kubernetes.io/: bare, cloud.google.com/x: "1", oci.oraclecloud.com/y: "2"}`,
		"predictor: {model: {name: m}}")
	list, err := components(s, &Options{Release: Release12})
	require.NoError(t, err)
	assert.Equal(t, "192.0.2.1", buildService(s, &list[0]).Spec.LoadBalancerIP)
	external := buildExternal(s, &list[0])
	assert.Equal(t, corev1.ServiceTypeLoadBalancer, external.Spec.Type)
	assert.Empty(t, external.Spec.LoadBalancerIP)
	assert.Equal(t, map[string]string{"cloud.google.com/x": "1"}, external.Annotations)
	assert.Equal(t, map[string]string{LabelService: "chat"}, external.Spec.Selector, "the pods of a predictor have no component label")
}

func TestIngressRules(t *testing.T) {
	t.Parallel()
	type pair struct{ host, backend string }
	tests := []struct {
		name, spec string
		gate       Role
		address    map[Release]string
		want       []pair
	}{
		{
			name: "engine", spec: "engine: {}", gate: Engine, address: map[Release]string{Release12: "chat", Release13: "chat-engine"},
			want: []pair{{"chat.models.example.com", "chat-engine"}},
		},
		{
			name: "decoder", spec: "engine: {}, decoder: {}", gate: Decoder, address: map[Release]string{Release12: "chat", Release13: "chat-engine"},
			want: []pair{{"chat.models.example.com", "chat-engine"}, {"chat-engine.models.example.com", "chat-engine"}, {"chat-decoder.models.example.com", "chat-decoder"}},
		},
		{
			name: "router", spec: "engine: {}, router: {}", gate: Router, address: map[Release]string{Release12: "chat-router", Release13: "chat-router"},
			want: []pair{{"chat.models.example.com", "chat-router"}, {"chat-router.models.example.com", "chat-router"}, {"chat-engine.models.example.com", "chat-engine"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, Release12, "", tt.spec)
			list, err := components(s, &Options{Release: Release12})
			require.NoError(t, err)
			c := configuration{}
			c.complete()
			rules, err := rulesOf(s, list, c)
			require.NoError(t, err)
			got := make([]pair, 0, len(rules))
			for _, r := range rules {
				got = append(got, pair{r.host, r.backend.name})
			}
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.gate, gate(list))
			for release, want := range tt.address {
				r := reconciler{options: Options{Release: release}}
				assert.Equal(t, want, r.addressed(s, list))
			}
		})
	}
}

func TestIngressPortByRelease(t *testing.T) {
	t.Parallel()
	s := parse(t, Release12, "", "engine: {runner: {name: e, ports: [{containerPort: 30000}]}}")
	list, err := components(s, &Options{Release: Release12})
	require.NoError(t, err)
	for release, want := range map[Release]int32{Release12: 8080, Release13: 30000} {
		ingress := buildIngress(s, configuration{}, release, []rule{{"h", &list[0]}})
		assert.Equal(t, want, ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Port.Number, release)
	}
}

func TestParseRoles(t *testing.T) {
	t.Parallel()
	got, err := parseRoles(" router,engine,")
	require.NoError(t, err)
	assert.Equal(t, []Role{Router, Engine}, got)
	got, err = parseRoles("engine,predictor")
	require.EqualError(t, err, `"predictor" is not one of engine,decoder,router`)
	assert.Equal(t, []Role{Engine}, got)
}
