package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// idle is a HorizontalPodAutoscaler that does nothing at zero.
var idle = sources.Ownership{Follower: "HorizontalPodAutoscaler hpa", Idle: true}

// cluster has targets, none of which has replicas.
type cluster struct {
	*Starter

	logs *observer.ObservedLogs

	mu     sync.Mutex
	owner  sources.Ownership
	late   *sources.Ownership // immediately before a write
	lease  error
	fails  error
	writes []scale.Change
}

func (w *cluster) Write(_ context.Context, c scale.Change, permit func() error) (bool, error) {
	w.mu.Lock()
	if w.late != nil {
		w.owner = *w.late
	}
	fails := w.fails
	w.mu.Unlock()
	if fails != nil {
		return false, fails
	}
	if err := permit(); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, c)
	return true, nil
}

func (w *cluster) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lease
}

func newCluster(t *testing.T, wakeIdle, writes bool) *cluster {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	w := &cluster{logs: logs, owner: idle}
	w.Starter = NewStarter(StarterParams{Log: zap.New(core), Now: time.Now, Targets: NewTargets(TargetsParams{
		WriteScale: w.Write, CheckLease: w.Check, WakeIdle: wakeIdle, Writes: writes,
		Ownership: func(string, snapshot.Target) sources.Ownership {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.owner
		},
	})})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// asked returns the writes after a change of the world, which Start or Publish follow.
func (w *cluster) asked(act func()) int {
	act()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.writes)
}

func (w *cluster) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func deployment(name string) snapshot.Target {
	return snapshot.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
}

// decided is a decision on a variant for which requests wait.
func decided(desired, current int) []decision.ActedVariant {
	return []decision.ActedVariant{{
		Variant: snapshot.Variant{Namespace: "ns", Name: "v", Target: deployment("x"), Now: current}, Desired: desired, Waits: true,
	}}
}

// TestStartOnce: a target gets one replica, once, until it had replicas or ten minutes have passed.
func TestStartOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t, true, false)
		publish := func(desired, current int) func() { return func() { w.Publish(decided(desired, current)) } }
		assert.Equal(t, 1, w.asked(func() { w.Start(&decided(0, 0)[0]) }), "before the pass decides")
		assert.Equal(t, scale.Change{Namespace: "ns", Target: deployment("x"), From: 0, To: 1}, w.writes[0])
		assert.Equal(t, 1, w.asked(publish(3, 0)), "the pass, which does not see it yet")
		time.Sleep(startAgain)
		assert.Equal(t, 2, w.asked(publish(1, 0)), "somebody took it away")
		assert.Equal(t, 2, w.asked(publish(1, 1)))
		assert.Equal(t, 2, w.asked(publish(0, 0)), "the model sleeps")
		assert.Equal(t, 3, w.asked(publish(1, 0)), "and wakes again")
		w.EndTerm()
		assert.Equal(t, 4, w.asked(publish(1, 0)), "another term")
	})
}

// TestStartNever: with another writer, this program writes nothing.
func TestStartNever(t *testing.T) {
	t.Parallel()
	wakeful := decided(1, 0)
	quiet := decided(1, 0)
	quiet[0].Waits = false
	loser := decided(1, 0)
	loser[0].Resolution = decision.Suppressed
	tests := []struct {
		name     string
		give     []decision.ActedVariant
		wakeIdle bool
		writes   bool
		change   func(w *cluster)
		want     int
		message  string
	}{
		{"nothing acts at zero", wakeful, true, false, func(*cluster) {}, 1, "Started a target without replicas"},
		{"this program writes replicas, and nothing else does", wakeful, false, true, func(w *cluster) { w.owner = sources.Ownership{} }, 1, "Started a target without replicas"},
		{"KEDA, or an autoscaler that acts at zero", wakeful, true, false, func(w *cluster) { w.owner = sources.Ownership{Follower: "ScaledObject so"} }, 0, ""},
		{"KEDA has come", wakeful, true, false, func(w *cluster) { w.late = &sources.Ownership{Follower: "ScaledObject so"} }, 0, ""},
		{"not permitted", wakeful, false, false, func(*cluster) {}, 0, "set --wake-hpa-targets"},
		{"no request waits", quiet, true, false, func(*cluster) {}, 0, ""},
		{"another variant has the target", loser, true, false, func(*cluster) {}, 0, ""},
		{"another replica leads", wakeful, true, false, func(w *cluster) { w.lease = errors.New("the Lease was not renewed") }, 0, "The next pass tries again"},
		{"somebody was faster", wakeful, true, false, func(w *cluster) { w.fails = fmt.Errorf("%w: there are 2", scale.ErrChanged) }, 0, ""},
		{"forbidden", wakeful, true, false, func(w *cluster) { w.fails = scale.ErrForbidden }, 0, "The next pass tries again"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t, tt.wakeIdle, tt.writes)
				w.set(func() { tt.change(w) })
				assert.Equal(t, tt.want, w.asked(func() { w.Publish(tt.give) }))
				w.asked(func() { w.Publish(tt.give) })
				assert.Equal(t, tt.message == "", w.logs.Len() == 0, "%v", w.logs.All())
				for _, entry := range w.logs.All() {
					assert.Contains(t, entry.Message, tt.message)
				}
			})
		})
	}
}

// TestStartAgainAfterAFailure: a write that failed is repeated by the next pass.
func TestStartAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t, true, false)
		w.set(func() { w.fails = scale.ErrBusy })
		assert.Zero(t, w.asked(func() { w.Publish(decided(1, 0)) }))
		w.set(func() { w.fails = nil })
		assert.Equal(t, 1, w.asked(func() { w.Publish(decided(1, 0)) }))
	})
}

// TestManyStarts: what finds no place in the queue is asked for by the next pass.
func TestManyStarts(t *testing.T) {
	t.Parallel()
	s := NewStarter(StarterParams{Log: zap.NewNop(), Now: time.Now, Targets: NewTargets(TargetsParams{
		WakeIdle: true, Ownership: func(string, snapshot.Target) sources.Ownership { return idle },
	})})
	var all []decision.ActedVariant
	for i := range maxStarts + 10 {
		all = append(all, decided(1, 0)[0])
		all[i].Target.Name = fmt.Sprint(i)
	}
	s.Publish(all) // nobody writes
	assert.Len(t, s.queue, maxStarts)
	assert.Len(t, s.started, maxStarts)
}
