package holds

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/externalscaler"
	"fairlead.dev/services/variant-autoscaler/internal/promclient"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// sleepers has two models without replicas in namespace ns, and one that runs.
type sleepers struct {
	*externalscaler.Table
	*Waker

	waits  *Table
	logs   *observer.ObservedLogs
	passes int
	woken  int
	answer []promclient.Series

	mu      sync.Mutex
	fails   error
	queries int
}

func (w *sleepers) CountWakeUp() { w.woken++ }

func (w *sleepers) Enqueue() { w.passes++ }

func (w *sleepers) Query(context.Context, string) ([]promclient.Series, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queries++
	return w.answer, w.fails
}

// fail lets queries fail from now on, and returns how many there were.
func (w *sleepers) fail(err error) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = err
	return w.queries
}

func named(name string) snapshot.Variant { return snapshot.Variant{Namespace: "ns", Name: name} }

func newSleepers() *sleepers {
	core, logs := observer.New(zap.InfoLevel)
	w := &sleepers{Table: externalscaler.NewTable(), waits: NewTable(), logs: logs}
	w.Waker = NewWaker(WakerParams{Log: zap.New(core), Table: w.Table, Waits: w.waits, CountWakeUp: w.CountWakeUp, Enqueue: w.Enqueue})
	w.Publish([]decision.ActedVariant{
		{Variant: named("a"), Pool: "p", Model: "m", Standby: true}, {Variant: named("b"), Pool: "p", Model: "m"},
		{Variant: named("c"), Pool: "q", Model: "m", Standby: true}, {Variant: named("d"), Pool: "p", Model: "n", Desired: 1},
	})
	return w
}

// awake returns the variants that have replicas.
func (w *sleepers) awake() (names []string) {
	for _, name := range []string{"a", "b", "c", "d"} {
		if n, err := w.Lookup(externalscaler.Query{Namespace: "ns", Variant: name}); err == nil && n > 0 {
			names = append(names, name)
		}
	}
	return names
}

func modelKey(pool, model string) snapshot.ModelKey {
	return snapshot.PoolKey{Namespace: "ns", Name: pool}.WithModel(model)
}

func TestOnHold(t *testing.T) {
	t.Parallel()
	w := newSleepers()
	for range 3 {
		w.OnHold(modelKey("p", "m"))
		w.OnHold(modelKey("p", "n")) // it has replicas
		w.OnHold(modelKey("p", "nobody's"))
	}
	assert.Equal(t, []string{"a", "d"}, w.awake())
	assert.Equal(t, 1, w.passes, "a pass decides on what follows")
	assert.Equal(t, 1, w.woken)
	assert.Equal(t, 1, w.logs.FilterMessage("Woke a model, as requests wait").Len())
	w.Publish([]decision.ActedVariant{{Variant: named("e"), Pool: "p", Model: "full"}})
	w.OnHold(modelKey("p", "full"))
	assert.Equal(t, 2, w.passes, "limits left no room, so a pass decides")
	assert.Equal(t, 1, w.woken)
	w.EndTerm()
	w.OnHold(modelKey("q", "m"))
	assert.Equal(t, 2, w.passes, "only the leader wakes")
}

// TestRequestsThatWaitBeforeADecision: the first one is reported only once. Nobody can start a model then that no decision knows.
func TestRequestsThatWaitBeforeADecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSleepers()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.Run(ctx)
		w.waits.OnHold(w.OnHold)
		w.waits.SetModels([]snapshot.ModelKey{modelKey("p", "m"), modelKey("q", "m"), modelKey("p", "new")})
		w.EndTerm()
		w.waits.Observe(snapshot.PoolKey{Namespace: "ns", Name: "p"}, "picker", map[string]int{"m": 2, "new": 1})
		assert.Zero(t, w.woken)

		w.Publish([]decision.ActedVariant{
			{Variant: named("a"), Pool: "p", Model: "m", Standby: true}, {Variant: named("b"), Pool: "p", Model: "m", Standby: true},
			{Variant: named("c"), Pool: "q", Model: "m", Standby: true},
		})
		synctest.Wait()
		assert.Equal(t, []string{"a", "b"}, w.awake(), "both roles of the model that requests wait for")
		assert.Equal(t, 1, w.woken)
		assert.Equal(t, 1, w.passes)

		w.Publish([]decision.ActedVariant{{Variant: named("d"), Pool: "p", Model: "new", Standby: true}})
		synctest.Wait()
		assert.Equal(t, []string{"d"}, w.awake(), "a model that the decision before did not know")
		w.waits.Observe(snapshot.PoolKey{Namespace: "ns", Name: "p"}, "picker", nil)
		w.Publish([]decision.ActedVariant{{Variant: named("a"), Pool: "p", Model: "m", Standby: true}})
		synctest.Wait()
		assert.Empty(t, w.awake(), "nothing waits any more")
		assert.Equal(t, 2, w.passes)
	})
}

// queueSeries returns a series of a picker's queue.
func queueSeries(pool, target, model string) promclient.Series {
	return promclient.Series{Labels: map[string]string{"namespace": "ns", "inference_pool": pool, "target_model_name": target, "model_name": model}, Value: 1}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		answer []promclient.Series
		want   []string
	}{
		{"nothing waits", nil, []string{"d"}},
		{"for a model", []promclient.Series{queueSeries("q", "m", "alias")}, []string{"c", "d"}},
		{"without a target", []promclient.Series{queueSeries("p", "", "m")}, []string{"a", "d"}},
		{"a pool that is not named could be either", []promclient.Series{queueSeries("", "m", "")}, []string{"d"}},
		{"another namespace", []promclient.Series{{Labels: map[string]string{"namespace": "other", "inference_pool": "p", "model_name": "m"}, Value: 1}}, []string{"d"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newSleepers()
			w.answer = tt.answer
			NewQueueWatcher(zap.NewNop(), w.Waker, w).checkQueues(t.Context())
			assert.Equal(t, tt.want, w.awake())
		})
	}
	w := newSleepers()
	w.OnHold(modelKey("q", "m"))
	w.answer = []promclient.Series{queueSeries("", "m", "")}
	NewQueueWatcher(zap.NewNop(), w.Waker, w).checkQueues(t.Context())
	assert.Equal(t, []string{"a", "c", "d"}, w.awake(), "the only one that is asleep")

	w = newSleepers()
	w.Publish([]decision.ActedVariant{{Variant: named("a"), Pool: "p", Model: "m", Standby: true}, {Variant: named("b"), Pool: "p", Model: "m", Standby: true}})
	w.answer = []promclient.Series{queueSeries("", "m", "")}
	NewQueueWatcher(zap.NewNop(), w.Waker, w).checkQueues(t.Context())
	assert.Equal(t, []string{"a", "b"}, w.awake(), "both roles of the model of the only pool")
	assert.Equal(t, []any{[]any{"a", "b"}}, []any{w.logs.FilterMessage("Woke a model, as requests wait").All()[0].ContextMap()["variants"]})
	assert.Equal(t, 1, w.woken)
}

// TestQueuesWhileNeeded: Prometheus is asked every five seconds, and only while a model is asleep. An outage is reported once.
func TestQueuesWhileNeeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSleepers()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		core, logs := observer.New(zap.WarnLevel)
		go NewQueueWatcher(zap.New(core), w.Waker, w).Run(ctx)
		time.Sleep(21 * time.Second)
		synctest.Wait()
		assert.Equal(t, 4, w.fail(errors.New("refused")))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Equal(t, 8, w.fail(nil))
		assert.Equal(t, 1, logs.Len())
		w.EndTerm()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 8, w.fail(nil), "this replica does not lead")
	})
}
