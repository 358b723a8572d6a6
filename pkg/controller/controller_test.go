package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/logging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	a, b        = cache.NewObjectName("default", "a"), cache.NewObjectName("default", "b")
	errRefused  = errors.New("refused")
	errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "a", errRefused)
)

func TestClassify(t *testing.T) {
	t.Parallel()
	soon, late := RequeueAfter(time.Second, "soon"), RequeueAfter(time.Hour, "late")
	tests := []struct {
		name string
		give error
		want outcome
	}{
		{name: "nothing", want: outcome{result: succeeded}},
		{name: "an error", give: errRefused, want: outcome{result: failed}},
		{name: "requeue", give: soon, want: outcome{result: requeued, after: time.Second, reason: "soon"}},
		{name: "requeue, wrapped", give: fmt.Errorf("apply: %w", soon), want: outcome{result: requeued, after: time.Second, reason: "soon"}},
		{name: "terminal", give: Terminal("NoDomain", errRefused), want: outcome{result: terminal, reason: "NoDomain"}},
		{name: "terminal without an error", give: Terminal("NoDomain", nil), want: outcome{result: succeeded}},
		{name: "terminal of several", give: Terminal("NoDomain", errors.Join(errRefused, errConflict)), want: outcome{result: terminal, reason: "NoDomain"}},
		{name: "conflict", give: errConflict, want: outcome{result: conflicted}},
		{name: "conflict, wrapped", give: fmt.Errorf("apply: %w", errConflict), want: outcome{result: conflicted}},
		{name: "the shortest time", give: errors.Join(late, soon, late), want: outcome{result: requeued, after: time.Second, reason: "soon"}},
		{name: "requeue before terminal", give: errors.Join(Terminal("NoDomain", errRefused), late), want: outcome{result: requeued, after: time.Hour, reason: "late"}},
		{name: "conflict before requeue", give: errors.Join(late, errConflict), want: outcome{result: conflicted}},
		{name: "error before all", give: errors.Join(errRefused, late, errConflict), want: outcome{result: failed}},
		{name: "branches below a wrap", give: fmt.Errorf("apply: %w", errors.Join(errConflict, fmt.Errorf("more: %w", errors.Join(late)))), want: outcome{result: conflicted}},
		{name: "two wrapped at once", give: fmt.Errorf("%w and %w", soon, Terminal("NoDomain", errRefused)), want: outcome{result: requeued, after: time.Second, reason: "soon"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, classifyOutcome(t.Context(), tt.give))
			over, cancel := context.WithCancel(t.Context())
			cancel()
			want := canceled
			if tt.give == nil {
				want = succeeded
			}
			assert.Equal(t, want, classifyOutcome(over, tt.give).result)
		})
	}
}

// reconcileFunc adapts a function to Reconciler.
type reconcileFunc func(ctx context.Context, name cache.ObjectName) error

func (f reconcileFunc) Reconcile(ctx context.Context, name cache.ObjectName) error {
	return f(ctx, name)
}

// rig is a running Controller.
type rig struct {
	*Controller

	logs     *observer.ObservedLogs
	registry *prometheus.Registry
	stop     func() // cancels ctx of Run and waits
	abort    func() // cancels work of Run and waits
}

func start(t *testing.T, f reconcileFunc) *rig {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	r := &rig{logs: logs, registry: prometheus.NewPedanticRegistry()}
	options := DefaultOptions()
	options.FirstRetry, options.DrainTimeout = time.Millisecond, 100*time.Millisecond
	r.Controller = New(Params{
		Options: options, Name: "test", Reconciler: f, Log: zap.New(core), Metrics: NewMetrics(r.registry), Clock: clock.RealClock{},
	})
	ctx, cancel := context.WithCancel(context.Background())
	work, abort := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx, work)
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
	r.abort = func() {
		abort()
		<-ended
	}
	t.Cleanup(r.abort)
	t.Cleanup(r.stop)
	return r
}

// returnErrors returns a Reconciler that returns errs one by one, then nil, and a function that returns the calls so far.
func returnErrors(errs ...error) (f reconcileFunc, calls func() []cache.ObjectName) {
	var mu sync.Mutex
	var seen []cache.ObjectName
	f = func(_ context.Context, name cache.ObjectName) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, name)
		if len(seen) > len(errs) {
			return nil
		}
		return errs[len(seen)-1]
	}
	return f, func() []cache.ObjectName {
		mu.Lock()
		defer mu.Unlock()
		return append([]cache.ObjectName(nil), seen...)
	}
}

func TestWhatBecomesOfAName(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		give   []error
		calls  int
		errors []string // log messages of level error
	}{
		{name: "success", calls: 1},
		{name: "requeue", give: []error{RequeueAfter(time.Millisecond, "soon")}, calls: 2},
		{name: "terminal", give: []error{Terminal("NoDomain", errRefused)}, calls: 1, errors: []string{"Reconcile failed, waiting until the object changes"}},
		{name: "conflicts", give: []error{errConflict, errConflict}, calls: 3},
		{name: "errors", give: []error{errRefused, errRefused}, calls: 3, errors: []string{"Reconcile failed, requeued with backoff", "Reconcile failed, requeued with backoff"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, calls := returnErrors(tt.give...)
				r := start(t, f)
				r.Enqueue(a)
				time.Sleep(20 * time.Millisecond)
				r.Enqueue(b) // any requeue of a has run before
				time.Sleep(10 * time.Millisecond)
				r.stop()
				assert.Equal(t, append(slices.Repeat([]cache.ObjectName{a}, tt.calls), b), calls())
				var messages []string
				for _, entry := range r.logs.FilterLevelExact(zapcore.ErrorLevel).All() {
					messages = append(messages, entry.Message)
					assert.Equal(t, "test", entry.ContextMap()[logging.KeyController])
					assert.Equal(t, "a", entry.ContextMap()[logging.KeyName])
				}
				assert.Equal(t, tt.errors, messages)
				assert.Zero(t, r.queue.NumRequeues(a), "the backoff is reset")
				count, err := testutil.GatherAndCount(r.registry, "fairlead_controller_reconcile_duration_seconds", "workqueue_depth", "workqueue_adds_total")
				require.NoError(t, err)
				assert.GreaterOrEqual(t, count, 3)
			})
		})
	}
}

func TestEveryRetryIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, calls := returnErrors(errRefused, errConflict)
		r := start(t, f)
		r.Enqueue(a)
		time.Sleep(20 * time.Millisecond) // longer than both retries
		r.stop()
		assert.Len(t, calls(), 3)
		var attempts []any
		for _, entry := range r.logs.All() {
			attempts = append(attempts, entry.ContextMap()[logging.KeyAttempt])
		}
		assert.Equal(t, []any{int64(1), int64(2), int64(3)}, attempts)
		retries, err := testutil.GatherAndCount(r.registry, "workqueue_retries_total")
		require.NoError(t, err)
		assert.Equal(t, 1, retries)
	})
}

func TestOneNameIsInOneHand(t *testing.T) {
	t.Parallel()
	begun, release := make(chan cache.ObjectName, 100), make(chan struct{})
	r := start(t, func(_ context.Context, name cache.ObjectName) error {
		begun <- name
		<-release
		return nil
	})
	r.Enqueue(a)
	<-begun
	for range 200 {
		r.Enqueue(a)
	}
	r.Enqueue(b)
	assert.Equal(t, b, <-begun, "free workers take b and not a")
	assert.Empty(t, begun)
	close(release)
	assert.Equal(t, a, <-begun)
	r.stop()
	assert.Empty(t, begun, "waiting duplicates are reconciled once")
}

func TestRunFinishesWhatIsInHandAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers = 4
		begun, release := make(chan struct{}, 100), make(chan struct{})
		r := start(t, func(ctx context.Context, _ cache.ObjectName) error {
			begun <- struct{}{}
			<-release
			return ctx.Err() // nil: the context is not canceled before DrainTimeout
		})
		for i := range 10 {
			r.Enqueue(cache.NewObjectName("default", fmt.Sprint(i)))
		}
		for range workers {
			<-begun
		}
		time.AfterFunc(20*time.Millisecond, func() { close(release) }) // after Run has noticed: fake time passes when all wait
		r.stop()
		assert.Empty(t, begun, "names still queued at shutdown are skipped")
		assert.Equal(t, workers, r.logs.FilterMessage("Reconciled").Len())
	})
}

func TestRunDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{})
		r := start(t, func(ctx context.Context, _ cache.ObjectName) error {
			close(begun)
			<-ctx.Done()
			return fmt.Errorf("apply service: %w", ctx.Err())
		})
		r.Enqueue(a)
		<-begun
		before := time.Now()
		r.stop()
		assert.Equal(t, r.params.DrainTimeout, time.Since(before))
		assert.Equal(t, 1, r.logs.FilterMessage("Reconcile canceled: shutting down").Len())
		assert.Zero(t, r.logs.FilterLevelExact(zapcore.ErrorLevel).Len())
	})
}

func TestRunStopsAtOnceWithItsWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{})
		r := start(t, func(ctx context.Context, name cache.ObjectName) error {
			if name == a {
				close(begun)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		r.Enqueue(a)
		<-begun
		for range 4 {
			r.Enqueue(b)
		}
		before := time.Now()
		r.abort()
		assert.Zero(t, time.Since(before))
	})
}

func TestReconcilersFindALoggerThatKnowsTheName(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	r := start(t, func(ctx context.Context, _ cache.ObjectName) error {
		logging.FromContext(ctx).Info("Here")
		close(done)
		return nil
	})
	r.Enqueue(b)
	<-done
	r.stop()
	fields := r.logs.FilterMessage("Here").All()[0].ContextMap()
	assert.Equal(t, "default", fields[logging.KeyNamespace])
	assert.Equal(t, "b", fields[logging.KeyName])
}

func TestHandler(t *testing.T) {
	t.Parallel()
	service := func(name, version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}}
	}
	var got []string
	h := Handler(func(n cache.ObjectName) { got = append(got, n.Name) }, func(obj any) []cache.ObjectName {
		return []cache.ObjectName{cache.MetaObjectToName(obj.(*corev1.Service))}
	})
	h.OnAdd(service("added", "1"), false)
	h.OnUpdate(service("same", "1"), service("same", "1"))
	h.OnUpdate(service("before", "1"), service("after", "2"))
	h.OnUpdate(service("fake", ""), service("fake", ""))
	h.OnDelete(service("deleted", "1"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "default/lost", Obj: service("lost", "1")})
	assert.ElementsMatch(t, []string{"added", "before", "after", "fake", "deleted", "lost"}, got)
}

func TestUnless(t *testing.T) {
	t.Parallel()
	var got []string
	note := func(text string) func(any) { return func(any) { got = append(got, text) } }
	h := Unless(func(old, current any) bool { return old == current }, cache.ResourceEventHandlerFuncs{
		AddFunc: note("add"), DeleteFunc: note("delete"), UpdateFunc: func(any, any) { note("update")(nil) },
	})
	h.OnAdd(1, true)
	h.OnUpdate(1, 1)
	h.OnUpdate(1, 2)
	h.OnDelete(2)
	assert.Equal(t, []string{"add", "update", "delete"}, got)
}

func TestTypedHandlers(t *testing.T) {
	t.Parallel()
	object := func(uid types.UID, version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: uid, ResourceVersion: version}}
	}
	var got []string
	enqueue := func(n cache.ObjectName) { got = append(got, n.String()) }
	typed := TypedHandler(enqueue, func(s *corev1.Service) []cache.ObjectName { return []cache.ObjectName{{Name: "typed-" + s.Name}} })
	named := NameHandler(enqueue, func(n cache.ObjectName) []cache.ObjectName { return []cache.ObjectName{n} })
	sameType := UnlessSame(func(_, _ *corev1.Service) bool { return true }, named)
	typed.OnAdd(object("1", "1"), false)
	typed.OnAdd(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "of another type"}}, false)
	named.OnAdd(object("1", "1"), false)
	named.OnAdd("not an object", false)
	sameType.OnUpdate(object("1", "1"), object("1", "2"))
	assert.Equal(t, []string{"typed-a", "default/a"}, got)
	sameType.OnUpdate(object("1", "1"), object("2", "2"))
	sameType.OnUpdate(&corev1.Pod{}, object("1", "2"))
	assert.Len(t, got, 2+1+2, "another object of the name, and one of another type")
}
