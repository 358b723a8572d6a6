package pass

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/holds"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const pool = `
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: pool}
spec: {selector: {matchLabels: {app: m}}}
`

// pooled returns the variants behind an InferencePool, with replicas.
func pooled(replicas string) string {
	text := strings.ReplaceAll(variants, "spec: {replicas: 1}, status: {readyReplicas: 1}",
		"spec: {replicas: "+replicas+", template: {metadata: {labels: {app: m}}}}, status: {readyReplicas: "+replicas+"}")
	return text + pool
}

// sleepy returns a rig of models that may have no replicas. Prometheus knows of no request.
func sleepy(t *testing.T, objects string) *rig {
	t.Helper()
	r := start(t, objects)
	r.settings.SetSources(settings.Zero, settings.Source{Name: "z",
		Data: map[string]string{"__defaults__": "enableScaleToZero: true\nretentionPeriod: 10m"}})
	none := 0.0
	r.load, r.requests, r.picker = snapshot.Load{State: snapshot.Found}, &none, true
	return r
}

// retained is the retention period, which begins anew when the dearer variant went, after the stabilization window.
const retained = 12

// stays runs a pass each minute, and returns after how many of them the model has no replicas.
func (r *rig) stays(t *testing.T) (minutes int) {
	t.Helper()
	for ; minutes < 30; minutes++ {
		if desired := r.pass(t); desired["big"]+desired["small"] == 0 {
			break
		}
		r.now = r.now.Add(time.Minute)
	}
	return minutes
}

// TestNewLeaderRetains: it does not know how long ago the last request was, nor since when replicas serve.
func TestNewLeaderRetains(t *testing.T) {
	t.Parallel()
	r := sleepy(t, pooled("1"))
	r.now = r.now.Add(24 * time.Hour)
	assert.Equal(t, retained, r.stays(t))
	r.Reset()
	r.now = r.now.Add(24 * time.Hour)
	assert.Equal(t, retained, r.stays(t))
	require.NotEmpty(t, r.asked)
	assert.Equal(t, []time.Duration{10 * time.Minute, 2 * time.Minute}, []time.Duration{r.asked[0].Retention, r.asked[0].Waited})
}

// TestStartLongerThanRetention: a pod that becomes ready after twelve minutes serves for the retention period.
func TestStartLongerThanRetention(t *testing.T) {
	t.Parallel()
	r := sleepy(t, strings.ReplaceAll(pooled("1"), "readyReplicas: 1", "readyReplicas: 0"))
	assert.Equal(t, 30, r.stays(t), "never before it is ready")
	r.p.World = world(t, pooled("1"))
	assert.Equal(t, retained, r.stays(t))
}

// TestUnknownRequests: whoever reads why the model does not go to zero reads why its requests are not known.
func TestUnknownRequests(t *testing.T) {
	t.Parallel()
	r := sleepy(t, pooled("1"))
	r.answer = func(g *collect.Group) collect.Result {
		return collect.Result{Load: r.load, Picker: true, RequestsMessage: "the longest one is shorter", Variants: make([]collect.VariantResult, len(g.Variants))}
	}
	assert.Equal(t, 30, r.stays(t), "never")
	small := r.outcomes[29].Decision.Groups[0].Variants[1]
	assert.Equal(t, decision.Retained, small.Reason)
	assert.Contains(t, small.Message, "1 replica instead of none, because the requests of the last 10m0s are not known: the longest one is shorter")
}

// TestWaits: pickers say that a request waits, while Prometheus does not.
func TestWaits(t *testing.T) {
	t.Parallel()
	r := sleepy(t, pooled("0"))
	r.picker, r.load, r.requests = false, snapshot.Load{State: snapshot.Failed}, nil
	table := holds.NewTable()
	r.p.Waits = waiting{table}
	in := snapshot.PoolKey{Namespace: "ns", Name: "pool"}
	assert.Equal(t, map[string]int{"big": 0, "small": 0}, r.pass(t))
	table.Observe(in, "a", map[string]int{"m": 3})
	assert.Equal(t, map[string]int{"big": 0, "small": 1}, r.pass(t))
	group := r.outcomes[1].Snapshot.Groups[0]
	assert.InDelta(t, 3, group.Load.Queued, 0)
	assert.InDelta(t, 3, group.Zero.Waiting, 0)
	assert.True(t, group.Zero.Watched)
	assert.Equal(t, "small", group.Zero.Standby)
	r.Reset()
	table.Observe(in, "a", map[string]int{"m": 3})
	now, _, _ := table.CountWaiting(in.WithModel("m"))
	assert.Zero(t, now, "a replica that does not lead has no models")
}

// TestShortRequest: a request that came and went just after a pass wakes the model, by the stream and by Prometheus.
func TestShortRequest(t *testing.T) {
	t.Parallel()
	r := sleepy(t, pooled("0"))
	table := holds.NewTable()
	r.p.Waits = waiting{table}
	r.pass(t)
	in := snapshot.PoolKey{Namespace: "ns", Name: "pool"}
	table.Observe(in, "a", map[string]int{"m": 1})
	table.Observe(in, "a", nil)
	r.now = r.now.Add(time.Minute)
	assert.Equal(t, map[string]int{"big": 0, "small": 1}, r.pass(t))

	r = sleepy(t, pooled("0"))
	r.pass(t)
	r.waited = 1
	assert.Equal(t, map[string]int{"big": 0, "small": 1}, r.pass(t))
}

type waiting struct{ *holds.Table }

func (w waiting) WatchModels(models []snapshot.ModelKey) { w.Table.SetModels(models) }

// TestWarm: a model that wakes often keeps a replica, if the administrator says what waiting costs.
func TestWarm(t *testing.T) {
	t.Parallel()
	r := sleepy(t, pooled("1"))
	pods := "\n---\n{apiVersion: v1, kind: Pod, metadata: {name: small-7d-1, labels: {pod-template-hash: 7d}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: small-7d, controller: true}]}, " +
		"status: {conditions: [{type: Ready, status: \"True\", lastTransitionTime: \"2026-01-01T00:12:00Z\"}]}}"
	r.p.World = world(t, pooled("1")+pods)
	r.now = r.now.Add(13 * time.Minute)
	r.settings.SetSources(settings.Zero, settings.Source{Name: "z",
		Data: map[string]string{"__defaults__": "enableScaleToZero: true\nretentionPeriod: 10m\nwaitingCost: 500"}})
	some, none := 1.0, 0.0
	for range 5 { // an hour and a quarter, with four wake-ups
		r.requests = &some
		r.pass(t)
		r.requests = &none
		r.now = r.now.Add(10 * time.Minute)
		r.pass(t)
		r.now = r.now.Add(5 * time.Minute)
	}
	r.now = r.now.Add(15 * time.Minute)
	assert.Equal(t, map[string]int{"big": 0, "small": 1}, r.pass(t))
	o := r.outcomes[len(r.outcomes)-1]
	warm := o.Decision.Groups[0].Warm
	require.NotNil(t, warm)
	assert.True(t, warm.Keeps, "%s", warm)
	assert.InDelta(t, 4/1.5, warm.WakeUps, 0.01)
	assert.Equal(t, 12*time.Minute, warm.Start)
}

// TestStartOfAnotherLeader: the times that replicas take to start survive the leader that saw them, also of variants without pods, and
// decide which one wakes the model.
func TestStartOfAnotherLeader(t *testing.T) {
	t.Parallel()
	variant := func(name, cost, status string) string {
		return "\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: " + name + "}, spec: {replicas: 0, template: {metadata: {labels: {app: m}}}}}" +
			"\n---\n{apiVersion: llmd.ai/v1alpha1, kind: VariantAutoscaling, metadata: {name: " + name + "}, spec: {scaleTargetRef: {kind: Deployment, name: " + name +
			`}, modelID: m, variantCost: "` + cost + `", minReplicas: 0}, status: ` + status + "}"
	}
	const pool = `{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: pool}, spec: {selector: {matchLabels: {app: m}}, endpointPickerRef: {name: picker}}}`
	for _, tt := range []struct {
		name, fast, slow string
		want             map[string]int
	}{
		{"both are known", "{startSeconds: 60}", "{startSeconds: 7200}", map[string]int{"fast": 1, "slow": 0}},
		{"what nobody can have measured", "{startSeconds: 90000}", "{startSeconds: -1}", map[string]int{"fast": 0, "slow": 1}},
		{"nothing", "{}", "{}", map[string]int{"fast": 0, "slow": 1}},
	} {
		r := sleepy(t, pool+variant("fast", "12", tt.fast)+variant("slow", "10", tt.slow))
		r.waited = 1
		assert.Equal(t, tt.want, r.pass(t), tt.name)
	}
}

// TestFirstReplicaNeverComes: nobody makes the replica of the variant that wakes a model. Ten minutes later, the next one starts.
func TestFirstReplicaNeverComes(t *testing.T) {
	t.Parallel()
	r := sleepy(t, pooled("0"))
	table := holds.NewTable()
	r.p.Waits = waiting{table}
	r.pass(t)
	table.Observe(snapshot.PoolKey{Namespace: "ns", Name: "pool"}, "a", map[string]int{"m": 1})
	for range 11 { // the second pass sees that the decision of the first one had no effect
		require.Equal(t, map[string]int{"big": 0, "small": 1}, r.pass(t))
		r.now = r.now.Add(time.Minute)
	}
	assert.Equal(t, map[string]int{"big": 1, "small": 1}, r.pass(t))
}

// TestEachVariantHasItsTime: a variant that wakes because the one before does not become ready has as much time, before a third one wakes.
func TestEachVariantHasItsTime(t *testing.T) {
	t.Parallel()
	third := strings.NewReplacer("name: small", "name: third", `variantCost: "10"`, `variantCost: "15"`)
	objects := pooled("0")
	for part := range strings.SplitSeq(pooled("0"), "\n---\n") {
		if strings.Contains(part, "name: small") {
			objects += "\n---\n" + third.Replace(part)
		}
	}
	r := sleepy(t, objects)
	table := holds.NewTable()
	r.p.Waits = waiting{table}
	r.pass(t)
	table.Observe(snapshot.PoolKey{Namespace: "ns", Name: "pool"}, "a", map[string]int{"m": 1})
	total := func() (sum int) {
		for _, n := range r.pass(t) {
			sum += n
		}
		r.now = r.now.Add(time.Minute)
		return sum
	}
	var all []int
	for range 24 {
		all = append(all, total())
	}
	assert.Equal(t, slices.Concat(slices.Repeat([]int{1}, 11), slices.Repeat([]int{2}, 10), []int{3, 3, 3}), all)
}

// TestPaused: KEDA leaves the variant that would wake a model without replicas, also one for which the model has waited. Another one wakes.
func TestPaused(t *testing.T) {
	t.Parallel()
	r := sleepy(t, pooled("0"))
	table := holds.NewTable()
	r.p.Waits = waiting{table}
	r.pass(t)
	table.Observe(snapshot.PoolKey{Namespace: "ns", Name: "pool"}, "a", map[string]int{"m": 1})
	require.Equal(t, map[string]int{"big": 0, "small": 1}, r.pass(t))
	r.p.World = world(t, pooled("0")+`
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: small, annotations: {autoscaling.keda.sh/paused-replicas: "0"}}
spec: {scaleTargetRef: {name: small}, triggers: [{type: external-push, metadata: {scalerAddress: "variant-autoscaler-scaler:9443"}}]}
`)
	assert.Equal(t, map[string]int{"big": 1, "small": 0}, r.pass(t))
	assert.Equal(t, snapshot.Paused, r.outcomes[len(r.outcomes)-1].Snapshot.Groups[0].Variants[1].Problem.Reason)
}
