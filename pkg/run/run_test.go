package run

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// diary records what happens, in order.
type diary struct {
	mu      sync.Mutex
	entries []string
}

func (d *diary) add(entry string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, entry)
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.entries)
}

func (d *diary) await(t *testing.T, entry string) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Contains(d.all(), entry) }, kubetest.Patience, time.Millisecond, entry)
}

// part is a part, or a server, that notes when it begins and ends.
type part struct {
	*diary

	name                string
	failListen, failRun error
}

func (p *part) Listen() error { return p.failListen }

type serverPart struct{ *part }

func (p serverPart) Run(ctx context.Context) error {
	p.add("begin server")
	if p.failRun != nil {
		return p.failRun
	}
	<-ctx.Done()
	p.add("end server")
	return nil
}

func (p *part) Run(ctx context.Context) {
	p.add("begin " + p.name)
	<-ctx.Done()
	p.add("end " + p.name)
}

// caches names what is not synced.
type caches struct {
	mu    sync.Mutex
	names []string
	asked int
}

func (c *caches) Unsynced() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return slices.Clone(c.names)
}

// awaitAsked waits until the names were asked for several times more.
func (c *caches) awaitAsked(t *testing.T) {
	t.Helper()
	count := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.asked
	}
	before := count()
	require.Eventually(t, func() bool { return count() > before+3 }, kubetest.Patience, time.Millisecond)
}

func (c *caches) set(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = names
}

// election elects this replica at once, or never.
type election struct {
	never bool
	err   error
}

func (e election) Run(ctx context.Context, lead func(lease context.Context)) error {
	switch {
	case e.err != nil:
		return e.err
	case e.never:
		<-ctx.Done()
	default:
		lead(context.WithoutCancel(ctx))
	}
	return nil
}

// rig is a service that runs.
type rig struct {
	diary  diary
	caches caches
	params Params
	stop   context.CancelFunc
	ended  chan error
}

func newRig() *rig {
	r := &rig{ended: make(chan error, 1)}
	r.params = Params{
		Log: zap.NewNop(), Server: serverPart{&part{diary: &r.diary}}, Parts: []Part{&part{diary: &r.diary, name: "informers"}, &part{diary: &r.diary, name: "events"}},
		Caches: []Cache{&r.caches}, Elector: election{},
		Lead: func(ctx, _ context.Context) {
			r.diary.add("begin term")
			<-ctx.Done()
			r.diary.add("end term")
		},
	}
	return r
}

func (r *rig) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	t.Cleanup(cancel)
	go func() { r.ended <- Run(ctx, r.params) }()
}

// wait returns what Run returned.
func (r *rig) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(kubetest.Patience):
		t.Fatal("Run has not returned")
		return nil
	}
}

func TestRunDrainsInReverse(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.start(t)
	for _, entry := range []string{"begin term", "begin server", "begin informers", "begin events"} {
		r.diary.await(t, entry)
	}
	r.stop()
	require.NoError(t, r.wait(t))
	got := r.diary.all()
	require.Len(t, got, 8)
	assert.Equal(t, "end term", got[4], "the term ends first: it needs caches and probes")
	assert.ElementsMatch(t, []string{"end informers", "end events"}, got[5:7])
	assert.Equal(t, "end server", got[7], "probes are answered until the end")
}

func TestRunWaitsForCaches(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.caches.set("services")
	r.start(t)
	r.diary.await(t, "begin informers")
	r.caches.awaitAsked(t)
	assert.NotContains(t, r.diary.all(), "begin term")
	r.caches.set()
	r.diary.await(t, "begin term")
	r.stop()
	require.NoError(t, r.wait(t))
}

func TestRunEndsWhileItWaitsForCaches(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.caches.set("services")
	r.start(t)
	r.diary.await(t, "begin events")
	r.stop()
	require.NoError(t, r.wait(t))
	assert.NotContains(t, r.diary.all(), "begin term")
}

func TestReadinessDoesNotWaitForTheElection(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.params.Elector = election{never: true}
	r.caches.set("services", "gateways")
	ready := Synced(&r.caches, &caches{names: []string{"ConfigMap a/b"}})
	require.EqualError(t, ready(t.Context()), "not listed yet: ConfigMap a/b, gateways, services")
	ready = Synced(r.params.Caches...)
	r.start(t)
	r.diary.await(t, "begin events")
	require.Error(t, ready(t.Context()))
	r.caches.set()
	require.NoError(t, ready(t.Context()))
	r.stop()
	require.NoError(t, r.wait(t))
	assert.NotContains(t, r.diary.all(), "begin term")
}

func TestRunFails(t *testing.T) {
	t.Parallel()
	t.Run("no port", func(t *testing.T) {
		t.Parallel()
		r := newRig()
		r.params.Server = serverPart{&part{diary: &r.diary, failListen: errors.New("in use")}}
		r.start(t)
		require.EqualError(t, r.wait(t), "start http server: in use")
		assert.Empty(t, r.diary.all(), "nothing has begun")
	})
	t.Run("the server", func(t *testing.T) {
		t.Parallel()
		r := newRig()
		r.params.Server = serverPart{&part{diary: &r.diary, failRun: errors.New("closed")}}
		r.caches.set("services")
		r.start(t)
		require.EqualError(t, r.wait(t), "closed")
		assert.Subset(t, r.diary.all(), []string{"end informers", "end events"})
	})
	t.Run("the election", func(t *testing.T) {
		t.Parallel()
		r := newRig()
		r.params.Elector = election{err: errors.New("no Lease")}
		r.start(t)
		require.EqualError(t, r.wait(t), "no Lease")
		assert.Subset(t, r.diary.all(), []string{"end informers", "end events", "end server"})
	})
}

// reconciler notes the names that it gets.
type reconciler struct{ *diary }

func (r reconciler) Reconcile(_ context.Context, name cache.ObjectName) error {
	r.add(name.Name)
	return nil
}

func TestQueue(t *testing.T) {
	t.Parallel()
	var d diary
	var q Queue
	metrics := controller.NewMetrics(prometheus.NewRegistry())
	q.Enqueue(cache.ObjectName{Name: "before"})
	for _, term := range []string{"first", "second"} {
		assert.False(t, q.Leads())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c := controller.New(controller.Params{
				Options: controller.DefaultOptions(), Name: "test", Reconciler: reconciler{&d}, Log: zap.NewNop(), Metrics: metrics, Clock: clock.RealClock{},
			})
			q.Lead(ctx, t.Context(), c, func() {
				assert.Empty(t, slices.DeleteFunc(d.all(), func(s string) bool { return s != term }), "nothing is reconciled before begin returns")
				q.Enqueue(cache.ObjectName{Name: term})
			})
		}()
		d.await(t, term)
		assert.True(t, q.Leads())
		q.Enqueue(cache.ObjectName{Name: "event of " + term})
		d.await(t, "event of "+term)
		cancel()
		<-done
		assert.False(t, q.Leads())
		q.Enqueue(cache.ObjectName{Name: "between"})
	}
	assert.Equal(t, []string{"first", "event of first", "second", "event of second"}, d.all())
}
