package trigger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zapobserver "go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

// world is a Trigger under test, its variants, and what it did. It runs in a bubble with a fake clock.
type world struct {
	*Trigger

	began time.Time
	logs  *zapobserver.ObservedLogs
	stop  context.CancelFunc // ends the term gently
	lose  context.CancelFunc // loses the Lease
	done  chan struct{}      // closed at the end of the term

	mu       sync.Mutex
	names    []string // of variants
	interval time.Duration
	takes    time.Duration // time of a pass
	fail     error
	starts   []time.Duration
	results  []Result
	// successes are the ends of passes that succeeded.
	successes []time.Duration
	waits     []time.Duration
}

// newWorld returns a world in the bubble of a test. The Trigger does not lead yet.
func newWorld(t *testing.T) *world {
	t.Helper()
	core, logs := zapobserver.New(zapcore.DebugLevel)
	w := &world{began: time.Now(), logs: logs, names: []string{"a", "b"}, interval: time.Minute, takes: time.Second, done: make(chan struct{})}
	close(w.done)
	w.Trigger = New(Params{Log: zap.New(core), RunPass: w.RunPass, CountVariants: w.countVariants, Observer: w})
	t.Cleanup(func() {
		if w.stop != nil {
			w.lose()
			w.stop()
		}
		<-w.done
	})
	return w
}

// lead begins a term.
func (w *world) lead(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	lease, lose := context.WithCancel(context.WithoutCancel(t.Context()))
	w.stop, w.lose, w.done = stop, lose, make(chan struct{})
	go func() {
		defer close(w.done)
		w.Lead(ctx, lease)
	}()
	synctest.Wait()
}

// sleep lets time pass.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// set changes the world.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// RunPass is a pass.
func (w *world) RunPass(ctx context.Context) (time.Duration, int, error) {
	w.mu.Lock()
	w.starts = append(w.starts, time.Since(w.began))
	takes := w.takes
	w.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return 0, 0, fmt.Errorf("read load: %w", ctx.Err())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.interval, len(w.names), w.fail
}

// countVariants returns the variants of the world.
func (w *world) countVariants() (total int, first string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.names) == 0 {
		return 0, ""
	}
	return len(w.names), w.names[0]
}

// CountPass implements observer.
func (w *world) CountPass(result string, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if took > w.takes {
		result += " late"
	}
	w.results = append(w.results, Result(result))
}

// MarkSuccess implements observer.
func (w *world) MarkSuccess(end time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.successes = append(w.successes, end.Sub(w.began))
}

// SetInterval implements observer.
func (w *world) SetInterval(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = append(w.waits, d)
}

// assertStarts compares the times at which passes began, since the test began, to the second.
func (w *world) assertStarts(t *testing.T, want ...int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []int
	for _, d := range w.starts {
		got = append(got, int(d/time.Second))
	}
	assert.Equal(t, want, got)
}

// object is what the handler gets in these tests: relevance is decided elsewhere.
type object struct{ generation, status int }

// handler returns a handler under which a change of the generation, or a creation, is relevant.
func (w *world) handler() cache.ResourceEventHandler {
	return w.Handler(func(before, after any) bool {
		old, _ := before.(*object)
		return old == nil || old.generation != after.(*object).generation
	})
}

// Row 1: the interval counts from the end of a pass.
func TestTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = 5 * time.Second
		w.lead(t)
		sleep(4 * time.Minute)
		w.assertStarts(t, 0, 65, 130, 195)
		assert.Equal(t, []Result{Succeeded, Succeeded, Succeeded, Succeeded}, w.results)
		assert.Equal(t, time.Minute, w.waits[0])
	})
}

// Rows 2 to 5 and 8 to 10.
func TestObjects(t *testing.T) {
	tests := []struct {
		name   string
		event  func(h cache.ResourceEventHandler)
		passes int
	}{
		{"created", func(h cache.ResourceEventHandler) { h.OnAdd(&object{1, 0}, false) }, 1},
		{"created before the list was complete", func(h cache.ResourceEventHandler) { h.OnAdd(&object{1, 0}, true) }, 1},
		{"spec updated", func(h cache.ResourceEventHandler) { h.OnUpdate(&object{1, 0}, &object{2, 0}) }, 1},
		{"status updated", func(h cache.ResourceEventHandler) { h.OnUpdate(&object{1, 0}, &object{1, 1}) }, 0},
		{"deleted", func(h cache.ResourceEventHandler) { h.OnDelete(&object{1, 0}) }, 0},
		{"deleted while the watch was interrupted", func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: &object{1, 0}}) }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.lead(t)
				sleep(30 * time.Second)
				tt.event(w.handler())
				sleep(30 * time.Second)
				want := []int{0, 30}[:1+tt.passes]
				w.assertStarts(t, want...)
				sleep(32 * time.Second) // the timer counts from the last pass, whatever started it
				w.assertStarts(t, append(want, []int{61, 91}[tt.passes])...)
			})
		})
	}
}

// Rows 6 and 7, and what is not in the table.
func TestConfigMaps(t *testing.T) {
	tests := map[settings.Kind]int{
		settings.Optimization: 1, settings.Zero: 1, settings.Limits: 1, settings.Accelerators: 0, settings.Classes: 0, settings.Saturation: 0,
	}
	require.Len(t, tests, len(settings.Kinds()))
	for kind, passes := range tests {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.lead(t)
				sleep(30 * time.Second)
				w.ConfigMapChanged(kind, "config")
				sleep(20 * time.Second)
				w.assertStarts(t, []int{0, 30}[:1+passes]...)
				logged := w.logs.FilterMessage("ConfigMap changed, triggering global reconciliation")
				require.Equal(t, passes, logged.Len())
				if passes > 0 {
					assert.Equal(t, map[string]any{"configMap": "config", "totalVAs": int64(2), "trigger": "a"}, logged.All()[0].ContextMap())
					assert.Equal(t, zapcore.InfoLevel, logged.All()[0].Level)
				}
			})
		})
	}
}

func TestConfigMapWithoutVariants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.names = nil
		w.lead(t)
		sleep(time.Minute)
		w.ConfigMapChanged(settings.Zero, "config")
		sleep(time.Hour)
		w.assertStarts(t, 0)
		logged := w.logs.FilterMessage("No VariantAutoscalings found, skipping ConfigMap reconciliation").All()
		require.Len(t, logged, 1)
		assert.Equal(t, map[string]any{"configMap": "config"}, logged[0].ContextMap())
		assert.Zero(t, w.logs.FilterMessage("ConfigMap changed, triggering global reconciliation").Len())
	})
}

func TestEventsWithoutATerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		event := func() {
			w.ConfigMapChanged(settings.Zero, "config")
			w.handler().OnAdd(&object{}, false)
			sleep(time.Hour)
		}
		event()
		w.assertStarts(t)
		w.lead(t)
		sleep(10 * time.Second)
		w.stop()
		<-w.done
		event()
		w.assertStarts(t, 3600)
		assert.Zero(t, w.logs.FilterMessage("ConfigMap changed, triggering global reconciliation").Len(), "only the leader says so")
	})
}

func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.names = nil
		w.lead(t)
		sleep(24 * time.Hour)
		w.assertStarts(t, 0)
		assert.Equal(t, []Result{Idle}, w.results)
		assert.Equal(t, []time.Duration{0}, w.waits, "no timer")

		w.set(func() { w.names = []string{"a"} })
		w.handler().OnAdd(&object{}, false)
		sleep(65 * time.Second)
		day := 24 * 60 * 60
		w.assertStarts(t, 0, day, day+61)

		w.set(func() { w.names = nil }) // the last variant is deleted: the next tick finds none, and stops
		sleep(24 * time.Hour)
		w.assertStarts(t, 0, day, day+61, day+122)
		assert.Equal(t, []Result{Idle, Succeeded, Succeeded, Idle}, w.results)
		assert.Len(t, w.successes, 4)
	})
}

func TestAnIdlePassStopsTheTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lead(t) // timer at 61
		sleep(30 * time.Second)
		w.set(func() { w.names = nil })
		w.Enqueue()
		sleep(time.Hour)
		w.assertStarts(t, 0, 30)
	})
}

// The timer fires while an event waits: Go selects either at random.
func TestTimerAndEventAtOnce(t *testing.T) {
	for range 20 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				ctx, stop := context.WithCancel(t.Context())
				current := newTerm(&w.p)
				current.pending.Send()
				go current.runPasses(ctx, ctx)
				sleep(time.Minute)
				w.assertStarts(t, 0)
				stop()
			})
		})
	}
}

func TestAnEventReplacesTheTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lead(t) // ends at 1, timer at 61
		for range 3 {
			sleep(20 * time.Second)
			w.Enqueue()
		}
		sleep(2 * time.Minute) // three passes more, and the timer counts from the last one
		w.assertStarts(t, 0, 20, 40, 60, 121)
	})
}

func TestIntervalChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lead(t)
		sleep(30 * time.Second)
		w.set(func() { w.interval = 10 * time.Second })
		sleep(25 * time.Second)
		w.assertStarts(t, 0) // the running timer stays
		w.ConfigMapChanged(settings.Optimization, "config")
		sleep(25 * time.Second)
		w.assertStarts(t, 0, 55, 66, 77)
		assert.Equal(t, []time.Duration{time.Minute, 10 * time.Second, 10 * time.Second}, w.waits[:3])
	})
}

func TestAnIntervalOfNothing(t *testing.T) {
	for _, interval := range []time.Duration{0, -time.Second} {
		t.Run(interval.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.interval = interval
				w.lead(t)
				sleep(2 * time.Minute)
				w.assertStarts(t, 0, 61)
			})
		})
	}
}

func TestEventsDuringAPassCostOneFurtherPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = 10 * time.Second
		w.lead(t)
		sleep(time.Second)
		w.Enqueue()
		sleep(5 * time.Second)
		w.ConfigMapChanged(settings.Optimization, "config")
		sleep(4*time.Second + passPause)
		w.assertStarts(t, 0, 12)
		sleep(69 * time.Second)
		w.assertStarts(t, 0, 12)
		sleep(2 * time.Second)
		w.assertStarts(t, 0, 12, 82)
	})
}

// Some thousand objects are listed when a process starts, or a watch begins again.
func TestEventStorm(t *testing.T) {
	storm := func(w *world, events int, every time.Duration) {
		for range events {
			w.handler().OnUpdate(&object{1, 0}, &object{2, 0})
			sleep(every)
		}
	}
	t.Run("1000 updates in a second", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.lead(t)
			sleep(30 * time.Second)
			storm(w, 1000, time.Millisecond)
			sleep(30 * time.Second)
			w.assertStarts(t, 0, 31)
		})
	})
	t.Run("1000 updates at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.lead(t)
			sleep(30 * time.Second)
			storm(w, 1000, 0)
			sleep(30 * time.Second)
			w.assertStarts(t, 0, 30)
		})
	})
	t.Run("1000 updates during a pass", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.takes = 2 * time.Second
			w.lead(t)
			storm(w, 1000, time.Millisecond)
			sleep(30 * time.Second)
			w.assertStarts(t, 0, 4)
		})
	})
	t.Run("updates without end", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.lead(t)
			sleep(10 * time.Second)
			storm(w, 600, 100*time.Millisecond)
			w.assertStarts(t, 0, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61, 65, 69)
		})
	})
	t.Run("a tenant who waits until it is quiet", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.takes = 0
			w.lead(t)
			storm(w, 39, 250*time.Millisecond)
			w.assertStarts(t, 0, 2, 4, 6, 8)
		})
	})
}

func TestAFailedPassIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes, w.fail = 0, errors.New("list variants: timeout")
		w.lead(t)
		sleep(4 * time.Minute) // 0.5, 1, 2, 4, ... seconds, at most a minute
		w.assertStarts(t, 0, 0, 1, 3, 7, 15, 31, 63, 123, 183)
		assert.Equal(t, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}, w.waits[:3])
		failures := w.logs.FilterMessage("Pass failed, repeated with backoff").All()
		require.Len(t, failures, 10)
		assert.Equal(t, zapcore.ErrorLevel, failures[0].Level)
		assert.Equal(t, int64(10), failures[9].ContextMap()["attempt"])
		assert.Equal(t, "list variants: timeout", failures[9].ContextMap()["error"])

		w.set(func() { w.fail, w.starts = nil, nil })
		sleep(2 * time.Minute)
		w.assertStarts(t, 243, 303)
		w.set(func() { w.fail, w.starts = errors.New("again"), nil })
		sleep(8 * time.Second)
		w.assertStarts(t, 363, 364, 365, 367) // the backoff begins anew
		assert.Equal(t, Failed, w.results[len(w.results)-1])
		assert.Equal(t, []time.Duration{243500 * time.Millisecond, 303500 * time.Millisecond}, w.successes, "the ends of passes that succeeded")
	})
}

func TestAnEventReplacesARetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes, w.fail = 0, errors.New("timeout")
		w.lead(t)
		sleep(20 * time.Second)
		w.assertStarts(t, 0, 0, 1, 3, 7, 15) // the next retry would be at 31
		w.set(func() { w.fail = nil })
		w.Enqueue()
		sleep(time.Minute)
		w.assertStarts(t, 0, 0, 1, 3, 7, 15, 20)
		sleep(time.Second)
		w.assertStarts(t, 0, 0, 1, 3, 7, 15, 20, 80)
	})
}

func TestAConflictIsNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = 0
		w.fail = fmt.Errorf("write status: %w", apierrors.NewConflict(schema.GroupResource{Resource: "variantautoscalings"}, "a", errors.New("changed")))
		w.lead(t)
		sleep(time.Second)
		w.assertStarts(t, 0, 0)
		assert.Equal(t, []Result{Conflicted, Conflicted}, w.results)
		assert.Zero(t, w.logs.FilterLevelExact(zapcore.ErrorLevel).Len())
	})
}

func TestANewTermBeginsWithOnePass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes, w.fail = 0, errors.New("timeout")
		w.lead(t)
		sleep(20 * time.Second)
		w.set(func() { w.fail, w.starts = nil, nil })
		w.lose()
		<-w.done
		sleep(10 * time.Second)
		w.Enqueue() // dropped
		sleep(30 * time.Second)
		w.assertStarts(t)
		w.lead(t)
		w.assertStarts(t, 60)
		sleep(59 * time.Second)
		w.assertStarts(t, 60) // neither the timer nor the retry of the earlier term is left
		sleep(2 * time.Second)
		w.assertStarts(t, 60, 120)
	})
}

func TestTheEndOfATerm(t *testing.T) {
	tests := []struct {
		name   string
		takes  time.Duration
		lease  bool          // the term ends because the Lease is lost, and not because of a shutdown
		lasts  time.Duration // from the end to the return of Lead
		result Result
	}{
		{"shutdown lets a pass finish", 4 * time.Second, false, 3 * time.Second, Succeeded},
		{"shutdown cancels a long pass", time.Minute, false, 5 * time.Second, Canceled},
		{"a lost Lease cancels a pass", time.Minute, true, 0, Canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.takes = tt.takes
				w.lead(t)
				sleep(time.Second)
				w.Enqueue()
				before := time.Now()
				map[bool]context.CancelFunc{false: w.stop, true: w.lose}[tt.lease]()
				<-w.done
				assert.Equal(t, tt.lasts, time.Since(before))
				w.assertStarts(t, 0) // the next leader sees the event
				assert.Equal(t, []Result{tt.result}, w.results)
				assert.Zero(t, w.logs.FilterLevelExact(zapcore.ErrorLevel).Len())
			})
		})
	}
	t.Run("while it waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.lead(t)
			sleep(10 * time.Second)
			w.Enqueue()
			sleep(quietTime / 2)
			before := time.Now()
			w.stop()
			<-w.done
			assert.Zero(t, time.Since(before))
			w.assertStarts(t, 0)
		})
	})
}
