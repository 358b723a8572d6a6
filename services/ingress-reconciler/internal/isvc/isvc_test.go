package isvc

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// parse returns an object from YAML.
func parse(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(tb, err)
	require.NoError(tb, u.UnmarshalJSON(raw))
	return u
}

const head = "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {namespace: models, name: chat"

func number(n int64) *int64 { return &n }

func TestRead(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		mode       Mode
		want       map[Role]*Component
		reported   map[Role]bool
	}{
		{name: "nothing", give: head + "}}"},
		{
			name: "engine, decoder and router",
			give: head + "}, spec: {engine: {minReplicas: 2, timeoutSeconds: 90}, decoder: {leader: {}}, router: {minReplicas: 0}}}",
			want: map[Role]*Component{
				Engine: {MinReplicas: number(2), Timeout: 90 * time.Second}, Decoder: {Nodes: true}, Router: {MinReplicas: number(0)},
			},
		},
		{
			name: "predictor", give: head + "}, spec: {predictor: {timeoutSeconds: 5, model: {}}}}",
			want: map[Role]*Component{Engine: {Timeout: 5 * time.Second}},
		},
		{
			name: "engine before predictor", give: head + "}, spec: {predictor: {timeoutSeconds: 5}, engine: {worker: {}}}}",
			want: map[Role]*Component{Engine: {Nodes: true}},
		},
		{
			name: "modes",
			give: head +
				", annotations: {ome.io/deploymentMode: VirtualDeployment}}, spec: {engine: {annotations: {ome.io/deploymentMode: " +
				"MultiNodeRayVLLM}}}}",
			mode: VirtualDeployment, want: map[Role]*Component{Engine: {Mode: MultiNodeRayVLLM}},
		},
		{
			name: "mode as OME's documentation writes it", give: head + ", annotations: {ome.io/deployment-mode: MultiNode}}}",
			mode: MultiNode,
		},
		{
			name: "both spellings",
			give: head + ", annotations: {ome.io/deployment-mode: MultiNode, ome.io/deploymentMode: RawDeployment}}}", mode: RawDeployment,
		},
		{
			name: "mode by the specification",
			give: head + ", annotations: {ome.io/deploymentMode: MultiNode}}, spec: {deploymentMode: OMENative}}", mode: OMENative,
		},
		{
			name: "an unknown mode",
			give: head +
				", annotations: {ome.io/deploymentMode: PDDisaggregated}}, spec: {engine: {annotations: {ome.io/deploymentMode: \"\"}}}}",
			want: map[Role]*Component{Engine: {}},
		},
		{
			name: "timeouts that are none",
			give: head +
				"}, spec: {engine: {timeoutSeconds: 0}, router: {timeoutSeconds: -1}, decoder: {timeoutSeconds: 9223372036854775807}}}",
			want: map[Role]*Component{Engine: {}, Router: {}, Decoder: {}},
		},
		{
			name: "irrelevant fields",
			give: head + "}, spec: {engine: {runner: 7, annotations: {a: 1}}, model: [], runtime: 1.5}, status: {url: 7, address: []}}",
			want: map[Role]*Component{Engine: {}},
		},
		{
			name:     "lean, its components by the runtime",
			give:     head + "}, spec: {model: {name: llama}}, status: {components: {engine: {url: x}, router: {}, predictor: {}}}}",
			reported: map[Role]bool{Engine: true, Router: true},
		},
		{
			name: "replicas that the user created",
			give: head + "}, spec: {replicaRefs: {engine: [qwen-a, qwen-b], router: [front], decoder: []}}}",
			want: map[Role]*Component{Engine: {Mode: OMENative}, Router: {Mode: OMENative}},
		},
		{name: "replicas without an engine: OME ignores them", give: head + "}, spec: {replicaRefs: {router: [front]}}}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Read(parse(t, tt.give))
			require.NoError(t, err)
			if tt.want == nil {
				tt.want = map[Role]*Component{}
			}
			if tt.reported == nil {
				tt.reported = map[Role]bool{}
			}
			assert.Equal(t, tt.want, got.Components)
			assert.Equal(t, tt.reported, got.Reported)
			assert.Equal(t, tt.mode, got.Mode)
			assert.Equal(t, "chat", got.Name)
			assert.Equal(t, "models", got.Namespace)
		})
	}
}

func TestReadMetadataAndConditions(t *testing.T) {
	t.Parallel()
	got, err := Read(parse(t, `
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata:
  {namespace: models, name: chat, uid: u-1, generation: 7, creationTimestamp: "2026-11-01T10:00:00Z",
    deletionTimestamp: "2026-11-02T10:00:00Z", labels: {networking.knative.dev/visibility: cluster-local}, annotations: {a: b}}
status:
  conditions:
  - {type: EngineReady, status: "True", severity: Info, lastTransitionTime: "2026-11-01T10:00:01Z", reason: Up, message: it is}
  - {type: RouterReady, status: Unknown, observedGeneration: 3}
`))
	require.NoError(t, err)
	assert.EqualValues(t, "u-1", got.UID)
	assert.True(t, got.Created.Equal(time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)))
	assert.True(t, got.Deleting)
	assert.True(t, got.ClusterLocal())
	assert.Equal(t, map[string]string{"a": "b"}, got.Annotations)
	assert.Equal(t, []Condition{
		{
			Type: "EngineReady", Status: metav1.ConditionTrue, Severity: "Info", LastTransitionTime: "2026-11-01T10:00:01Z", Reason: "Up",
			Message: "it is",
		},
		{Type: "RouterReady", Status: metav1.ConditionUnknown},
	}, got.Conditions)
	assert.True(t, got.IsReady(Engine))
	assert.False(t, got.IsReady(Router))
	assert.False(t, got.IsReady(Decoder))
}

// The cases are from OME 1.3: builders/readiness.go, componentCanBackRoute.
func TestReadyBeforeAllInstancesAre(t *testing.T) {
	t.Parallel()
	const (
		target = "scaleTargetRef: {apiVersion: ome.io/v1beta1, kind: InferenceReplica, name: chat-engine}"
		counts = "lifecycle: {replicas: 3, readyReplicas: 1, servingReplicas: 1}"
	)
	tests := []struct {
		name, condition, component, spec string
		want                             bool
	}{
		{name: "ready", condition: "True", want: true},
		{name: "ready, none counted", condition: "True", component: target + ", lifecycle: {replicas: 1}", want: true},
		{name: "not ready, and an instance serves", condition: "False", component: target + ", " + counts, want: true},
		{name: "unknown, and an instance serves", condition: "Unknown", component: target + ", " + counts},
		{name: "no condition, and an instance serves", component: target + ", " + counts},
		{name: "not ready, as release 1.2 reports it", condition: "False", component: "url: http://x"},
		{name: "ready but not serving", condition: "False", component: target + ", lifecycle: {readyReplicas: 1, servingReplicas: 0}"},
		{name: "serving but not ready", condition: "False", component: target + ", lifecycle: {servingReplicas: 1}"},
		{name: "no target: OME has withdrawn the replica", condition: "False", component: counts},
		{
			name: "a Deployment", condition: "False",
			component: "scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat-engine}, " + counts,
		},
		{
			name: "another replica", condition: "False",
			component: "scaleTargetRef: {apiVersion: ome.io/v1beta1, kind: InferenceReplica, name: other}, " + counts,
		},
		{
			name: "a replica that the user created", condition: "False", spec: "replicaRefs: {engine: [qwen]}", want: true,
			component: "scaleTargetRef: {apiVersion: ome.io/v1beta1, kind: InferenceReplica, name: qwen}, " + counts,
		},
		{
			name: "the service's own, though it refers to another", condition: "False", spec: "replicaRefs: {engine: [qwen]}",
			component: target + ", " + counts,
		},
		{name: "counts of another form", condition: "False", component: target + ", lifecycle: [1]"},
		{name: "counts of another type", condition: "False", component: target + ", lifecycle: {readyReplicas: x, servingReplicas: 1.5}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			conditions := ""
			if tt.condition != "" {
				conditions = "{type: EngineReady, status: \"" + tt.condition + "\"}"
			}
			got, err := Read(parse(t,
				head+"}, spec: {"+tt.spec+"}, status: {conditions: ["+conditions+"], components: {engine: {"+tt.component+"}}}}"))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got.IsReady(Engine))
			assert.False(t, got.IsReady(Router))
			assert.Equal(t, strings.Contains(tt.component, "scaleTargetRef"), got.RuntimeComponents, "only release 1.3 reports a target")
		})
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{"spec", head + "}, spec: []}", "spec is a list, want an object"},
		{"component", head + "}, spec: {engine: yes}}", "spec.engine is true, want an object"},
		{"replicas", head + `}, spec: {router: {minReplicas: "1"}}}`, `spec.router.minReplicas is "1", want an integer`},
		{"part of a replica", head + `}, spec: {router: {minReplicas: 1.5}}}`, `spec.router.minReplicas is 1.5, want an integer`},
		{"mode", head + "}, spec: {deploymentMode: 1}}", "spec.deploymentMode is 1, want a string"},
		{"annotations", head + "}, spec: {engine: {annotations: []}}}", "spec.engine.annotations is a list, want an object"},
		{"status", head + "}, status: 1}", "status is 1, want an object"},
		{"conditions", head + "}, status: {conditions: {}}}", "status.conditions is an object, want a list"},
		{"condition", head + "}, status: {conditions: [x]}}", `status.conditions[0] is "x", want an object`},
		{
			"condition's reason", head + "}, status: {conditions: [{type: Ready, reason: {}}]}}",
			"status.conditions[0].reason is an object, want a string",
		},
		{"replicas", head + "}, spec: {replicaRefs: []}}", "spec.replicaRefs is a list, want an object"},
		{"replicas of a role", head + "}, spec: {replicaRefs: {engine: qwen}}}", `spec.replicaRefs.engine is "qwen", want a list`},
		{"name of a replica", head + "}, spec: {replicaRefs: {engine: [1]}}}", "spec.replicaRefs.engine[0] is 1, want a string"},
		{"two at once", head + "}, spec: {engine: 1, router: 2}}", "spec.router is 2, want an object; spec.engine is 1, want an object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(parse(t, tt.give))
			assert.EqualError(t, err, "read InferenceService: "+tt.want)
		})
	}
}

func TestComponentMode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give Service
		role Role
		in   ModeContext
		want Mode
	}{
		{name: "no mode", role: Engine, want: RawDeployment},
		{name: "leader", give: Service{Components: map[Role]*Component{Engine: {Nodes: true}}}, role: Engine, want: MultiNode},
		{
			name: "no replicas, no Knative", give: Service{Components: map[Role]*Component{Engine: {MinReplicas: number(0)}}},
			role: Engine, want: RawDeployment,
		},
		{
			name: "no replicas, and Knative", give: Service{Components: map[Role]*Component{Engine: {MinReplicas: number(0)}}},
			role: Engine, in: ModeContext{Knative: true}, want: Serverless,
		},
		{
			name: "replicas, and a Knative Service that is left over",
			give: Service{Components: map[Role]*Component{Engine: {MinReplicas: number(1)}}}, role: Engine, in: ModeContext{Knative: true},
			want: RawDeployment,
		},
		{
			name: "no replicas, Knative, though annotated",
			give: Service{Components: map[Role]*Component{Engine: {MinReplicas: number(0), Mode: RawDeployment}}}, role: Engine,
			in: ModeContext{Knative: true}, want: Serverless,
		},
		{
			name: "annotated, and Knative", give: Service{Components: map[Role]*Component{Engine: {Mode: Serverless}}}, role: Engine,
			in: ModeContext{Knative: true}, want: Serverless,
		},
		{
			name: "annotated, no Knative", give: Service{Components: map[Role]*Component{Engine: {Mode: Serverless, Nodes: true}}},
			role: Engine, want: MultiNode,
		},
		{
			name: "engine with a decoder", give: Service{Components: map[Role]*Component{Engine: {MinReplicas: number(0)}}}, role: Engine,
			in: ModeContext{Knative: true, Decoder: true}, want: RawDeployment,
		},
		{
			name: "router before a decoder", give: Service{Components: map[Role]*Component{Router: {MinReplicas: number(0)}}}, role: Router,
			in: ModeContext{Knative: true, Decoder: true}, want: Serverless,
		},
		{
			name: "the component's before the whole's",
			give: Service{Mode: OMENative, Components: map[Role]*Component{Engine: {Mode: MultiNode}}}, role: Engine, want: MultiNode,
		},
		{
			name: "the whole's", give: Service{Mode: OMENative, Components: map[Role]*Component{Engine: {Nodes: true}}}, role: Engine,
			want: OMENative,
		},
		{name: "the whole's, of a component by the runtime", give: Service{Mode: OMENative}, role: Router, want: OMENative},
		{
			name: "virtual", give: Service{Mode: VirtualDeployment, Components: map[Role]*Component{Engine: {Mode: MultiNode}}},
			role: Engine, in: ModeContext{Knative: true}, want: VirtualDeployment,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, tt.give.ComponentMode(tt.role, tt.in))
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"ome.io/v1beta1","kind":"InferenceService","metadata":{"name":"a"},"spec":{"engine":{"minReplicas":1,` +
		`"leader":{}}},"status":{"conditions":[{}]}}`))
	f.Add([]byte(`{"kind":"InferenceService","spec":null,"status":{"components":[],"conditions":{}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON(data) != nil {
			return
		}
		s, err := Read(u)
		if err != nil {
			assert.Nil(t, s)
			return
		}
		for _, r := range Roles {
			assert.NotEmpty(t, s.ComponentMode(r, ModeContext{Knative: true}))
			_ = s.IsReady(r)
		}
	})
}
