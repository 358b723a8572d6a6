package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/clock"
)

var wide = QueueLimits{TTL: time.Minute, Requests: 1000, Bytes: 1 << 20}

// waiting lets requests wait, and records how they leave.
type waiting struct {
	*Queue

	limits QueueLimits
	cancel map[string]context.CancelCauseFunc

	mu   sync.Mutex
	left []string // "name" or "name: reason", in order
}

func newWaiting(t *testing.T, l QueueLimits) *waiting {
	t.Helper()
	return &waiting{Queue: NewQueue(clock.RealClock{}), limits: l, cancel: map[string]context.CancelCauseFunc{}}
}

// enter adds a request of a priority and a size. It has entered, or was refused, on return.
func (w *waiting) enter(name string, priority int, bytes int64) {
	ctx, cancel := context.WithCancelCause(context.Background())
	w.cancel[name] = cancel
	r := QueuedRequest{QueueLabels: QueueLabels{Model: name, Target: name, Priority: priority}, Arrived: time.Now(), Bytes: bytes}
	go func() {
		defer cancel(nil)
		if err := w.WaitForGrant(ctx, r, w.limits); err != nil {
			name += ": " + err.Error()
		}
		w.leave(name)
	}()
	synctest.Wait()
}

func (w *waiting) leave(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = append(w.left, name)
}

// names returns those that left.
func (w *waiting) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.left)
}

// grant lets requests leave one by one, in order.
func (w *waiting) grant(n int) {
	for range n {
		w.GrantNext(1)
		synctest.Wait()
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(t, wide)
		for _, r := range []struct {
			name     string
			priority int
		}{{"a", 0}, {"b", -1}, {"c", 5}, {"d", 0}, {"e", 5}, {"f", -1}} {
			w.enter(r.name, r.priority, 1)
		}
		assert.Equal(t, 6, w.Len())
		w.grant(3)
		w.enter("g", 7, 1)
		w.grant(10)
		assert.Equal(t, []string{"c", "e", "a", "g", "d", "b", "f"}, w.names())
		assert.Zero(t, w.Len())
		assert.Zero(t, w.GrantNext(1))
	})
}

// TestOrder_WaitsAgain has a request that left, found no endpoint and came back: it keeps its place.
func TestOrder_WaitsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, first := newWaiting(t, wide), time.Now()
		time.Sleep(time.Second)
		w.enter("later", 0, 1)
		go func() {
			assert.NoError(t, w.WaitForGrant(context.Background(), QueuedRequest{Arrived: first}, wide))
			w.leave("first")
		}()
		synctest.Wait()
		w.grant(2)
		assert.Equal(t, []string{"first", "later"}, w.names())
	})
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(t, wide)
		w.enter("a", 0, 10)
		time.Sleep(30 * time.Second)
		w.enter("b", 0, 10)
		time.Sleep(30*time.Second - time.Nanosecond)
		synctest.Wait()
		assert.Empty(t, w.names())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, []string{"a: " + ErrExpired.Error()}, w.names())
		assert.Equal(t, 1, w.Len())
		w.grant(1)
		assert.Equal(t, "b", w.names()[1])
	})
}

func TestClientThatLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(t, wide)
		for _, name := range []string{"a", "b", "c"} {
			w.enter(name, 0, 10)
		}
		w.cancel["b"](errors.New("it left"))
		synctest.Wait()
		assert.Equal(t, []string{"b: it left"}, w.names())
		w.grant(2)
		assert.Equal(t, []string{"b: it left", "a", "c"}, w.names())
	})
}

// TestGrantAtTheLastMoment has a request that is granted while it is about to leave: it must not lose the grant, which counts.
func TestGrantAtTheLastMoment(t *testing.T) {
	t.Parallel()
	for range 200 {
		q := NewQueue(clock.RealClock{})
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() { result <- q.WaitForGrant(ctx, QueuedRequest{Arrived: time.Now()}, wide) }()
		go cancel()
		granted := 0
		for q.Len() > 0 || granted == 0 && len(result) == 0 {
			granted += q.GrantNext(1)
		}
		if err := <-result; err == nil {
			assert.Equal(t, 1, granted)
		} else {
			assert.Zero(t, granted, err)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	full, displaced := ": "+ErrQueueFull.Error(), ": "+ErrDisplaced.Error()
	tests := []struct {
		name   string
		limits QueueLimits
		last   QueuedRequest
		want   []string
	}{
		{name: "room", limits: QueueLimits{Requests: 4, Bytes: 400}, last: QueuedRequest{Bytes: 100}},
		{name: "number", limits: QueueLimits{Requests: 3, Bytes: 400}, last: QueuedRequest{QueueLabels: QueueLabels{Priority: -1}, Bytes: 1}, want: []string{"new" + full}},
		{name: "bytes", limits: QueueLimits{Requests: 4, Bytes: 399}, last: QueuedRequest{QueueLabels: QueueLabels{Priority: -1}, Bytes: 100}, want: []string{"new" + full}},
		{name: "the last of a lower priority", limits: QueueLimits{Requests: 3, Bytes: 400}, last: QueuedRequest{QueueLabels: QueueLabels{Priority: 1}, Bytes: 100}, want: []string{"low2" + displaced}},
		{
			name: "several for the bytes", limits: QueueLimits{Requests: 3, Bytes: 300}, last: QueuedRequest{QueueLabels: QueueLabels{Priority: 1}, Bytes: 150},
			want: []string{"low2" + displaced, "low1" + displaced},
		},
		{name: "higher ones stay", limits: QueueLimits{Requests: 3, Bytes: 300}, last: QueuedRequest{QueueLabels: QueueLabels{Priority: 1}, Bytes: 201}, want: []string{"new" + full}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.limits.TTL = time.Minute
				w := newWaiting(t, tt.limits)
				w.enter("low1", -1, 100)
				w.enter("high", 2, 100)
				w.enter("low2", -1, 100)
				w.enter("new", tt.last.Priority, tt.last.Bytes)
				assert.ElementsMatch(t, tt.want, w.names())
				w.grant(4)
				assert.Len(t, w.names(), 4)
				assert.Zero(t, w.bytes)
			})
		})
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, began := newWaiting(t, wide), time.Now()
		assert.Empty(t, w.Report())
		w.enter("b", 0, 10)
		time.Sleep(time.Second)
		w.enter("b", 0, 20)
		w.enter("a", 3, 5)
		a, b := QueueLabels{Model: "a", Target: "a", Priority: 3}, QueueLabels{Model: "b", Target: "b"}
		assert.Equal(t, []QueueCount{
			{QueueLabels: a, Requests: 1, Bytes: 5, Oldest: began.Add(time.Second)}, {QueueLabels: b, Requests: 2, Bytes: 30, Oldest: began},
		}, w.Report())
		w.grant(2)
		assert.Equal(t, []QueueCount{{QueueLabels: a}, {QueueLabels: b, Requests: 1, Bytes: 20, Oldest: began.Add(time.Second)}}, w.Report())
		w.grant(1)
		time.Sleep(rememberTime - time.Nanosecond)
		assert.Equal(t, []QueueCount{{QueueLabels: a}, {QueueLabels: b}}, w.Report())
		time.Sleep(time.Nanosecond)
		assert.Empty(t, w.Report())
	})
}

// TestReport_OfManyNames has clients that invent names of models.
func TestReport_OfManyNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(t, wide)
		for i := range 3 * maxRemembered {
			w.enter(fmt.Sprint(strings.Repeat("x", maxName-4), i), 0, 1)
			w.grant(1)
		}
		report := w.Report()
		assert.Len(t, report, maxRemembered)
		for _, c := range report {
			assert.LessOrEqual(t, len(c.Model), maxName)
		}
	})
}

func TestChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(t, wide)
		isClosed := func(c <-chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		first := w.ChangeSignal()
		assert.False(t, isClosed(first))
		w.enter("a", 0, 1)
		assert.True(t, isClosed(first))
		second := w.ChangeSignal()
		assert.False(t, isClosed(second))
		w.grant(1)
		assert.True(t, isClosed(second))
	})
}
