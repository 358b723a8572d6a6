package kube

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kubetest"
)

const pollInterval = time.Minute

var (
	errOutage   = errors.New("connection refused")
	errNotFound = apierrors.NewNotFound(schema.GroupResource{}, "")
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
)

func TestMain(m *testing.M) {
	kubetest.DropErrorBackoff()
	goleak.VerifyTestMain(m)
}

func TestKindAbsentFromTheStart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		answer answer
	}{
		{name: "group version not found", answer: answer{err: errNotFound}},
		{name: "group version without the resource", answer: answer{resources: []string{"services"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tt.answer, pod("a"))
				assert.False(t, w.informer.HasSynced(), "false before Run")
				w.run(t)

				time.Sleep(10 * pollInterval)

				assert.True(t, w.informer.HasSynced())
				assert.False(t, w.informer.Present())
				assert.Empty(t, w.informer.List())
				_, exists := w.informer.Get(cache.NewObjectName("ns", "a"))
				assert.False(t, exists)
				assert.Equal(t, []string{"info Kind not served, waiting for its CRD"}, w.logLines())
			})
		})
	}
}

func TestKindPresentFromTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{resources: []string{"pods"}}, pod("a"), pod("b"))
		w.run(t)
		synctest.Wait()

		assert.True(t, w.informer.HasSynced())
		assert.True(t, w.informer.Present())
		assert.Len(t, w.informer.List(), 2)
		obj, exists := w.informer.Get(cache.NewObjectName("ns", "a"))
		require.True(t, exists)
		assert.Equal(t, "a", obj.(*corev1.Pod).Name)
		assert.ElementsMatch(t, []string{"add a", "add b"}, w.handler.calls())
		assert.Empty(t, w.logLines(), "nothing is logged if the kind is served")
	})
}

func TestKindAppears(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{err: errNotFound}, pod("a"))
		w.run(t)
		synctest.Wait()

		w.discovery.set(answer{resources: []string{"pods"}})
		time.Sleep(2 * pollInterval)

		assert.True(t, w.informer.Present())
		assert.Equal(t, []string{"add a"}, w.handler.calls())
		assert.Equal(t, []string{
			"info Kind not served, waiting for its CRD",
			"info Kind now served, started watching it",
		}, w.logLines())
	})
}

var errForbidden = apierrors.NewForbidden(pods.GroupResource(), "", errors.New("no role"))

func TestKindThatMayNotBeListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{resources: []string{"pods"}}, pod("a"))
		allow := w.forbid()
		w.run(t)
		time.Sleep(forbiddenTimeout - time.Second)
		assert.False(t, w.informer.HasSynced(), "a new role takes time to take effect")
		assert.True(t, w.informer.Present())
		time.Sleep(2 * time.Second)
		assert.True(t, w.informer.HasSynced(), "the process can become ready")
		assert.False(t, w.informer.Present(), "treated as not served")
		assert.False(t, w.informer.Listed())
		assert.Empty(t, w.informer.List())

		time.Sleep(10 * pollInterval)
		assert.Equal(t, []string{"warn No permission to list kind, treating it as not served: grant list and watch"}, w.logLines(), "logged once")
		allow()
		time.Sleep(3 * pollInterval)
		assert.True(t, w.informer.Listed(), "the informer retries the list")
		assert.True(t, w.informer.Present())
		assert.Equal(t, []string{"add a"}, w.handler.calls())
		assert.Equal(t, "info Gained permission to list kind, started watching it", w.logLines()[1])
	})
}

func TestRequiredKindThatMayNotBeListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{resources: []string{"pods"}}, pod("a"))
		w.informer.params.Required = true
		allow := w.forbid()
		w.run(t)
		time.Sleep(10 * pollInterval)
		assert.False(t, w.informer.HasSynced(), "a required kind is not synced without its objects")
		assert.True(t, w.informer.Present())
		assert.Equal(t, []string{"warn No permission to list required kind, waiting: grant list and watch"}, w.logLines())
		allow()
		time.Sleep(3 * pollInterval)
		assert.True(t, w.informer.HasSynced())
	})
}

func TestPermissionThatIsTakenAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{resources: []string{"pods"}}, pod("a"))
		watches := make(chan *watch.FakeWatcher, 8)
		w.client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			fake := watch.NewFake()
			watches <- fake
			return true, fake, nil
		})
		w.run(t)
		synctest.Wait()
		require.True(t, w.informer.Listed())
		w.forbid()
		w.client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, errForbidden })
		(<-watches).Stop()
		time.Sleep(10 * pollInterval)
		assert.True(t, w.informer.Listed())
		assert.Len(t, w.informer.List(), 1, "the stale objects stay")
		assert.Equal(t, []string{"warn Lost permission to list and watch kind, kept its objects: grant list and watch"}, w.logLines(), "logged once")
	})
}

// One round rarely shows the race between the first event and the lookup; 300 rounds do.
func TestHandlerFindsWhatItIsToldOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{resources: []string{"pods"}}, pod("a"))
		var missed atomic.Int32
		w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
			if _, exists := w.informer.Get(cache.NewObjectName("ns", "a")); !exists {
				missed.Add(1)
			}
		}})
		w.run(t)
		for range 300 {
			w.discovery.set(answer{resources: []string{"pods"}})
			time.Sleep(2 * pollInterval)
			w.discovery.set(answer{err: errNotFound})
			time.Sleep(4 * pollInterval)
		}
		assert.Greater(t, len(w.handler.calls()), 500)
		assert.Zero(t, missed.Load())
	})
}

func TestKindGoesAwayAndComesBackAndGoesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		present, absent := answer{resources: []string{"pods"}}, answer{err: errNotFound}
		w := newWorld(t, present, pod("a"), pod("b"))
		w.run(t)
		synctest.Wait()

		w.discovery.set(absent)
		time.Sleep(5 * pollInterval)

		assert.False(t, w.informer.Present())
		assert.True(t, w.informer.HasSynced())
		assert.Empty(t, w.informer.List())
		assert.ElementsMatch(t, []string{"add a", "add b", "delete a", "delete b"}, w.handler.drain())

		require.NoError(t, w.client.CoreV1().Pods("ns").Delete(t.Context(), "b", metav1.DeleteOptions{}))
		w.discovery.set(present)
		time.Sleep(2 * pollInterval)

		assert.Len(t, w.informer.List(), 1)
		assert.Equal(t, []string{"add a"}, w.handler.drain())

		w.discovery.set(absent)
		time.Sleep(5 * pollInterval)

		assert.Equal(t, []string{"delete a"}, w.handler.drain(), "b was deleted when the kind first disappeared")
		assert.Equal(t, []string{
			"info Kind no longer served, dropped its objects",
			"info Kind now served, started watching it",
			"info Kind no longer served, dropped its objects",
		}, w.logLines())
	})
}

func TestObjectThatWasDeletedIsNotDeletedAgainWithItsKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{resources: []string{"pods"}}, pod("a"))
		w.run(t)
		synctest.Wait()
		require.NoError(t, w.client.CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		synctest.Wait()

		w.discovery.set(answer{err: errNotFound})
		time.Sleep(5 * pollInterval)

		assert.Equal(t, []string{"add a", "delete a"}, w.handler.calls())
	})
}

func TestNothingIsDeletedUnlessAbsenceIsCertain(t *testing.T) {
	t.Parallel()
	present, absent, outage := answer{resources: []string{"pods"}}, answer{err: errNotFound}, answer{err: errOutage}
	const outageLog = "warn Discovery failed, kept the previous state of the kind"
	tests := []struct {
		name     string
		answers  []answer
		wantLogs []string
	}{
		{name: "one answer without the kind", answers: []answer{absent, present, absent, present}},
		{name: "outage", answers: []answer{outage, outage, outage}, wantLogs: []string{outageLog}},
		{name: "two outages", answers: []answer{outage, present, outage}, wantLogs: []string{outageLog, outageLog}},
		{
			name:     "outage between two answers without the kind",
			answers:  []answer{absent, outage, absent, present},
			wantLogs: []string{outageLog},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, present, pod("a"))
				w.run(t)
				synctest.Wait()

				for _, a := range tt.answers {
					w.discovery.expect(t, a)
				}

				assert.True(t, w.informer.Present())
				assert.Len(t, w.informer.List(), 1)
				assert.Equal(t, []string{"add a"}, w.handler.calls())
				assert.Equal(t, tt.wantLogs, w.logLines())
			})
		})
	}
}

func TestOutageAtStartIsRetriedSoonAndNotSynced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{err: errOutage}, pod("a"))
		w.run(t)
		time.Sleep(2 * time.Second)
		assert.False(t, w.informer.HasSynced())
		assert.GreaterOrEqual(t, w.discovery.requestCount(), 2)

		w.discovery.set(answer{resources: []string{"pods"}})
		time.Sleep(5 * time.Second)

		assert.True(t, w.informer.HasSynced())
		assert.Equal(t, []string{"warn Discovery failed, kept the previous state of the kind"}, w.logLines())
	})
}

func TestRetriesOfAnOutageSlowDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{err: errOutage})
		w.run(t)

		time.Sleep(time.Hour)

		assert.Less(t, w.discovery.requestCount(), 80, "one request per poll interval, and a few more at first")
	})
}

func TestHandlerIsToldOfDeletionsThatTheInformerDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{resources: []string{"pods"}}, pod("a"), pod("b"))
		w.run(t)
		synctest.Wait()
		// When the kind disappears, the deletion of a is queued for the handler, which is blocked in an earlier event.
		release := w.handler.block()
		_, err := w.client.CoreV1().Pods("ns").Create(t.Context(), pod("c"), metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, w.client.CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		w.discovery.set(answer{err: errNotFound})
		time.Sleep(5 * pollInterval)
		release()
		synctest.Wait()

		calls := w.handler.calls()
		assert.Empty(t, w.informer.List())
		for _, name := range []string{"a", "b", "c"} {
			assert.Equal(t, count(calls, "add "+name), count(calls, "delete "+name), "%s in %v", name, calls)
		}
	})
}

func TestHasSyncedWaitsForHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{resources: []string{"pods"}}, pod("a"))
		release := w.handler.block()
		w.run(t)
		time.Sleep(pollInterval)
		assert.False(t, w.informer.HasSynced(), "the list is complete, but the handler has not received the objects")

		release()
		time.Sleep(pollInterval)
		assert.True(t, w.informer.HasSynced())
	})
}

func TestHasSyncedStaysTrueWhileAKindThatAppearedIsListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{err: errNotFound})
		w.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errOutage
		})
		w.run(t)
		synctest.Wait()
		w.discovery.set(answer{resources: []string{"pods"}})
		time.Sleep(2 * pollInterval)

		assert.True(t, w.informer.Present())
		assert.True(t, w.informer.HasSynced())
		assert.False(t, w.informer.Listed())
	})
}

func TestListedIsOfTheKindThatIsServedNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{err: errNotFound}, pod("a"))
		w.run(t)
		synctest.Wait()
		assert.False(t, w.informer.Listed(), "not served")

		w.discovery.set(answer{resources: []string{"pods"}})
		time.Sleep(2 * pollInterval)
		assert.True(t, w.informer.Listed())

		w.discovery.set(answer{err: errNotFound})
		time.Sleep(5 * pollInterval)
		assert.False(t, w.informer.Listed(), "no longer served")
	})
}

func TestEndOfRunDeletesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{resources: []string{"pods"}}, pod("a"))
		w.run(t)
		synctest.Wait()

		w.stop()

		assert.Equal(t, []string{"add a"}, w.handler.calls())
	})
}

func TestStoppedInformerIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{resources: []string{"pods"}})
		shared := w.newInformer()
		w.informer.params.New = func() cache.SharedIndexInformer { return shared }
		w.run(t)
		synctest.Wait()
		w.discovery.set(answer{err: errNotFound})
		time.Sleep(5 * pollInterval)
		w.discovery.set(answer{resources: []string{"pods"}})
		time.Sleep(2 * pollInterval)

		assert.False(t, w.informer.Present())
		assert.Contains(t, w.logLines(), "error Failed to start informer")
	})
}

// world is an OptionalInformer for pods with a fake discovery client, a fake clientset and a recording handler.
type world struct {
	client    *fake.Clientset
	discovery *fakeDiscovery
	handler   *recorder
	informer  *OptionalInformer
	logs      *observer.ObservedLogs
	stop      func()
}

func newWorld(t *testing.T, first answer, objects ...runtime.Object) *world {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	w := &world{
		client:    fake.NewClientset(objects...),
		discovery: &fakeDiscovery{current: first},
		handler:   &recorder{},
		logs:      logs,
	}
	w.informer = NewOptionalInformer(OptionalInformerParams{
		Log:          zap.New(core),
		Discovery:    w.discovery,
		Resource:     pods,
		New:          w.newInformer,
		PollInterval: pollInterval,
	})
	w.informer.AddEventHandler(w.handler)
	return w
}

// forbid makes listing pods fail with Forbidden until the returned function is called.
func (w *world) forbid() (allow func()) {
	var allowed atomic.Bool
	w.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !allowed.Load(), nil, errForbidden
	})
	return func() { allowed.Store(true) }
}

func (w *world) newInformer() cache.SharedIndexInformer {
	return informers.NewSharedInformerFactory(w.client, 0).Core().V1().Pods().Informer()
}

// run calls Run in a goroutine. stop, and the end of the test, cancel it and wait.
func (w *world) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.informer.Run(ctx)
	}()
	w.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(w.stop)
}

func (w *world) logLines() []string {
	var lines []string
	for _, e := range w.logs.All() {
		lines = append(lines, e.Level.String()+" "+e.Message)
	}
	return lines
}

type answer struct {
	resources []string
	err       error
}

type fakeDiscovery struct {
	mu      sync.Mutex
	current answer
	count   int
}

func (d *fakeDiscovery) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	list := &metav1.APIResourceList{}
	for _, name := range d.current.resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, d.current.err
}

func (d *fakeDiscovery) set(a answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.current = a
}

func (d *fakeDiscovery) requestCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// expect sets the answer and returns after exactly one request.
func (d *fakeDiscovery) expect(t *testing.T, a answer) {
	t.Helper()
	before := d.requestCount()
	d.set(a)
	for d.requestCount() == before {
		time.Sleep(100 * time.Millisecond)
	}
	synctest.Wait()
	require.Equal(t, before+1, d.requestCount())
}

// recorder is a handler that records its calls. While blocked, its calls wait.
type recorder struct {
	mu      sync.Mutex
	lines   []string
	blocked chan struct{}
}

func (r *recorder) OnAdd(obj any, _ bool)  { r.record("add", obj) }
func (r *recorder) OnUpdate(_, newObj any) { r.record("update", newObj) }
func (r *recorder) OnDelete(obj any)       { r.record("delete", obj) }

func (r *recorder) record(call string, obj any) {
	r.mu.Lock()
	blocked := r.blocked
	r.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, call+" "+obj.(metav1.Object).GetName())
}

func (r *recorder) block() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	blocked := make(chan struct{})
	r.blocked = blocked
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.blocked = nil
		close(blocked)
	}
}

func (r *recorder) calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// drain returns the calls since the last drain.
func (r *recorder) drain() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

func count(lines []string, want string) int {
	n := 0
	for _, line := range lines {
		if line == want {
			n++
		}
	}
	return n
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

// versions are the answers for each version of a group.
type versions map[string]answer

func (v versions) ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	a, found := v[groupVersion]
	if !found {
		return nil, errNotFound
	}
	return (&fakeDiscovery{current: a}).ServerResourcesForGroupVersionWithContext(ctx, groupVersion)
}

// TestPreferredVersions: an error of a preferred version does not reveal whether it has the objects.
func TestPreferredVersions(t *testing.T) {
	t.Parallel()
	all, other := answer{resources: []string{"pods"}}, answer{resources: []string{"services"}}
	for _, tt := range []struct {
		name    string
		answers versions
		want    bool
		wantErr error
	}{
		{"alone", versions{"v1": all}, true, nil},
		{"with other resources", versions{"v1": all, "v2": other, "v3": other}, true, nil},
		{"with a preferred version", versions{"v1": all, "v2": other, "v3": all}, false, nil},
		{"not served", versions{"v2": other}, false, nil},
		{"outage of a preferred version", versions{"v1": all, "v2": {err: errOutage}}, false, errOutage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := NewOptionalInformer(OptionalInformerParams{
				Log: zap.NewNop(), Discovery: tt.answers, Resource: pods, Preferred: []string{"v3", "v2"},
			})
			served, err := o.isServed(t.Context())
			require.ErrorIs(t, err, tt.wantErr)
			assert.Equal(t, tt.want, served)
		})
	}
}
