package pass

import (
	"errors"
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

const roleVariants = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: p}, spec: {replicas: 1, template: {metadata: {labels: {llm-d.ai/role: prefill}}}}, status: {readyReplicas: 1}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 1, template: {metadata: {labels: {llm-d.ai/role: decode}}}}, status: {readyReplicas: 1}}
---
{apiVersion: llmd.ai/v1alpha1, kind: VariantAutoscaling, metadata: {name: p}, spec: {scaleTargetRef: {kind: Deployment, name: p}, modelID: m, variantCost: "10"}}
---
{apiVersion: llmd.ai/v1alpha1, kind: VariantAutoscaling, metadata: {name: d}, spec: {scaleTargetRef: {kind: Deployment, name: d}, modelID: m, variantCost: "10"}}
`

// roleRig is a rig whose roles have loads and samples of their own: 3 prompts of 5000 tokens per second, each computed in half a second.
type roleRig struct {
	*rig

	loads   map[snapshot.Role]snapshot.Load
	samples map[snapshot.Role]*snapshot.Sample
}

func startRoles(t *testing.T, objects string) *roleRig {
	t.Helper()
	r := &roleRig{
		rig: start(t, objects),
		loads: map[snapshot.Role]snapshot.Load{
			snapshot.Prefill: {State: snapshot.Found, Rate: 3e6, Input: 5000, Output: 1},
			snapshot.Decode:  {State: snapshot.Found, Rate: 3e6, Input: 5000, Output: 200},
		},
		samples: map[snapshot.Role]*snapshot.Sample{
			snapshot.Prefill: {Window: time.Minute, Replicas: 1, Rate: 1.9, Input: 5000, Output: 1, Running: 1, Waiting: 30, Prefill: 500, TTFT: 15_000},
			snapshot.Decode:  {Window: time.Minute, Replicas: 1, Rate: 3, Input: 5000, Output: 200, Running: 18, Prefill: 30, ITL: 30, KVUsage: 0.3},
		},
	}
	require.Empty(t, r.settings.SetSources(settings.Classes, settings.Source{Name: "c", Data: map[string]string{
		"c": "data: [{model: m, slo-ttft: 6000, slo-tpot: 60, min-prefill-per-decode: 0.5, max-prefill-per-decode: 4}]",
	}}))
	r.answer = func(g *collect.Group) collect.Result {
		requests := 7.0
		result := collect.Result{Stages: r.loads, Requests: &requests}
		for _, v := range g.Variants {
			result.Variants = append(result.Variants, collect.VariantResult{Sample: r.samples[v.Role],
				Usages: []collect.Usage{{KV: 0.9, Waiting: 1}}})
		}
		return result
	}
	return r
}

// minutes runs a pass each minute, and returns the outcome of the last one.
func (r *roleRig) minutes(t *testing.T, n int) *Outcome {
	t.Helper()
	for range n {
		r.now = r.now.Add(time.Minute)
		for _, s := range r.samples {
			s.Time = r.now
		}
		r.pass(t)
	}
	return r.outcomes[len(r.outcomes)-1]
}

// TestRoles: the roles of a model are one question about its load, and two groups with one class.
func TestRoles(t *testing.T) {
	t.Parallel()
	r := startRoles(t, roleVariants)
	o := r.minutes(t, 3)
	require.Len(t, r.asked, 1)
	require.Len(t, r.asked[0].Variants, 2)
	assert.Equal(t, []snapshot.Role{snapshot.Decode, snapshot.Prefill}, []snapshot.Role{r.asked[0].Variants[0].Role, r.asked[0].Variants[1].Role})
	require.Len(t, o.Snapshot.Groups, 2)
	decode, prefill := &o.Snapshot.Groups[0], &o.Snapshot.Groups[1]
	for _, g := range []*snapshot.Group{decode, prefill} {
		assert.Equal(t, snapshot.Ratio{Min: 0.5, Max: 4}, g.PrefillRatio)
		assert.InDelta(t, 6000, g.Targets.TTFT, 0)
		require.NotNil(t, g.Zero.Requests)
		assert.InDelta(t, 7, *g.Zero.Requests, 0)
	}
	assert.Equal(t, snapshot.Prefill, prefill.Role)
	assert.InDelta(t, 1, prefill.Load.Output, 0)
	assert.InDelta(t, 200, decode.Load.Output, 0)
	assert.InDelta(t, 0.1, prefill.Variants[0].Measured.Profile.Delta, 0.01, "10 000 tokens per second")
	assert.Positive(t, decode.Variants[0].Measured.Profile.Alpha+decode.Variants[0].Measured.Profile.Beta)
	assert.Equal(t, int64(3e6), decode.Variants[0].Measured.Proven, "within the target between tokens: that of the first token is not its own")
	assert.Equal(t, map[string]int{"p": 2, "d": 1}, r.pass(t))
}

// TestRolesLieOrChange: prefill servers that decode are left alone, and what was learned of one role is nothing for another one.
func TestRolesLieOrChange(t *testing.T) {
	t.Parallel()
	r := startRoles(t, roleVariants)
	r.samples[snapshot.Prefill].Output = 9
	o := r.minutes(t, 3)
	problem := o.Snapshot.Groups[1].Variants[0].Problem
	require.NotNil(t, problem)
	assert.Equal(t, snapshot.RoleMismatch, problem.Reason)
	assert.Contains(t, problem.Message, "generate 9 tokens for a request: set the label llm-d.ai/role")
	assert.Equal(t, decision.Excluded, o.Decision.Groups[1].Variants[0].Reason)
	assert.Equal(t, 1, o.Decision.Groups[1].Variants[0].Desired)
	assert.Nil(t, o.Snapshot.Groups[0].Variants[0].Problem)
	assert.Nil(t, o.Snapshot.Groups[1].Variants[0].Measured)

	r.samples[snapshot.Prefill].Output = 8
	o = r.minutes(t, 1)
	assert.Nil(t, o.Snapshot.Groups[1].Variants[0].Problem)
	assert.Equal(t, 1, o.Snapshot.Groups[1].Variants[0].Measured.Samples)

	r.p.World = world(t, strings.ReplaceAll(roleVariants, "llm-d.ai/role: decode", "llm-d.ai/role: prefill"))
	o = r.minutes(t, 1)
	require.Len(t, o.Snapshot.Groups, 1)
	assert.Equal(t, 1, o.Snapshot.Groups[0].Variants[0].Measured.Samples, "d was another thing")
	assert.Equal(t, 2, o.Snapshot.Groups[0].Variants[1].Measured.Samples, "p")
	assert.Len(t, r.learners, 2)
}

// TestRolesChangeTogether: the time since which a model may go to zero is that of both roles.
func TestRolesChangeTogether(t *testing.T) {
	t.Parallel()
	r := startRoles(t, roleVariants)
	require.Empty(t, r.settings.SetSources(settings.Classes)) // no ratio moves the other role
	r.minutes(t, 10)
	load := r.loads[snapshot.Decode]
	load.Rate = 60e6
	r.loads[snapshot.Decode] = load
	before := r.outcomes[len(r.outcomes)-1].Snapshot.Groups
	assert.Equal(t, before[0].Zero.Changed, before[1].Zero.Changed)
	r.minutes(t, 1)
	changed := r.now
	after := r.minutes(t, 1).Snapshot.Groups
	assert.Equal(t, changed, after[0].Zero.Changed)
	assert.Equal(t, changed, after[1].Zero.Changed)
}

// TestAlignStages: the last change of any role counts for all.
func TestAlignStages(t *testing.T) {
	t.Parallel()
	early := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 2 {
		stages := []snapshot.Group{{Role: snapshot.Decode, Zero: snapshot.Zero{Changed: early}}, {Role: snapshot.Prefill, Zero: snapshot.Zero{Changed: early}}}
		stages[i].Zero.Changed = early.Add(time.Hour)
		alignStages(stages)
		assert.Equal(t, stages[i].Zero.Changed, early.Add(time.Hour))
		assert.Equal(t, stages[0].Zero, stages[1].Zero)
	}
}

// TestRolesWakeTogether: what is known of requests that wait, and since when servers serve, is that of the model.
func TestRolesWakeTogether(t *testing.T) {
	t.Parallel()
	objects := strings.ReplaceAll(roleVariants, "labels: {", "labels: {app: m, ") + pool
	objects = strings.ReplaceAll(objects, `variantCost: "10"`, `variantCost: "10", minReplicas: 0`)
	asleep := strings.ReplaceAll(strings.ReplaceAll(objects, "replicas: 1", "replicas: 0"), "readyReplicas: 1", "readyReplicas: 0")
	whole := strings.NewReplacer("name: d", "name: w", "app: m, llm-d.ai/role: decode", "app: m").Replace(asleep)
	r := startRoles(t, asleep+"\n---\n"+whole[strings.Index(whole, "---\n")+4:])
	require.Empty(t, r.settings.SetSources(settings.Zero,
		settings.Source{Name: "z", Data: map[string]string{"__defaults__": "enableScaleToZero: true\nretentionPeriod: 10m"}}))
	none := 0.0
	r.answer = func(g *collect.Group) collect.Result {
		return collect.Result{
			Load: snapshot.Load{State: snapshot.Found}, Requests: &none, Variants: make([]collect.VariantResult, len(g.Variants)),
			Stages: map[snapshot.Role]snapshot.Load{snapshot.Prefill: {State: snapshot.Found}, snapshot.Decode: {State: snapshot.Found}},
		}
	}
	table := holds.NewTable()
	r.p.Waits = waiting{table}
	assert.Equal(t, map[string]int{"p": 0, "d": 0, "w": 0}, r.pass(t))
	table.Observe(snapshot.PoolKey{Namespace: "ns", Name: "pool"}, "a", map[string]int{"m": 1})
	r.pass(t)
	groups := r.outcomes[len(r.outcomes)-1].Snapshot.Groups
	require.Len(t, groups, 3)
	for i := range groups {
		assert.InDelta(t, 1, groups[i].Zero.Waiting, 0)
		assert.True(t, groups[i].Zero.Watched)
	}
	assert.Equal(t, []float64{0, 1, 1}, []float64{groups[0].Load.Queued, groups[1].Load.Queued, groups[2].Load.Queued}, "the pair gets what no server has yet")

	first, last, _ := strings.Cut(asleep, "name: d}")
	r.p.World = world(t, first+"name: d}"+strings.Replace(last, "readyReplicas: 0", "readyReplicas: 1", 1))
	r.pass(t)
	groups = r.outcomes[len(r.outcomes)-1].Snapshot.Groups
	require.Len(t, groups, 2)
	assert.Equal(t, []bool{true, true}, []bool{groups[0].Zero.ServesSince.IsZero(), groups[1].Zero.ServesSince.IsZero()}, "prefill servers are not ready")
	r.now = r.now.Add(time.Minute)
	ready := r.now
	r.p.World = world(t, objects)
	r.pass(t)
	groups = r.outcomes[len(r.outcomes)-1].Snapshot.Groups
	assert.Equal(t, []time.Time{ready, ready}, []time.Time{groups[0].Zero.ServesSince, groups[1].Zero.ServesSince}, "both roles serve since the later one does")
}

// TestSaturationOfPrefill: a prefill server keeps KV caches until they are fetched, which is no saturation.
func TestSaturationOfPrefill(t *testing.T) {
	t.Parallel()
	r := startRoles(t, roleVariants)
	require.Empty(t, r.settings.SetSources(settings.Saturation,
		settings.Source{Name: "s", Data: map[string]string{"default": "kvCacheThreshold: 0.8"}}))
	groups := r.minutes(t, 1).Snapshot.Groups
	assert.Equal(t, &snapshot.Spare{Seen: 1}, groups[0].Variants[0].Spare, "decode")
	assert.Equal(t, &snapshot.Spare{Seen: 1, Free: 1, Queue: 1}, groups[1].Variants[0].Spare, "prefill")
}

// TestRolesWithoutPrometheus: both roles say so.
func TestRolesWithoutPrometheus(t *testing.T) {
	t.Parallel()
	r := startRoles(t, roleVariants)
	r.fails = errors.New("set prometheus.url")
	for _, g := range r.minutes(t, 1).Snapshot.Groups {
		assert.Equal(t, snapshot.Load{State: snapshot.Failed, Message: "set prometheus.url"}, g.Load)
	}
}
