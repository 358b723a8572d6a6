package pass

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rig is Passes in a world of objects.
type rig struct {
	*Passes

	now      time.Time
	settings *settings.Builder
	queues   *fakeQueues
	load     snapshot.Load
	sample   *snapshot.Sample
	uses     []collect.Usage
	requests *float64
	waited   float64
	picker   bool
	fails    error
	answer   func(g *collect.Group) collect.Result // nil: load, sample and uses
	asked    []collect.Group
	outcomes []*Outcome
	cleared  int
	parts    []string
}

func (r *rig) Settings() *settings.Settings { return r.settings.Settings() }

func (r *rig) Actuate(_ context.Context, o *Outcome) { r.outcomes = append(r.outcomes, o) }

func (r *rig) EndTerm() { r.cleared++ }

func (r *rig) Collector(*settings.Settings) (Collector, error) { return r, r.fails }

func (r *rig) ObservePart(name string, _ time.Duration) { r.parts = append(r.parts, name) }

func (r *rig) ReportOutcome(context.Context, *Outcome) error { return nil }

func (r *rig) Collect(_ context.Context, _ time.Time, groups []collect.Group) []collect.Result {
	r.asked = groups
	var all []collect.Result
	for _, g := range groups {
		if r.answer != nil {
			all = append(all, r.answer(&g))
			continue
		}
		result := collect.Result{Load: r.load, Requests: r.requests, Waited: r.waited, Picker: r.picker}
		for range g.Variants {
			result.Variants = append(result.Variants, collect.VariantResult{Sample: r.sample, Usages: r.uses})
		}
		all = append(all, result)
	}
	return all
}

func start(t *testing.T, objects string) *rig {
	t.Helper()
	r := &rig{
		now: began, settings: settings.NewBuilder(settings.Options{}), queues: localQueuesOf(t, objects),
		load: snapshot.Load{State: snapshot.Found, Rate: 20e6, Input: 100, Output: 100},
	}
	r.Passes = New(Params{
		Options: Options{Settings: snapshot.Settings{Split: "capacity"}, Window: time.Minute}, Log: zap.NewNop(), World: world(t, objects), LocalQueues: r.queues.BeginPass,
		Configuration: r.Settings, Prometheus: r.Collector, Publisher: r, ObservePart: r.ObservePart,
		Now: func() time.Time { return r.now },
	})
	return r
}

// pass runs a pass, and returns the desired replicas of the first group by name.
func (r *rig) pass(t *testing.T) map[string]int {
	t.Helper()
	_, _, err := r.RunPass(t.Context())
	require.NoError(t, err)
	o := r.outcomes[len(r.outcomes)-1]
	desired := map[string]int{}
	for g := range o.Snapshot.Groups {
		for i := range o.Snapshot.Groups[g].Variants {
			desired[o.Snapshot.Groups[g].Variants[i].Name] = o.Decision.Groups[g].Variants[i].Desired
		}
	}
	return desired
}

func world(t *testing.T, text string, objects ...*unstructured.Unstructured) informers.Caches {
	t.Helper()
	for part := range strings.SplitSeq(text, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(part))
		require.NoError(t, err)
		u := &unstructured.Unstructured{}
		require.NoError(t, u.UnmarshalJSON(raw))
		if u.GetKind() != "DeviceClass" { // which has no namespace
			u.SetNamespace("ns")
		}
		u.SetCreationTimestamp(metav1.NewTime(began))
		objects = append(objects, u)
	}
	caches, err := informers.Declare("").Read(kit.Snapshot{Objects: objects})
	require.NoError(t, err)
	return caches
}

const variants = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: big}, spec: {replicas: 1}, status: {readyReplicas: 1}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: small}, spec: {replicas: 1}, status: {readyReplicas: 1}}
---
apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata: {name: big}
spec:
  scaleTargetRef: {kind: Deployment, name: big}
  modelID: m
  accelerator: A
  variantCost: "40"
  minReplicas: 0
  variantProfile: {perfParms: {decodeParms: {alpha: "10", beta: "0"}, prefillParms: {gamma: "0", delta: "0"}}, maxBatchSize: 16}
---
apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata: {name: small}
spec:
  scaleTargetRef: {kind: Deployment, name: small}
  modelID: m
  accelerator: L
  variantCost: "23"
  minReplicas: 0
  variantProfile: {perfParms: {decodeParms: {alpha: "20", beta: "0"}, prefillParms: {gamma: "0", delta: "0"}}, maxBatchSize: 16}
`

func TestPass(t *testing.T) {
	t.Parallel()
	r := start(t, variants)
	interval, active, err := r.RunPass(t.Context())
	require.NoError(t, err)
	assert.Equal(t, settings.DefaultInterval, interval)
	assert.Equal(t, 2, active)
	assert.Equal(t, []string{PartVariants, PartLoad, PartDecision, PartActuate, PartReport}, r.parts)
	assert.Equal(t, map[string]int{"big": 1, "small": 1}, r.pass(t))
	r.load.Rate = 5e6
	assert.Equal(t, map[string]int{"big": 1, "small": 1}, r.pass(t), "both were wanted within the window")
	r.now = r.now.Add(2 * time.Minute)
	assert.Equal(t, map[string]int{"big": 0, "small": 1}, r.pass(t), "the window has passed")
	r.load.Rate = 50e6
	assert.Equal(t, map[string]int{"big": 3, "small": 1}, r.pass(t), "14.5 and 7.3 requests/s each")
}

// TestSaturation: thresholds of a ConfigMap count for servers without a profile, until they have room again.
func TestSaturation(t *testing.T) {
	t.Parallel()
	unprofiled := strings.Split(variants, "\n  variantProfile")[0]
	r := start(t, strings.ReplaceAll(unprofiled, "name: small}, spec: {replicas: 1}", "name: small}, spec: {replicas: 0}"))
	r.sample = &snapshot.Sample{Time: began, Window: time.Minute, Replicas: 1, Rate: 5, Input: 100, Output: 100, Running: 5, Prefill: 10,
		TTFT: 12, ITL: 10, KVUsage: 0.75}
	r.load.Rate = 5e6
	r.uses = []collect.Usage{{KV: 0.75}}
	assert.Equal(t, map[string]int{"big": 1}, r.pass(t), "there are no thresholds")
	require.Empty(t, r.settings.SetSources(settings.Saturation,
		settings.Source{Name: "s", Data: map[string]string{"default": "kvCacheThreshold: 0.8"}}))
	assert.Equal(t, map[string]int{"big": 2}, r.pass(t))
	o := r.outcomes[1]
	assert.Equal(t, &snapshot.Spare{Seen: 1, Free: 1, KV: 0.75}, o.Snapshot.Groups[0].Variants[0].Spare)
	assert.Equal(t, decision.Saturated, o.Decision.Groups[0].Variants[0].Reason)

	r.uses = []collect.Usage{{KV: 0.3}}
	r.now = r.now.Add(2 * time.Minute)
	assert.Equal(t, map[string]int{"big": 1}, r.pass(t))

	r.uses = []collect.Usage{{KV: 0.9}, {KV: 0.1, Waiting: 6}, {KV: 0.2, Waiting: 1}, {KV: 0.4, Waiting: 2}}
	r.pass(t)
	spare := r.outcomes[len(r.outcomes)-1].Snapshot.Groups[0].Variants[0].Spare
	assert.Equal(t, [2]int{4, 2}, [2]int{spare.Seen, spare.Free})
	assert.InDelta(t, 0.3, spare.KV, 1e-9)
	assert.InDelta(t, 1.5, spare.Queue, 1e-9)
}

// longPrompts is the load of two servers that start in an overload of long prompts: 24 requests run and 40 wait on each of them, and a
// prefill alone takes 2.5 s.
func longPrompts(t *testing.T) *rig {
	t.Helper()
	r := start(t, `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: v}, spec: {replicas: 2}, status: {readyReplicas: 2}}
---
apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata: {name: v}
spec: {scaleTargetRef: {kind: Deployment, name: v}, modelID: m, variantCost: "10"}
`)
	r.load = snapshot.Load{State: snapshot.Found, Rate: 2_742_857, Input: 4000, Output: 250, Waiting: 80, TTFT: 31_667, ITL: 60}
	r.sample = &snapshot.Sample{
		Time: began, Window: time.Minute, Replicas: 2, Rate: 1.371, Input: 4000, Output: 250, Running: 24, Waiting: 40, Prefill: 2500, TTFT: 31_667, ITL: 60, KVUsage: 0.95,
	}
	return r
}

// TestOverload: servers get the replicas for a stable load whatever their targets are.
func TestOverload(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, targets string // of a class; empty: none
		change        func(r *rig)
		reason        decision.Reason
		ttft          float64 // the target for the prompts of the load
	}{
		{name: "no class", reason: decision.NoTargets},
		{name: "a target that long prompts cannot meet", targets: "slo-ttft: 2000, slo-tpot: 100", reason: decision.OutOfReach, ttft: 2000},
		{name: "a strict class", targets: "slo-ttft: 500, slo-tpot: 24", reason: decision.OutOfReach, ttft: 500},
		{name: "the default class of the chart", targets: "slo-ttft: 2000, slo-ttft-per-token: 1, slo-tpot: 100", reason: decision.Optimal, ttft: 6000},
		{
			name: "half of each prompt is in a cache", targets: "slo-ttft: 2000, slo-ttft-per-token: 1, slo-tpot: 100", reason: decision.Optimal, ttft: 4000,
			change: func(r *rig) { r.load.Cached, r.sample.Cached = 0.5, 0.5 },
		},
		{
			name: "the prefill time of the engine has its queue", targets: "slo-ttft: 2000, slo-ttft-per-token: 1, slo-tpot: 100", reason: decision.OutOfReach, ttft: 6000,
			change: func(r *rig) { r.sample.Prefill = 31_000 },
		},
		{
			name: "the engine has no prefill time", targets: "slo-ttft: 500, slo-tpot: 24", reason: decision.Optimal, ttft: 500,
			change: func(r *rig) { r.sample.Prefill = 0 },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := longPrompts(t)
			if tt.targets != "" {
				require.Empty(t, r.settings.SetSources(settings.Classes,
					settings.Source{Name: "c", Data: map[string]string{"c": "data: [{model: m, " + tt.targets + "}]"}}))
			}
			if tt.change != nil {
				tt.change(r)
			}
			assert.GreaterOrEqual(t, r.pass(t)["v"], 4)
			o := r.outcomes[0]
			assert.InDelta(t, tt.ttft, o.Snapshot.Groups[0].Targets.TTFT, 1e-9)
			assert.Equal(t, tt.reason, o.Decision.Groups[0].Variants[0].Reason, o.Decision.Groups[0].Variants[0].Message)
		})
	}
}

// TestNoServiceClass: a model without targets is scaled for a stable load, whether a variant asks for a class or not, and says so.
// TestOverloadOfSeenServers: a replica serves at a stable load what it was seen to serve outside of the targets.
func TestOverloadOfSeenServers(t *testing.T) {
	t.Parallel()
	r := longPrompts(t)
	require.Empty(t, r.settings.SetSources(settings.Classes,
		settings.Source{Name: "c", Data: map[string]string{"c": "data: [{model: m, slo-tpot: 1}]"}}))
	r.load.Rate, r.load.Waiting, r.load.TTFT, r.load.ITL = 10e6, 0, 0, 60
	r.sample.Rate, r.sample.Running, r.sample.Waiting, r.sample.TTFT, r.sample.Prefill = 5, 75, 0, 0, 0
	for range 5 {
		r.now = r.now.Add(time.Minute)
		r.sample.Time = r.now
		r.pass(t)
	}
	v := r.outcomes[4].Decision.Groups[0].Variants[0]
	assert.Equal(t, decision.OutOfReach, v.Reason, v.Message)
	assert.Equal(t, int64(5e6), v.Capacity)
	assert.Equal(t, 2, v.Desired, v.Message)
}

// TestScales: the pass reads targets of other kinds, and says when it has read them all.
func TestScales(t *testing.T) {
	t.Parallel()
	r := start(t, `
apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata: {name: v}
spec: {scaleTargetRef: {apiVersion: workload.serving.volcano.sh/v1alpha1, kind: ModelServing, name: ms}, modelID: m, variantCost: "10"}
`)
	s := &scaleStub{}
	r.p.Scales = s.BeginPass
	assert.Equal(t, map[string]int{"v": 3}, r.pass(t))
	assert.Equal(t, []string{"ns/ms", "end"}, s.calls)
	assert.Equal(t, 3, r.outcomes[0].Snapshot.Groups[0].Variants[0].Now)
}

// TestOwnedTarget: while this program writes replicas, a variant whose target something else scales keeps its last decision, and the others
// serve the load.
func TestOwnedTarget(t *testing.T) {
	t.Parallel()
	r := start(t, variants)
	r.load.Rate = 50e6
	assert.Equal(t, map[string]int{"big": 3, "small": 1}, r.pass(t))
	r.p.World = world(t, variants+`
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: hpa}, spec: {maxReplicas: 9, scaleTargetRef: {kind: Deployment, name: small}}}
`)
	r.load.Rate = 100e6
	r.p.Writes = true
	got := r.pass(t)
	assert.Equal(t, 1, got["small"])
	assert.Equal(t, snapshot.TargetOwnedByAutoscaler, r.outcomes[1].Snapshot.Groups[0].Variants[1].Problem.Reason)
	assert.Equal(t, 7, got["big"], "it serves all of the load")
	r.p.Writes = false
	r.pass(t)
	assert.Nil(t, r.outcomes[2].Snapshot.Groups[0].Variants[1].Problem, "autoscalers that follow metrics concern nobody else")
}

// scaleStub has three replicas of everything.
type scaleStub struct{ calls []string }

func (s *scaleStub) BeginPass(context.Context) (read scale.Read, end func()) {
	return func(namespace string, t snapshot.Target) (*scale.Scale, error) {
		s.calls = append(s.calls, namespace+"/"+t.Name)
		return &scale.Scale{Replicas: 3, Current: 3}, nil
	}, func() { s.calls = append(s.calls, "end") }
}

func TestNoServiceClass(t *testing.T) {
	t.Parallel()
	asking := strings.ReplaceAll(variants, "modelID: m\n", "modelID: m\n  sloClassRef: {name: service-classes-config, key: premium.yaml}\n")
	classes := func(text string) func(r *rig) {
		return func(r *rig) {
			r.settings.SetSources(settings.Classes, settings.Source{Name: "c", Data: map[string]string{"other.yaml": text}})
		}
	}
	for _, tt := range []struct {
		name, objects string
		change        func(r *rig)
		reason        decision.Reason
		note          string
	}{
		{"no ConfigMap", variants, func(*rig) {}, decision.NoTargets, `; no service class lists model "m" in namespace "ns": add it to a class, or add default/default`},
		{"no ConfigMap, and a class that variants ask for", asking, func(*rig) {}, decision.NoTargets, "; no service class lists"},
		{"a ConfigMap without the model", variants, classes("data: [{model: other, slo-ttft: 500}]"), decision.NoTargets, "; no service class lists"},
		{
			"another class than the one that variants ask for", asking, classes("data: [{model: m, slo-ttft: 50000}]"), decision.Optimal,
			`; service class "premium.yaml", which the variant asks for, does not exist: "other.yaml" is in force`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, tt.objects)
			tt.change(r)
			assert.Equal(t, map[string]int{"big": 1, "small": 1}, r.pass(t))
			r.load.Rate = 50e6
			assert.Equal(t, map[string]int{"big": 3, "small": 1}, r.pass(t))
			r.load.Rate, r.now = 5e6, r.now.Add(2*time.Minute)
			assert.Equal(t, map[string]int{"big": 0, "small": 1}, r.pass(t))
			v := r.outcomes[2].Decision.Groups[0].Variants[1]
			assert.Equal(t, tt.reason, v.Reason)
			assert.Contains(t, v.Message, tt.note)
		})
	}
}

// TestClassesDisagree: where classes of two ConfigMaps give a model other targets, its variants are scaled for the stricter ones, and learn
// of both.
func TestClassesDisagree(t *testing.T) {
	t.Parallel()
	r := start(t, variants)
	source := func(name, ttft string) settings.Source {
		return settings.Source{Name: name, Data: map[string]string{"default.yaml": "data: [{model: default/default, slo-ttft: " + ttft + "}]"}}
	}
	r.settings.SetSources(settings.Classes, source("service-classes-config", "2000"), source("wva-service-classes-config", "500"))
	r.load.Rate = 1e6
	r.pass(t)
	group := r.outcomes[0].Snapshot.Groups[0]
	assert.InDelta(t, 500, group.Targets.TTFT, 0)
	assert.Nil(t, group.Variants[0].Problem)
	assert.Contains(t, r.outcomes[0].Decision.Groups[0].Variants[0].Message, `service classes "service-classes-config/default.yaml" and "wva-service-classes-config/default.yaml" disagree`)
}

// TestTrial: a cheaper variant at zero is tried once. It stays if it serves for less, and goes if it shows nothing.
func TestTrial(t *testing.T) {
	t.Parallel()
	cheap := strings.ReplaceAll(strings.Split(variants, "\n  variantProfile")[0]+"\n---\n", "name: big}, spec: {replicas: 1}, status: {readyReplicas: 1}", "name: big}, spec: {replicas: 0}") +
		"apiVersion: llmd.ai/v1alpha1" + strings.Split(variants, "apiVersion: llmd.ai/v1alpha1")[2]
	cheap = strings.Replace(cheap, `variantCost: "40"`, `variantCost: "5"`, 1)
	r := start(t, cheap)
	r.p.Trials = true
	assert.Equal(t, map[string]int{"big": 1, "small": 3}, r.pass(t))
	v := r.outcomes[0].Decision.Groups[0].Variants[0]
	assert.Equal(t, decision.Probing, v.Reason)
	r.now = r.now.Add(29 * time.Minute)
	assert.Equal(t, map[string]int{"big": 1, "small": 3}, r.pass(t))
	r.now = r.now.Add(time.Minute)
	assert.Equal(t, map[string]int{"big": 0, "small": 3}, r.pass(t), "it showed nothing")
	r.now = r.now.Add(time.Hour)
	assert.Equal(t, map[string]int{"big": 0, "small": 3}, r.pass(t), "once")
	assert.Contains(t, r.outcomes[3].Decision.Groups[0].Variants[0].Message, "a trial from 2026-01-01T00:00:00Z on did not show what one serves")

	other := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: tiny}, spec: {replicas: 0}}` + "\n---\n" +
		`{apiVersion: llmd.ai/v1alpha1, kind: VariantAutoscaling, metadata: {name: tiny}, spec: {scaleTargetRef: {kind: Deployment, name: tiny}, modelID: m, accelerator: T, variantCost: "1", minReplicas: 0}}`
	r = start(t, cheap+"\n---\n"+other)
	r.p.Trials = true
	assert.Equal(t, map[string]int{"big": 0, "small": 3, "tiny": 1}, r.pass(t))
	r.now = r.now.Add(30 * time.Minute)
	assert.Equal(t, map[string]int{"big": 0, "small": 3, "tiny": 0}, r.pass(t))
	assert.Equal(t, map[string]int{"big": 1, "small": 3, "tiny": 0}, r.pass(t), "the next one has its turn")

	r = start(t, cheap)
	r.p.Trials = true
	r.pass(t)
	r.now = r.now.Add(time.Minute)
	r.sample = &snapshot.Sample{Time: r.now, Window: time.Minute, Replicas: 1, Rate: 5, Input: 100, Output: 100, Running: 5, Prefill: 10,
		TTFT: 12, ITL: 10}
	r.pass(t)
	r.now = r.now.Add(10 * time.Minute)
	r.sample.Time = r.now
	got := r.pass(t)
	assert.Greater(t, got["big"], 1, "it serves for less")

	status := `{"desiredOptimizedAlloc":{"numReplicas":1,"lastUpdate":{"reason":"Probing"}}}`
	r = start(t, cheap+"\n---\n"+`{apiVersion: apps/v1, kind: Deployment, metadata: {name: tiny}, spec: {replicas: 1}}`+"\n---\n"+
		`{apiVersion: llmd.ai/v1alpha1, kind: VariantAutoscaling, metadata: {name: tiny}, spec: {scaleTargetRef: {kind: Deployment, name: tiny}, modelID: m, accelerator: T, variantCost: "1", minReplicas: 0}, status: `+status+`}`)
	r.p.Trials = true
	assert.Equal(t, map[string]int{"big": 0, "small": 3, "tiny": 1}, r.pass(t), "another leader began a trial")
	r.now = r.now.Add(31 * time.Minute)
	assert.Equal(t, 0, r.pass(t)["tiny"], "which ends, too")
}

// A failure of Prometheus, or a missing address, changes nothing.
func TestPass_WithoutPrometheus(t *testing.T) {
	t.Parallel()
	r := start(t, variants)
	r.fails = errors.New("PROMETHEUS_BASE_URL is missing")
	assert.Equal(t, map[string]int{"big": 1, "small": 1}, r.pass(t))
	group := r.outcomes[0].Snapshot.Groups[0]
	assert.Equal(t, snapshot.Load{State: snapshot.Failed, Message: "PROMETHEUS_BASE_URL is missing"}, group.Load)
}

func TestReset(t *testing.T) {
	t.Parallel()
	r := start(t, variants)
	r.pass(t)
	key := r.outcomes[0].Snapshot.Groups[0].Variants[0].Key()
	assert.True(t, r.memory.VariantFor(key, time.Now()).Decided)
	r.Reset()
	assert.False(t, r.memory.VariantFor(key, time.Now()).Decided)
	assert.Equal(t, 2, r.cleared, "at the start, and now")
}

// TestTooManyLimits: a limit of each namespace makes more of them than the optimizer takes. The groups of the newest namespaces keep their
// replicas, whatever their names are, and the others are decided.
func TestTooManyLimits(t *testing.T) {
	t.Parallel()
	const namespaces = 1200
	s := settings.NewBuilder(settings.Options{})
	require.Empty(t, s.SetSources(settings.Limits, settings.Source{Name: "limits", Data: map[string]string{
		"all": `{namespace: "*", replicas: 10}`, "more": `{namespace: ns-0900, cards: 7, cost: "5"}`, "together": `{cards: 5000}`,
	}}))
	found := &sources.Result{}
	for i := range namespaces {
		v := sources.Variant{Created: began.Add(-time.Duration(i) * time.Minute), Variant: snapshot.Variant{
			Namespace: fmt.Sprintf("ns-%04d", i), Name: "v", Cards: 1, Cost: 1, Now: 1, Ready: 1, Held: 1, Profile: &snapshot.Profile{Alpha: 10, MaxBatch: 16},
		}}
		found.Groups = append(found.Groups, sources.Group{GroupKey: snapshot.GroupKey{Namespace: v.Namespace, Model: "m"},
			Variants: []sources.Variant{v}})
	}
	r := start(t, variants)
	snap := r.buildSnapshot(t.Context(), s.Settings(), found, began)
	assert.Len(t, snap.Limits, optimizer.MaxLimits)
	excluded := 0
	for i := range snap.Groups {
		if p := snap.Groups[i].Variants[0].Problem; p != nil {
			assert.Equal(t, snapshot.LimitExceeded, p.Reason)
			assert.Less(t, i, 203, "the newest")
			excluded++
		}
	}
	assert.Equal(t, namespaces+3-optimizer.MaxLimits, excluded, "one limit is for all together, and one namespace has three")
	d, err := decision.Decide(snap)
	require.NoError(t, err)
	assert.Equal(t, 2, d.Groups[namespaces-1].Variants[0].Desired, "20 requests/s at 14.5 for each replica")
	assert.Equal(t, 1, d.Groups[0].Variants[0].Desired)
}

// TestManyVariants: a namespace with twenty thousand variants, older than all others, costs nobody else anything.
func TestManyVariants(t *testing.T) {
	t.Parallel()
	ordinary := start(t, variants)
	want := ordinary.pass(t)
	r := start(t, variants)
	var objects []*unstructured.Unstructured
	for i := range 20_000 {
		name := fmt.Sprintf("v-%05d", i)
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
			"spec": map[string]any{"modelID": "m", "variantCost": "10000000", "scaleTargetRef": map[string]any{"kind": "Deployment", "name": name}},
		}}
		u.SetNamespace("aaa")
		u.SetName(name)
		u.SetCreationTimestamp(metav1.NewTime(began.Add(-time.Hour)))
		objects = append(objects, u)
	}
	r.p.World = world(t, variants, objects...)
	got := r.pass(t)
	for name, n := range want {
		assert.Equal(t, n, got[name])
	}
	o := r.outcomes[0]
	assert.Len(t, o.Sources.Rejected, 19_000)
	assert.Equal(t, snapshot.LimitExceeded, o.Sources.Rejected[0].Problem.Reason)
}
