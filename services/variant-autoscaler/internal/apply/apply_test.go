package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an Applier with targets that have replicas.
type rig struct {
	*Applier

	mu       sync.Mutex
	replicas map[string]int // by namespace/name
	fails    map[string]error
	owned    map[string]sources.Ownership
	lost     error                  // of the Lease
	before   func(c scale.Change)   // each write
	wait     func(context.Context)  // in each write
	writes   []string               // in their order
	counts   map[string]int         // results
	logs     *observer.ObservedLogs // at Info and above
}

func start() *rig {
	core, logs := observer.New(zapcore.InfoLevel)
	r := &rig{replicas: map[string]int{}, fails: map[string]error{}, owned: map[string]sources.Ownership{}, counts: map[string]int{}, logs: logs}
	r.Applier = New(Params{Log: zap.New(core), Meter: r, Now: time.Now, Targets: NewTargets(TargetsParams{WriteScale: r.Write, CheckLease: r.Check, Writes: true, Ownership: func(namespace string, t snapshot.Target) sources.Ownership {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.owned[namespace+"/"+t.Name]
	}})})
	return r
}

// Write implements writer as scale.Writer does.
func (r *rig) Write(ctx context.Context, c scale.Change, permit func() error) (bool, error) {
	if r.before != nil {
		r.before(c)
	}
	if r.wait != nil {
		r.wait(ctx)
	}
	if ctx.Err() != nil {
		return false, fmt.Errorf("%w: %w", scale.ErrBusy, ctx.Err())
	}
	r.mu.Lock()
	key := c.Namespace + "/" + c.Target.Name
	present, err := r.replicas[key], r.fails[key]
	r.mu.Unlock()
	switch {
	case err != nil:
		return false, err
	case present == c.To:
		return false, nil
	case present != c.From:
		return false, fmt.Errorf("%w: there are %d instead of %d", scale.ErrChanged, present, c.From)
	}
	if err := permit(); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replicas[key] = c.To
	r.writes = append(r.writes, fmt.Sprintf("%s %d", key, c.To))
	return true, nil
}

func (r *rig) Check() error { return r.lost }

func (r *rig) CountWrite(result string) { r.counts[result]++ }

func (r *rig) CountOverwrite() { r.counts["overwrote"]++ }

// variant returns a variant whose target has replicas in the rig, as the caches had them.
func (r *rig) variant(namespace, name string, current, desired int) decision.ActedVariant {
	key := namespace + "/" + name
	if _, known := r.replicas[key]; !known {
		r.replicas[key] = current
	}
	return decision.ActedVariant{
		Variant: snapshot.Variant{
			Namespace: namespace, Name: name, Source: snapshot.VariantAutoscaling,
			Target: snapshot.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: name}, Now: current,
		},
		Desired: desired, Reason: decision.Optimal,
	}
}

// apply returns the outcome of one variant.
func (r *rig) apply(t *testing.T, v decision.ActedVariant) decision.Outcome {
	t.Helper()
	all := r.Apply(t.Context(), []decision.ActedVariant{v})
	require.Len(t, all, 1)
	return all[0]
}

func TestApply(t *testing.T) {
	t.Parallel()
	r := start()
	got := r.apply(t, r.variant("a", "chat", 2, 5))
	assert.Equal(t, decision.Outcome{Applied: true, Reason: "Scaled", Message: "Deployment chat has the desired replicas", Event: "Scaled Deployment chat from 2 to 5 replicas"}, got)
	assert.Equal(t, []string{"a/chat 5"}, r.writes)

	got = r.apply(t, r.variant("a", "chat", 5, 5))
	assert.Equal(t, decision.Outcome{Applied: true, Reason: "Scaled", Message: "Deployment chat has the desired replicas"}, got)
	got = r.apply(t, r.variant("a", "chat", 2, 5)) // a cache that is late
	assert.True(t, got.Applied)
	assert.Empty(t, got.Event)
	assert.Len(t, r.writes, 1, "equal replicas are not written")

	assert.True(t, r.apply(t, r.variant("a", "chat", 5, 0)).Applied, "zero is a number")
	assert.Equal(t, []string{"a/chat 5", "a/chat 0"}, r.writes)
	assert.Equal(t, map[string]int{"Scaled": 3}, r.counts)
	assert.Equal(t, 2, r.logs.FilterMessage("Scaled a target").Len())
}

// TestNoWrite: what has an owner, a problem or no decision keeps its replicas.
func TestNoWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(r *rig, v *decision.ActedVariant)
		want   decision.Outcome
	}{
		{"another variant has the target", func(_ *rig, v *decision.ActedVariant) { v.Resolution = decision.Suppressed }, decision.Outcome{}},
		{"the variant has a problem", func(_ *rig, v *decision.ActedVariant) { v.Reason = decision.Excluded }, decision.Outcome{}},
		{"an autoscaler follows", func(r *rig, _ *decision.ActedVariant) {
			r.owned["a/chat"] = sources.Ownership{Follower: "HorizontalPodAutoscaler hpa"}
		}, decision.Outcome{Applied: true, Reason: "Published", Message: "HorizontalPodAutoscaler hpa follows the desired replicas"}},
		{"an autoscaler does not follow", func(r *rig, _ *decision.ActedVariant) {
			r.owned["a/chat"] = sources.Ownership{Problem: &snapshot.Problem{Reason: "TargetOwnedByAutoscaler", Message: "hpa scales it"}}
		}, decision.Outcome{Reason: "TargetOwnedByAutoscaler", Message: "hpa scales it"}},
		{"and the replicas are as desired", func(r *rig, v *decision.ActedVariant) {
			r.owned["a/chat"] = sources.Ownership{Problem: &snapshot.Problem{Reason: "TargetOwnedByController", Message: "an InferenceService controls it"}}
			v.Desired = v.Now
		}, decision.Outcome{Reason: "TargetOwnedByController", Message: "an InferenceService controls it"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start()
			v := r.variant("a", "chat", 2, 5)
			tt.change(r, &v)
			assert.Equal(t, tt.want, r.apply(t, v))
			assert.Empty(t, r.writes)
			assert.Empty(t, r.counts)
		})
	}
}

// TestOwnerThatAppears: an autoscaler that comes while a target is read keeps it from being written.
func TestOwnerThatAppears(t *testing.T) {
	t.Parallel()
	for reason, owner := range map[string]sources.Ownership{
		"TargetOwnedByAutoscaler": {Problem: &snapshot.Problem{Reason: "TargetOwnedByAutoscaler", Message: "HorizontalPodAutoscaler hpa scales it: delete it"}},
		"NotApplied":              {Follower: "ScaledObject so"},
	} {
		r := start()
		r.before = func(scale.Change) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.owned["a/chat"] = owner
		}
		got := r.apply(t, r.variant("a", "chat", 2, 5))
		assert.False(t, got.Applied)
		assert.Equal(t, reason, got.Reason)
		assert.Empty(t, r.writes)
		assert.Equal(t, map[string]int{reason: 1}, r.counts)
	}
}

// TestFailures: each has a reason and a remedy, and costs no other variant anything.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		err            error
		reason, remedy string
	}{
		{"conflict", fmt.Errorf("%w: there are 9 instead of 2", scale.ErrChanged), "ScaleConflict", "find out who else scales it"},
		{"busy", fmt.Errorf("%w: 429", scale.ErrBusy), "ScaleDeferred", "see the load of the API server"},
		{"forbidden", fmt.Errorf("%w: grant update", scale.ErrForbidden), "ScaleForbidden", "grant update"},
		{"anything else", errors.New("internal error"), "ScaleFailed", "internal error. The next pass tries again"},
		{"gone", scale.ErrNotFound, "ScaleFailed", "does not exist"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start()
			r.fails["a/chat"] = tt.err
			variants := []decision.ActedVariant{r.variant("a", "chat", 2, 5), r.variant("a", "code", 1, 2)}
			for range 3 {
				got := r.Apply(t.Context(), variants)
				assert.False(t, got[0].Applied)
				assert.Equal(t, tt.reason, got[0].Reason)
				assert.Contains(t, got[0].Message, "Deployment chat does not have the desired replicas: ")
				assert.Contains(t, got[0].Message, tt.remedy)
				assert.True(t, got[1].Applied)
			}
			assert.Equal(t, 3, r.counts[tt.reason])
			assert.Equal(t, 1, r.logs.FilterMessage("Could not scale a target").Len(), "once, until it is another reason")
			delete(r.fails, "a/chat")
			assert.True(t, r.Apply(t.Context(), variants)[0].Applied)
			assert.Equal(t, 5, r.replicas["a/chat"])
		})
	}
}

// TestSomebodyElseScales: the next pass decides on replicas that somebody has set, and a write over them is counted.
func TestSomebodyElseScales(t *testing.T) {
	t.Parallel()
	r := start()
	r.apply(t, r.variant("a", "chat", 2, 5))
	r.replicas["a/chat"] = 9
	assert.Equal(t, "ScaleConflict", r.apply(t, r.variant("a", "chat", 5, 6)).Reason, "the decision was made on 5")
	assert.Equal(t, 9, r.replicas["a/chat"])
	assert.True(t, r.apply(t, r.variant("a", "chat", 9, 6)).Applied)
	assert.Equal(t, 1, r.counts["overwrote"])
	assert.True(t, r.apply(t, r.variant("a", "chat", 6, 7)).Applied)
	assert.Equal(t, 1, r.counts["overwrote"], "nobody has changed it since")

	r.Apply(t.Context(), nil)
	assert.Empty(t, r.written, "targets without a variant are forgotten")
}

// TestContest: a program that changes the replicas after each write, as one that applies a manifest does, gets a few writes, then a
// condition. A write of somebody who does so once in a while is not refused.
func TestContest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start()
		contest := func() decision.Outcome {
			r.replicas["a/chat"] = 1 // the manifest
			time.Sleep(time.Minute)
			return r.apply(t, r.variant("a", "chat", 1, 5))
		}
		for range 1 + maxOverwrites {
			assert.True(t, contest().Applied)
		}
		for range int(overwriteTime/time.Minute) - maxOverwrites {
			got := contest()
			assert.Equal(t, "ScaleConflict", got.Reason)
			assert.Contains(t, got.Message, "Leave replicas out of the manifests")
			assert.Contains(t, got.Message, "after each of 3 writes within 30m0s")
		}
		assert.Len(t, r.writes, 1+maxOverwrites)
		assert.Equal(t, 1, r.logs.FilterMessage("Could not scale a target").Len())
		for range 3 {
			contest()
		}
		assert.Len(t, r.writes, 4+maxOverwrites, "again, and no more often")
		assert.Equal(t, "ScaleConflict", contest().Reason)

		r.replicas["a/chat"] = 5 // the manifest has no replicas any more
		assert.True(t, r.apply(t, r.variant("a", "chat", 5, 6)).Applied)
	})
}

// TestLeaderLoss has a leader that loses its Lease between two writes. It stops writing, and the next leader starts from the present
// replicas.
func TestLeaderLoss(t *testing.T) {
	t.Parallel()
	const targets = 50
	old := start()
	ctx, lose := context.WithCancel(t.Context())
	old.before = func(c scale.Change) {
		if c.Target.Name == "v-20" {
			lose()
		}
	}
	var variants []decision.ActedVariant
	for i := range targets {
		variants = append(variants, old.variant("a", fmt.Sprintf("v-%02d", i), 2, 3))
	}
	outcomes := old.Apply(ctx, variants)
	assert.Less(t, len(old.writes), targets)
	for i, o := range outcomes {
		if !o.Applied {
			assert.Equal(t, 2, old.replicas["a/"+variants[i].Name])
		}
	}

	next := start()
	next.replicas = old.replicas
	next.Apply(t.Context(), variants) // its cache is as old as that of the first
	for _, v := range variants {
		assert.Equal(t, 3, next.replicas["a/"+v.Name], "one step")
	}
	assert.Len(t, append(old.writes, next.writes...), targets)
}

// TestStoppedLeader: a process that was stopped after it had read a target does not write it: its Lease is old, or another one has written.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	r := start()
	r.before = func(scale.Change) { r.lost = errors.New("the Lease was renewed 9s ago") }
	got := r.apply(t, r.variant("a", "chat", 2, 3))
	assert.Equal(t, "NotApplied", got.Reason)
	assert.Contains(t, got.Message, "renewed 9s ago")
	assert.Empty(t, r.writes)

	r = start()
	v := r.variant("a", "chat", 2, 3)
	r.replicas["a/chat"] = 4 // of the successor, whose load was another one
	assert.Equal(t, "ScaleConflict", r.apply(t, v).Reason)
	assert.Equal(t, 4, r.replicas["a/chat"])
}

// TestTime: a pass has a bounded time, and namespaces take turns: many slow targets of one leave time for others.
func TestTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start()
		takes := time.Second
		r.wait = func(ctx context.Context) {
			select {
			case <-ctx.Done():
			case <-time.After(takes):
			}
		}
		var variants []decision.ActedVariant
		for i := range 1000 {
			variants = append(variants, r.variant("aaa", fmt.Sprintf("v-%04d", i), 1, 2))
		}
		variants = append(variants, r.variant("zzz", "first", 1, 2), r.variant("zzz", "second", 1, 2))
		began := time.Now()
		outcomes := r.Apply(t.Context(), variants)
		assert.LessOrEqual(t, time.Since(began), writeTime)
		assert.True(t, outcomes[1000].Applied)
		assert.True(t, outcomes[1001].Applied)
		left := slices.IndexFunc(outcomes, func(o decision.Outcome) bool { return o.Reason == "ScaleDeferred" })
		require.GreaterOrEqual(t, left, 0)
		assert.Contains(t, outcomes[left].Message, "The next pass tries again")
		assert.LessOrEqual(t, len(r.writes), workers*int(writeTime/takes))

		takes = time.Hour
		began = time.Now()
		r.Apply(t.Context(), []decision.ActedVariant{r.variant("b", "slow", 1, 2)})
		assert.Equal(t, targetTime, time.Since(began))
	})
}
