package sources_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// parse returns the objects of a YAML list. Objects without a namespace are in "models", if their kind has namespaces, and are created in
// the order of the list, a second apart.
func parse(tb testing.TB, manifests string) []*unstructured.Unstructured {
	tb.Helper()
	var list []map[string]any
	require.NoError(tb, yaml.Unmarshal([]byte(manifests), &list))
	all := make([]*unstructured.Unstructured, 0, len(list))
	for i, m := range list {
		u := &unstructured.Unstructured{Object: m}
		complete(u, i)
		all = append(all, normalize(tb, u))
	}
	return all
}

// normalize gives the fields of an object the types that the API has: whole numbers are int64.
func normalize(tb testing.TB, u *unstructured.Unstructured) *unstructured.Unstructured {
	tb.Helper()
	text, err := json.Marshal(u.Object)
	require.NoError(tb, err)
	built := &unstructured.Unstructured{}
	require.NoError(tb, built.UnmarshalJSON(text))
	return built
}

func complete(u *unstructured.Unstructured, i int) {
	if u.GetNamespace() == "" && u.GetKind() != "Namespace" {
		u.SetNamespace("models")
	}
	if at := u.GetCreationTimestamp(); at.IsZero() {
		_ = unstructured.SetNestedField(u.Object, created(i).Format(time.RFC3339), "metadata", "creationTimestamp")
	}
}

func created(i int) time.Time {
	return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Second)
}

// collect returns the variants of objects, and asserts that they are the same each time, though caches have no order.
// perNamespace is the usual number of variants that a namespace may have.
func perNamespace(string) int { return settings.DefaultMaxVariants }

func collect(tb testing.TB, p sources.Params, objects ...*unstructured.Unstructured) *sources.Result {
	tb.Helper()
	return collectServed(tb, p, nil, objects...)
}

func collectServed(tb testing.TB, p sources.Params, served func(schema.GroupVersionResource) bool, objects ...*unstructured.Unstructured) *sources.Result {
	tb.Helper()
	world, err := informers.Declare("").Read(kit.Snapshot{Objects: objects, Served: served})
	require.NoError(tb, err)
	if p.PerNamespace == nil {
		p.PerNamespace = perNamespace
	}
	result, err := sources.Collect(world, p)
	require.NoError(tb, err)
	for range 3 { // caches return objects in random order
		again, err := sources.Collect(world, p)
		require.NoError(tb, err)
		require.Equal(tb, result, again)
	}
	return result
}

// describe returns a line for each variant: namespace/pool/model name source min..max cost×cards, and its problems and notes.
func describe(r *sources.Result) []string {
	var lines []string
	for _, g := range r.Groups {
		for i := range g.Variants {
			v := &g.Variants[i]
			lines = append(lines, fmt.Sprintf("%s/%s/%s %s %d..%d %d %s%s", g.Namespace, g.Pool, g.Model, name(v), v.Min, v.Max, v.Cost, v.CostSource, remarks(v)))
		}
	}
	for i := range r.Rejected {
		lines = append(lines, "rejected "+name(&r.Rejected[i])+remarks(&r.Rejected[i]))
	}
	return lines
}

func name(v *sources.Variant) string {
	return map[snapshot.Source]string{
		snapshot.VariantAutoscaling: "va", snapshot.HorizontalPodAutoscaler: "hpa", snapshot.ScaledObject: "so",
	}[v.Source] + "/" + v.Name
}

func remarks(v *sources.Variant) string {
	var text strings.Builder
	if v.Problem != nil {
		text.WriteString(" " + v.Problem.Reason)
	}
	for _, n := range v.Notes {
		text.WriteString(" note:" + n.Reason)
	}
	return text.String()
}

// deployments of the tests. Each has a pod template with one label and two cards.
func deployments(names ...string) string {
	var text strings.Builder
	for _, n := range names {
		fmt.Fprintf(&text, `
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s, creationTimestamp: "2026-10-01T00:00:00Z"}, spec: {replicas: 3, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: server, resources: {limits: {nvidia.com/gpu: "2"}}}]}}}, status: {readyReplicas: 2}}`, n)
	}
	return text.String()
}

const (
	hpa = `
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: %[1]s, annotations: {llm-d.ai/managed: "true", llm-d.ai/model-id: m}}
  spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[2]s}}`
	scaledObject = `
- apiVersion: keda.sh/v1alpha1
  kind: ScaledObject
  metadata: {name: %[1]s, annotations: {llm-d.ai/managed: "true", llm-d.ai/model-id: m}}
  spec: {scaleTargetRef: {name: %[2]s}}`
	va = `
- apiVersion: llmd.ai/v1alpha1
  kind: VariantAutoscaling
  metadata: {name: %[1]s}
  spec: {modelID: m, scaleTargetRef: {kind: Deployment, name: %[2]s}}`
)

// object returns a manifest with a name and a target, to which it sets fields: pairs of a path and a YAML
// value. The keys of a path are separated by |, and ~1 stands for /.
func object(tb testing.TB, manifest, name, target string, set ...string) *unstructured.Unstructured {
	tb.Helper()
	u := parse(tb, fmt.Sprintf(manifest, name, target))[0]
	for i := 0; i < len(set); i += 2 {
		var value any
		require.NoError(tb, yaml.Unmarshal([]byte(set[i+1]), &value))
		path := strings.Split(strings.ReplaceAll(set[i], "~1", "/"), "|")
		if value == nil {
			unstructured.RemoveNestedField(u.Object, path...)
			continue
		}
		require.NoError(tb, unstructured.SetNestedField(u.Object, value, path...))
	}
	return normalize(tb, u)
}

// seedShape has all fields of a VariantAutoscaling with a profile.
const seedShape = `
- apiVersion: llmd.ai/v1alpha1
  kind: VariantAutoscaling
  metadata: {name: %[1]s, uid: 5a0c1c3e, generation: 7, resourceVersion: "42"}
  spec:
    scaleTargetRef: {kind: Deployment, name: %[2]s}
    modelID: meta/llama-3.1-8b
    variantID: meta/llama-3.1-8b-A100-1
    accelerator: A100
    acceleratorCount: 1
    sloClassRef: {name: service-classes-config, key: premium.yaml}
    variantProfile: {perfParms: {decodeParms: {alpha: "20.58", beta: "0.41"}, prefillParms: {gamma: "5.2", delta: "0.1"}}, maxBatchSize: 4}
    variantCost: "10.5"
  status: {desiredOptimizedAlloc: {numReplicas: 2}}`

func TestVariantWithAll(t *testing.T) {
	t.Parallel()
	objects := append(parse(t, deployments("chat")+`
- {apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: pool}, spec: {selector: {matchLabels: {app: chat}}}}
- {apiVersion: v1, kind: Pod, metadata: {name: chat-7d-b, labels: {pod-template-hash: 7d}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: chat-7d, controller: true}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: chat-7d-a, labels: {pod-template-hash: 7d}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: chat-7d, controller: true}]}, status: {conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:01:40Z"}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: other-7d-a, labels: {pod-template-hash: 7d}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: other-7d, controller: true}]}}
`), object(t, seedShape, "llama-8b-a100", "chat"))
	got := collect(t, sources.Params{}, objects...)
	require.Len(t, got.Groups, 1)
	assert.Empty(t, got.Rejected)
	g := got.Groups[0]
	class := informers.ClassRef{Name: "service-classes-config", Key: "premium.yaml"}
	assert.Equal(t, snapshot.GroupKey{Namespace: "models", Pool: "pool", Model: "meta/llama-3.1-8b"}, g.GroupKey)
	assert.Equal(t, class, g.Class)
	require.Len(t, g.Variants, 1)
	v := g.Variants[0]
	assert.Equal(t, snapshot.Variant{
		Namespace: "models", Name: "llama-8b-a100", Source: snapshot.VariantAutoscaling, Target: snapshot.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "chat"},
		Accelerator: "A100", Cards: 1, Cost: 10_500_000, CostSource: "variantCost", Now: 3, Ready: 2,
		Profile: &snapshot.Profile{Alpha: 20.58, Beta: 0.41, Gamma: 5.2, Delta: 0.1, MaxBatch: 4},
	}, v.Variant)
	assert.Equal(t, corev1.ObjectReference{
		APIVersion: "llmd.ai/v1alpha1", Kind: "VariantAutoscaling", Namespace: "models", Name: "llama-8b-a100", UID: "5a0c1c3e", ResourceVersion: "42",
	}, v.Object)
	assert.Equal(t, int64(7), v.Generation)
	assert.Equal(t, class, v.Class)
	assert.JSONEq(t, `{"desiredOptimizedAlloc": {"numReplicas": 2}}`, string(v.Status))
	require.Len(t, v.Pods, 2)
	assert.Equal(t, []string{"chat-7d-a", "chat-7d-b"}, []string{v.Pods[0].Name, v.Pods[1].Name})
	assert.Equal(t, time.Date(2026, 1, 1, 0, 1, 40, 0, time.UTC), v.Pods[0].Ready.UTC())
	assert.Zero(t, v.Pods[1].Ready)
	assert.True(t, created(3).Equal(v.Pods[0].Created))
}

func TestSourcesOfVariants(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		objects []*unstructured.Unstructured
		want    []string
	}{
		{"annotated HorizontalPodAutoscaler", list(object(t, hpa, "a", "x")), list("models//m hpa/a 1..4 10000000 variantCost")},
		{"its minimum and cost", list(object(t, hpa, "a", "x", "spec|minReplicas", "0", "metadata|annotations|llm-d.ai~1variant-cost", `"2.5"`)),
			list("models//m hpa/a 0..4 2500000 variantCost")},
		{"not annotated", list(object(t, hpa, "a", "x", "metadata|annotations", "{llm-d.ai/model-id: m}")), nil},
		{"annotated with another value", list(object(t, hpa, "a", "x", "metadata|annotations|llm-d.ai~1managed", `"false"`)), nil},
		{"annotated ScaledObject", list(object(t, scaledObject, "a", "x")), list("models//m so/a 0..100 10000000 variantCost")},
		{"its bounds", list(object(t, scaledObject, "a", "x", "spec|minReplicaCount", "2", "spec|maxReplicaCount", "5")), list("models//m so/a 2..5 10000000 variantCost")},
		{"its idle replicas", list(object(t, scaledObject, "a", "x", "spec|minReplicaCount", "2", "spec|idleReplicaCount", "0")),
			list("models//m so/a 0..100 10000000 variantCost note:IdleReplicas")},
		{"VariantAutoscaling of the released shape", list(object(t, va, "a", "x", "spec|variantCost", `"10.0"`, "spec|maxReplicas", "2")),
			list("models//m va/a 1..2 10000000 variantCost")},
		{"VariantAutoscaling with bounds", list(object(t, va, "a", "x", "spec|minReplicas", "0", "spec|maxReplicas", "10")), list("models//m va/a 0..10 10000000 default")},
		{"VariantAutoscaling of the seed's shape", list(object(t, seedShape, "a", "x")), list("models//meta/llama-3.1-8b va/a 0..0 10500000 variantCost")},
		{"half of the seed's shape", list(object(t, seedShape, "a", "x", "spec|sloClassRef", "null")), list("models//meta/llama-3.1-8b va/a 1..0 10500000 variantCost")},
		{"KEDA's HorizontalPodAutoscaler, by its owner",
			list(object(t, hpa, "a", "x", "metadata|ownerReferences", "[{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, name: a}]")), nil},
		{"KEDA's, by a label", list(object(t, hpa, "a", "x", "metadata|labels", "{app.kubernetes.io/managed-by: keda-operator}")), nil},
		{"KEDA's, by another label", list(object(t, hpa, "a", "x", "metadata|labels", "{scaledobject.keda.sh/name: a}")), nil},
		{"excluded", list(object(t, va, "a", "x", "metadata|annotations", `{wva.llmd.ai/exclude: "true"}`)), nil},
		{"not excluded", list(object(t, va, "a", "x", "metadata|annotations", `{wva.llmd.ai/exclude: "false"}`)), list("models//m va/a 1..0 10000000 default")},
		{"excluded HorizontalPodAutoscaler", list(object(t, hpa, "a", "x", "metadata|annotations|wva.llmd.ai~1exclude", `"true"`)), nil},
		{"namespace excluded", append(parse(t, `[{apiVersion: v1, kind: Namespace, metadata: {name: models, annotations: {wva.llmd.ai/exclude: "true"}}}]`), object(t, va, "a", "x")), nil},
		{"namespace not excluded", append(parse(t, `[{apiVersion: v1, kind: Namespace, metadata: {name: models}}]`), object(t, va, "a", "x")),
			list("models//m va/a 1..0 10000000 default")},
		{"other installation", list(object(t, va, "a", "x", "metadata|labels", `{wva.llmd.ai/controller-instance: other}`)), nil},
		{"being deleted", list(object(t, va, "a", "x", "metadata|deletionTimestamp", `"2026-11-01T12:00:00Z"`)), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := collect(t, sources.Params{}, append(parse(t, deployments("x")), tt.objects...)...)
			assert.Equal(t, tt.want, describe(got))
		})
	}
}

func list[T any](items ...T) []T { return items }

func TestInstance(t *testing.T) {
	t.Parallel()
	objects := append(parse(t, deployments("x", "w")), object(t, hpa, "a", "x"), object(t, hpa, "b", "w", "metadata|labels", `{wva.llmd.ai/controller-instance: blue}`))
	for instance, want := range map[string]string{"": "a", "blue": "b"} {
		world, err := informers.Declare(instance).Read(kit.Snapshot{Objects: objects})
		require.NoError(t, err)
		got, err := sources.Collect(world, sources.Params{PerNamespace: perNamespace})
		require.NoError(t, err)
		require.Len(t, got.Groups, 1)
		require.Len(t, got.Groups[0].Variants, 1)
		assert.Equal(t, want, got.Groups[0].Variants[0].Name)
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	at := func(second int) string { return created(second).Format(`"` + time.RFC3339 + `"`) }
	tests := []struct {
		name    string
		objects []*unstructured.Unstructured
		want    []string
	}{
		{
			"VariantAutoscaling before annotated objects, though younger",
			list(object(t, va, "c", "x", "metadata|creationTimestamp", at(9)), object(t, scaledObject, "b", "x"), object(t, hpa, "a", "x")),
			list("models//m va/c 1..0 10000000 default note:ConflictResolvedByArbitration", "rejected so/b TargetConflict", "rejected hpa/a TargetConflict"),
		},
		{
			"ScaledObject before HorizontalPodAutoscaler",
			list(object(t, scaledObject, "b", "x", "metadata|creationTimestamp", at(9)), object(t, hpa, "a", "x")),
			list("models//m so/b 0..100 10000000 variantCost note:ConflictResolvedByArbitration", "rejected hpa/a TargetConflict"),
		},
		{
			"the oldest of two",
			list(object(t, va, "a", "x", "metadata|creationTimestamp", at(9)), object(t, va, "b", "x", "metadata|creationTimestamp", at(8))),
			list("models//m va/b 1..0 10000000 default note:ConflictResolvedByArbitration", "rejected va/a TargetConflict"),
		},
		{
			"the first name of two of one age",
			list(object(t, va, "b", "x"), object(t, va, "a", "x")),
			list("models//m va/a 1..0 10000000 default note:ConflictResolvedByArbitration", "rejected va/b TargetConflict"),
		},
		{
			"the same target, written differently",
			list(object(t, va, "a", "x"), object(t, va, "b", "x", "spec|scaleTargetRef|apiVersion", "apps/v1beta1")),
			list("models//m va/a 1..0 10000000 default note:ConflictResolvedByArbitration", "rejected va/b TargetConflict"),
		},
		{
			"one name, two targets",
			list(object(t, hpa, "a", "x"), object(t, scaledObject, "a", "w", "metadata|creationTimestamp", at(9))),
			list("models//m so/a 0..100 10000000 variantCost", "rejected hpa/a NameConflict"),
		},
		{
			"the name of one that lost",
			list(object(t, va, "a", "x"), object(t, scaledObject, "b", "x"), object(t, hpa, "b", "w")),
			list("models//m va/a 1..0 10000000 default note:ConflictResolvedByArbitration", "models//m hpa/b 1..4 10000000 default", "rejected so/b TargetConflict"),
		},
		{
			"two namespaces",
			list(object(t, va, "a", "x", "metadata|namespace", "other"), object(t, va, "a", "x")),
			list("models//m va/a 1..0 10000000 default", "other//m va/a 1..0 10000000 default TargetNotFound"),
		},
		{
			"no target is no conflict",
			list(object(t, va, "a", "x", "spec|scaleTargetRef", "null"), object(t, va, "b", "x", "spec|scaleTargetRef", "null")),
			list("models//m va/a 1..0 10000000 default InvalidConfiguration", "models//m va/b 1..0 10000000 default InvalidConfiguration"),
		},
		{
			"kinds of targets",
			list(object(t, va, "a", "x"), object(t, va, "b", "x", "spec|scaleTargetRef|kind", "StatefulSet")),
			list("models//m va/a 1..0 10000000 default", "models//m va/b 1..0 10000000 default TargetNotFound"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := collect(t, sources.Params{}, append(parse(t, deployments("x", "w")), tt.objects...)...)
			assert.Equal(t, tt.want, describe(got))
		})
	}
}

func TestLimitOfNamespace(t *testing.T) {
	t.Parallel()
	objects := parse(t, deployments("a", "b", "c", "d"))
	for i, n := range []string{"c", "a", "d", "b"} { // by age
		objects = append(objects, object(t, hpa, n, n, "metadata|creationTimestamp", created(i).Format(`"`+time.RFC3339+`"`)))
	}
	objects = append(objects, object(t, va, "z", "d"), object(t, hpa, "a", "a", "metadata|namespace", "other"))
	assert.Equal(t, []string{
		"models//m hpa/c 1..4 10000000 default",
		"models//m va/z 1..0 10000000 default note:ConflictResolvedByArbitration",
		"other//m hpa/a 1..4 10000000 variantCost TargetNotFound",
		"rejected hpa/a LimitExceeded", "rejected hpa/b LimitExceeded", "rejected hpa/d TargetConflict",
	}, describe(collect(t, sources.Params{PerNamespace: func(string) int { return 2 }}, objects...)), "z is the oldest, and that of a target that another one has does not count")
}

func TestProblems(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	annotation := func(key, value string) *unstructured.Unstructured {
		u := object(t, hpa, "b", "w")
		a := u.GetAnnotations()
		a[key] = value
		u.SetAnnotations(a)
		return u
	}
	spec := func(set ...string) *unstructured.Unstructured { return object(t, va, "b", "w", set...) }
	seed := func(set ...string) *unstructured.Unstructured { return object(t, seedShape, "b", "w", set...) }
	tests := []struct {
		name   string
		object *unstructured.Unstructured
		reason string
		part   string // of the message
	}{
		{"no model", object(t, hpa, "b", "w", "metadata|annotations", `{llm-d.ai/managed: "true"}`), snapshot.InvalidConfiguration, "llm-d.ai/model-id is missing"},
		{"no modelID", spec("spec|modelID", "null"), snapshot.InvalidConfiguration, "spec.modelID is missing"},
		{"modelID of another type", spec("spec|modelID", "7"), snapshot.InvalidConfiguration, "spec.modelID is not a text"},
		{"no spec", spec("spec", "null"), snapshot.InvalidConfiguration, "spec.modelID is missing"},
		{"spec of another type", spec("spec", "[]"), snapshot.InvalidConfiguration, "spec is not an object"},
		{"model of 10 kB", annotation("llm-d.ai/model-id", long), snapshot.InvalidConfiguration, "annotation llm-d.ai/model-id has more than 256 bytes"},
		{"modelID of 10 kB", spec("spec|modelID", long), snapshot.InvalidConfiguration, "spec.modelID has more than 256 bytes"},
		{"name of 10 kB", spec("metadata|name", long), snapshot.InvalidConfiguration, "use a shorter one"},
		{"accelerator of 10 kB", spec("spec|accelerator", long), snapshot.InvalidConfiguration, "spec.accelerator has more"},
		{"model with a line break", annotation("llm-d.ai/model-id", "a\nb"), snapshot.InvalidConfiguration, "control characters"},
		{"cost NaN", annotation("llm-d.ai/variant-cost", "NaN"), snapshot.InvalidConfiguration, `the cost is "NaN"`},
		{"cost 1e30", annotation("llm-d.ai/variant-cost", "1e30"), snapshot.InvalidConfiguration, `the cost is "1e30"`},
		{"negative cost", annotation("llm-d.ai/variant-cost", "-1"), snapshot.InvalidConfiguration, `the cost is "-1"`},
		{"huge cost", spec("spec|variantCost", `"10000000.000001"`), snapshot.InvalidConfiguration, "at most 10000000"},
		{"cost of 10 kB", spec("spec|variantCost", `"`+strings.Repeat("9", 10_000)+`"`), snapshot.InvalidConfiguration, "spec.variantCost has more"},
		{"no target", spec("spec|scaleTargetRef", "null"), snapshot.InvalidConfiguration, "spec.scaleTargetRef.name is missing"},
		{"missing target", spec("spec|scaleTargetRef|name", "none"), snapshot.TargetNotFound, `Deployment "none" does not exist`},
		{"target of another kind", spec("spec|scaleTargetRef|kind", "DaemonSet"), snapshot.UnsupportedTarget, `the target is a "DaemonSet"`},
		{"target of another group", spec("spec|scaleTargetRef|apiVersion", "example.com/v1"), snapshot.UnsupportedTarget, `of "example.com/v1"`},
		{"target without a CRD", spec("spec|scaleTargetRef|kind", "LeaderWorkerSet"), snapshot.UnsupportedTarget, "install their CRD"},
		{"negative minimum", spec("spec|minReplicas", "-1"), snapshot.InvalidConfiguration, "the minimum of replicas is -1"},
		{"maximum of zero", spec("spec|maxReplicas", "0"), snapshot.InvalidConfiguration, "the maximum of replicas is 0"},
		{"no maximum of a HorizontalPodAutoscaler", object(t, hpa, "b", "w", "spec|maxReplicas", "null"), snapshot.InvalidConfiguration, "the maximum of replicas is 0"},
		{"minimum above the maximum", spec("spec|minReplicas", "3", "spec|maxReplicas", "2"), snapshot.InvalidConfiguration, "raise the maximum"},
		{"minimum above KEDA's maximum", object(t, scaledObject, "b", "w", "spec|minReplicaCount", "101"), snapshot.InvalidConfiguration, "the maximum of replicas is 100"},
		{"minimum of 10^9", spec("spec|minReplicas", "1000000000"), snapshot.LimitExceeded, "at most 100000"},
		{"minimum of 10^30", spec("spec|minReplicas", "1e30"), snapshot.InvalidConfiguration, "spec.minReplicas is not a whole number"},
		{"broken maximum", spec("spec|maxReplicas", "1.5"), snapshot.InvalidConfiguration, "spec.maxReplicas is not a whole number"},
		{"cards of zero", spec("spec|acceleratorCount", "0"), snapshot.InvalidConfiguration, "spec.acceleratorCount is 0"},
		{"10^9 cards", spec("spec|acceleratorCount", "1000000000"), snapshot.InvalidConfiguration, "use 1 to 1000000"},
		{"variantID of another card", seed("spec|variantID", "meta/llama-3.1-8b-H100-1"), snapshot.InvalidConfiguration, `make "meta/llama-3.1-8b-A100-1"`},
		{"alpha of NaN", seed("spec|variantProfile|perfParms|decodeParms|alpha", `"NaN"`), snapshot.InvalidConfiguration, `decodeParms.alpha is "NaN"`},
		{"negative delta", seed("spec|variantProfile|perfParms|prefillParms|delta", `"-1"`), snapshot.InvalidConfiguration, `prefillParms.delta is "-1"`},
		{"infinite gamma", seed("spec|variantProfile|perfParms|prefillParms|gamma", `"Inf"`), snapshot.InvalidConfiguration, `prefillParms.gamma is "Inf"`},
		{"no beta", seed("spec|variantProfile|perfParms|decodeParms", `{alpha: "1"}`), snapshot.InvalidConfiguration, `decodeParms.beta is ""`},
		{"alpha as a number", seed("spec|variantProfile|perfParms|decodeParms|alpha", `7`), snapshot.InvalidConfiguration, "decodeParms.alpha is not a text"},
		{"no batch", seed("spec|variantProfile|maxBatchSize", "null"), snapshot.InvalidConfiguration, "maxBatchSize is 0"},
		{"a batch of 10^9", seed("spec|variantProfile|maxBatchSize", "1000000000"), snapshot.InvalidConfiguration, "use 1 to 65536"},
		{"a profile without time", seed("spec|variantProfile|perfParms", `{decodeParms: {alpha: "0", beta: "0"}, prefillParms: {gamma: "0", delta: "0"}}`),
			snapshot.InvalidConfiguration, "take no time"},
		{"a profile of another type", seed("spec|variantProfile", "[]"), snapshot.InvalidConfiguration, "spec.variantProfile is not an object"},
		{"annotated profile", annotation(informers.AnnotationProfile, "{"), snapshot.InvalidConfiguration, "is not a JSON object"},
		{"annotated profile of 10 kB", annotation(informers.AnnotationProfile, long), snapshot.InvalidConfiguration, "has more than 4096 bytes"},
		{"annotated profile with a broken batch", annotation(informers.AnnotationProfile, `{"maxBatchSize": 1.5}`), snapshot.InvalidConfiguration, "fairlead.dev/variant-profile: maxBatchSize is not"},
		{"a schedule of another type", spec("spec|schedule", "{}"), snapshot.InvalidConfiguration, "spec.schedule cannot be used: it is not a list"},
		{"a schedule without bounds", spec("spec|schedule", `[{cron: "0 9 * * *", duration: 8h}]`), snapshot.InvalidConfiguration, "entry 0: minReplicas or maxReplicas is missing"},
		{"a schedule of 10^6 entries", spec("spec|schedule", "["+strings.Repeat("{},", 100_000)+"{}]"), snapshot.InvalidConfiguration, "16384 bytes"},
		{"annotated schedule", annotation(informers.AnnotationSchedule, `[{"cron": "TZ=x", "duration": "1h", "maxReplicas": 3}]`), snapshot.InvalidConfiguration,
			"annotation fairlead.dev/schedule cannot be used: entry 0: cron"},
		{"annotated schedule above the bounds", annotation(informers.AnnotationSchedule, `[{"cron": "0 9 * * *", "duration": "1h", "maxReplicas": 5}]`),
			snapshot.InvalidConfiguration, "bounds from 1 to 5 replicas, outside of those of the HorizontalPodAutoscaler, 1 to 4"},
		{"annotated schedule below the bounds", annotation(informers.AnnotationSchedule, `[{"cron": "0 9 * * *", "duration": "1h", "minReplicas": 0}]`),
			snapshot.InvalidConfiguration, "bounds from 0 to 4 replicas, outside"},
		{"a scheduled minimum above the maximum", spec("spec|maxReplicas", "4", "spec|schedule", `[{cron: "0 9 * * *", duration: 1h, minReplicas: 5}]`),
			snapshot.InvalidConfiguration, "entry 0 of the schedule has a minimum of 5 replicas, and a maximum of 4: set both"},
		{"a scheduled maximum below the minimum", spec("spec|minReplicas", "4", "spec|schedule", `[{cron: "0 9 * * *", duration: 1h, maxReplicas: 3}]`),
			snapshot.InvalidConfiguration, "a minimum of 4 replicas, and a maximum of 3"},
		{"HorizontalPodAutoscaler that multiplies",
			object(t, hpa, "b", "w", "spec|metrics", "[{type: External, external: {metric: {name: wva_desired_replicas}, target: {type: Value, value: 1}}}]"),
			snapshot.MetricTypeValue, "set the type AverageValue"},
		{"ScaledObject that multiplies", object(t, scaledObject, "b", "w", "spec|triggers",
			"[{type: cpu}, {type: prometheus, metricType: Value, metadata: {query: 'max(wva_desired_replicas{variant_name=\"b\"})'}}]"), snapshot.MetricTypeValue, ""},
		{"ScaledObject with the external scaler that multiplies", object(t, scaledObject, "b", "w", "spec|triggers",
			"[{type: external, metricType: Value, metadata: {scalerAddress: 'variant-autoscaler.fairlead:9090'}}]"), snapshot.MetricTypeValue, ""},
	}
	served := func(r schema.GroupVersionResource) bool { return r.Resource != "leaderworkersets" }
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			objects := append(parse(t, deployments("x", "w")), object(t, va, "a", "x", "spec|variantCost", `"5"`), tt.object)
			got := collectServed(t, sources.Params{}, served, objects...)
			valid(t, got)
			assert.Empty(t, got.Rejected)
			found := map[string]*sources.Variant{}
			for i := range got.Groups {
				for n := range got.Groups[i].Variants {
					v := &got.Groups[i].Variants[n]
					found[v.Name] = v
				}
			}
			require.Len(t, found, 2, "it is not lost")
			other := found["a"]
			require.NotNil(t, other)
			assert.Nil(t, other.Problem)
			assert.Equal(t, int64(5_000_000), other.Cost, "it costs others nothing")
			bad := found[tt.object.GetName()]
			require.NotNil(t, bad)
			require.NotNil(t, bad.Problem)
			assert.Equal(t, tt.reason, bad.Problem.Reason)
			assert.Contains(t, bad.Problem.Message, tt.part)
			assert.Contains(t, bad.Problem.Message, ": ", "it says what to do")
			assert.Less(t, len(bad.Problem.Message), 1024, "it fits into an Event")
		})
	}
}

func TestNumbersThatAreLowered(t *testing.T) {
	t.Parallel()
	objects := append(parse(t, deployments("x")), object(t, hpa, "a", "x", "spec|maxReplicas", "1000000000"))
	require.NoError(t, unstructured.SetNestedField(objects[0].Object, int64(1_000_000_000), "spec", "replicas"))
	got := collect(t, sources.Params{}, objects...)
	assert.Equal(t, []string{"models//m hpa/a 1..100000 10000000 variantCost note:LimitExceeded note:LimitExceeded"}, describe(got))
	assert.Equal(t, 100_000, got.Groups[0].Variants[0].Now)
	valid(t, got)
}

func TestMetricsThatDoNotMultiply(t *testing.T) {
	t.Parallel()
	for _, u := range []*unstructured.Unstructured{
		object(t, hpa, "a", "x", "spec|metrics", "[{type: External, external: {metric: {name: wva_desired_replicas}, target: {type: AverageValue, averageValue: 1}}}]"),
		object(t, hpa, "a", "x", "spec|metrics", "[{type: External, external: {metric: {name: another}, target: {type: Value, value: 1}}}]"),
		object(t, scaledObject, "a", "x", "spec|triggers", "[{type: prometheus, metadata: {query: wva_desired_replicas}}]"),
		object(t, scaledObject, "a", "x", "spec|triggers", "[{type: prometheus, metricType: Value, metadata: {query: another}}]"),
		object(t, scaledObject, "a", "x", "spec|triggers", "{}"),
	} {
		got := collect(t, sources.Params{}, append(parse(t, deployments("x")), u)...)
		require.Len(t, got.Groups, 1)
		assert.Nil(t, got.Groups[0].Variants[0].Problem)
	}
}

// TestTriggers: the metadata of a trigger declares a variant, as the annotations do.
func TestTriggers(t *testing.T) {
	t.Parallel()
	object := func(name, annotations, kind, metadata string) string {
		return fmt.Sprintf(`
- apiVersion: keda.sh/v1alpha1
  kind: ScaledObject
  metadata: {name: %s, annotations: {%s}}
  spec: {scaleTargetRef: {name: a}, maxReplicaCount: 8, triggers: [{type: cron}, {type: %s, metadata: {scalerAddress: "other:9443", %s}}]}`, name, annotations, kind, metadata)
	}
	tests := []struct {
		name, give string
		want       []string
		object     string // of the variant
	}{
		{"a model", object("so", "", "external", "modelID: m"), []string{"models//m so/a 0..8 10000000 variantCost"}, "so"},
		{"with a cost and a name", object("so", "", "external-push", `modelID: m, variantCost: "12.5", variantName: m-a`), []string{"models//m so/m-a 0..8 12500000 variantCost"}, "so"},
		{"a name that refers to a variant", object("so", "", "external", "variantName: a"), nil, ""},
		{"a metric that multiplies", strings.Replace(object("so", "", "external", "modelID: m"), "{type: external,", "{type: external, metricType: Value,", 1), []string{"models//m so/a 0..8 10000000 variantCost MetricTypeValue"}, "so"},
		{"a trigger of another kind", object("so", "", "prometheus", "modelID: m"), nil, ""},
		{"an annotation without a name", object("so", `llm-d.ai/managed: "true", llm-d.ai/model-id: m`, "external", "variantName: a"), []string{"models//m so/so 0..8 10000000 variantCost"}, ""},
		{"both, and the same", object("so", `llm-d.ai/managed: "true", llm-d.ai/model-id: m`, "external", "modelID: m"), []string{"models//m so/a 0..8 10000000 variantCost"}, "so"},
		{"both, and not the same", object("so", `llm-d.ai/managed: "true", llm-d.ai/model-id: other`, "external", "modelID: m"), []string{"models//m so/a 0..8 10000000 variantCost InvalidConfiguration"}, "so"},
		{"switched off", object("so", `llm-d.ai/managed: "false"`, "external", "modelID: m"), nil, ""},
		{"the name of its object", object("a", "", "external", "modelID: m"), []string{"models//m so/a 0..8 10000000 variantCost"}, ""},
		{"control characters", object("so", "", "external", `modelID: m, variantName: "a\n"`), []string{"models//m so/a\n 0..8 10000000 variantCost InvalidConfiguration"}, "so"},
		{"two triggers", strings.Replace(object("so", "", "external", "modelID: m"), "{type: cron}", "{type: external-push, metadata: {modelID: other}}", 1), []string{"models//other so/a 0..8 10000000 variantCost InvalidConfiguration"}, "so"},
		{"a cost that is none", object("so", "", "external", "modelID: m, variantCost: much"), []string{"models//m so/a 0..8 10000000 variantCost InvalidConfiguration"}, "so"},
		{"a cost that is no text", object("so", "", "external", "modelID: m, variantCost: 5"), []string{"models//m so/a 0..8 10000000 variantCost InvalidConfiguration"}, "so"},
		{"metadata that is none", object("so", "", "external", "modelID: {}"), nil, ""},
		{"two of one name", object("so", "", "external", "modelID: m") + strings.ReplaceAll(object("so2", "", "external", "modelID: m, variantName: a"), "scaleTargetRef: {name: a}", "scaleTargetRef: {name: b}"),
			[]string{"models//m so/a 0..8 10000000 variantCost", "rejected so/a NameConflict"}, "so"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := collect(t, sources.Params{}, parse(t, deployments("a", "b")+tt.give)...)
			assert.Equal(t, tt.want, describe(got))
			if len(got.Groups) > 0 {
				v := &got.Groups[0].Variants[0]
				assert.Equal(t, tt.object, v.ObjectName)
				if tt.object != "" {
					assert.Equal(t, tt.object, v.Object.Name, "Events are about the object")
				}
			}
		})
	}
}

// TestScaledTargets: targets of any kind with a scale subresource, with the pods of the workloads that they made, or their own.
func TestScaledTargets(t *testing.T) {
	t.Parallel()
	scales := func(namespace string, target snapshot.Target) (*scale.Scale, error) {
		switch {
		case namespace != "models" || target.Kind == "Router":
			return nil, scale.ErrNoScale
		case target.Name == "none":
			return nil, scale.ErrNotFound
		}
		s := &scale.Scale{Replicas: 4, Current: 3}
		if target.Name == "unselected" {
			s.Current = 1
		} else {
			s.Labels = map[string]string{"modelserving": "rt"}
			s.Selector = labels.SelectorFromSet(s.Labels)
		}
		return s, nil
	}
	object := func(kind, target string) string {
		return fmt.Sprintf(`
- apiVersion: keda.sh/v1alpha1
  kind: ScaledObject
  metadata: {name: so, annotations: {llm-d.ai/managed: "true", llm-d.ai/model-id: m}}
  spec: {scaleTargetRef: {apiVersion: production-stack.vllm.ai/v1alpha1, kind: %s, name: %s}, maxReplicaCount: 8}`, kind, target)
	}
	const (
		ready = `status: {conditions: [{type: Ready, status: "True"}]}`
		pool  = `
- {apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: pool}, spec: {selector: {matchLabels: {app: rt}}}}`
		built = `
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: rt-vllm, ownerReferences: [{apiVersion: production-stack.vllm.ai/v1alpha1, kind: VLLMRuntime, name: rt, controller: true}]}, spec: {replicas: 4, template: {metadata: {labels: {modelserving: rt, app: rt}}, spec: {containers: [{resources: {limits: {nvidia.com/gpu: "2"}}}]}}}, status: {readyReplicas: 2}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: rt-router, ownerReferences: [{apiVersion: production-stack.vllm.ai/v1alpha1, kind: VLLMRuntime, name: rt, controller: true}]}, spec: {replicas: 1, template: {metadata: {labels: {modelserving: router}}}}, status: {readyReplicas: 1}}
- {apiVersion: v1, kind: Pod, metadata: {name: rt-vllm-abc-0, labels: {pod-template-hash: abc}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rt-vllm-abc, controller: true}]}, ` + ready + `}
- {apiVersion: v1, kind: Pod, metadata: {name: rt-router-abc-0, labels: {pod-template-hash: abc}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rt-router-abc, controller: true}]}, ` + ready + `}`
	)
	pod := func(name, labels, owner, status string) string {
		return fmt.Sprintf(`
- {apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {app: rt%s}, ownerReferences: [{%s, controller: true}]}, %s}`, name, labels, owner, status)
	}
	modelServing := func(name string) string {
		return "apiVersion: workload.serving.volcano.sh/v1alpha1, kind: ModelServing, name: " + name
	}
	serving := func(name string) string { // as kthena: a leader and a worker in each replica, of which the selector selects the leader
		return pod(name+"-0-0", ", modelserving: rt", modelServing(name), ready) + pod(name+"-0-1", "", modelServing(name), ready) +
			pod(name+"-1-0", ", modelserving: rt", modelServing(name), "status: {}") + pod("job", ", modelserving: rt", "apiVersion: batch/v1, kind: Job, name: "+name, ready)
	}
	type facts struct {
		now, ready int
		cards      int64
		pods       []string
		owners     []string // whose pods hold cards for the variant
		shape      int64    // cards of a pod
	}
	tests := []struct {
		name, give string
		want       []string
		facts      facts
	}{
		{"pods that the selector selects", object("ModelServing", "rt") + pool + serving("rt"), []string{"models/pool/m so/so 0..8 10000000 variantCost"}, facts{4, 1, 1, []string{"rt-0-0", "rt-1-0"}, []string{"models/ModelServing/rt"}, 0}},
		{"its own pods without a selector", object("ModelServing", "unselected") + pool + serving("unselected"), []string{"models/pool/m so/so 0..8 10000000 variantCost"}, facts{4, 1, 1, []string{"unselected-0-0", "unselected-0-1", "unselected-1-0"}, []string{"models/ModelServing/unselected"}, 0}},
		{"pods of a ReplicaSet that it made", object("Rollout", "rt") + pool + pod("rt-abc-0", ", modelserving: rt, rollouts-pod-template-hash: abc", "apiVersion: apps/v1, kind: ReplicaSet, name: rt-abc", ready), []string{"models/pool/m so/so 0..8 10000000 variantCost"}, facts{4, 1, 1, []string{"rt-abc-0"}, []string{"models/Rollout/rt"}, 0}},
		{"a Deployment that it made", object("VLLMRuntime", "rt") + pool + built, []string{"models/pool/m so/so 0..8 10000000 variantCost"},
			facts{4, 2, 2, []string{"rt-vllm-abc-0"}, []string{"models/Deployment/rt-vllm", "models/VLLMRuntime/rt"}, 2}},
		{"no pods", object("VLLMRuntime", "rt"), []string{"models//m so/so 0..8 10000000 variantCost"}, facts{4, 3, 1, nil, []string{"models/VLLMRuntime/rt"}, 0}},
		{"no object", object("VLLMRuntime", "none"), []string{"models//m so/so 0..8 10000000 variantCost TargetNotFound"}, facts{0, 0, 1, nil, nil, 0}},
		{"no scale", object("Router", "r"), []string{"models//m so/so 0..8 10000000 variantCost UnsupportedTarget"}, facts{0, 0, 1, nil, nil, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := collect(t, sources.Params{Scale: scales}, parse(t, tt.give)...)
			assert.Equal(t, tt.want, describe(got))
			v := &got.Groups[0].Variants[0]
			var pods []string
			for _, p := range v.Pods {
				pods = append(pods, p.Name)
			}
			seen := facts{v.Now, v.Ready, v.Cards, pods, nil, v.Shape.Cards}
			for _, o := range v.Owners {
				seen.owners = append(seen.owners, o.String())
			}
			assert.Equal(t, tt.facts, seen)
		})
	}
}
