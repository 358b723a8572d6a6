package leader

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick returns options with short times.
func quick() Options {
	return Options{Elect: true, Namespace: "fairlead", LeaseDuration: time.Second, RenewDeadline: 300 * time.Millisecond, RetryPeriod: 20 * time.Millisecond}
}

// world is the state that the replicas share.
type world struct {
	*fake.Clientset

	mu                sync.Mutex
	leaders, overlaps int // leaders now; times that a second replica became leader
}

func newWorld() *world { return &world{Clientset: fake.NewClientset()} }

// waitRenewed waits until the renew time of the Lease has advanced by more than d.
func (w *world) waitRenewed(t *testing.T, d time.Duration) {
	t.Helper()
	renewed := func() time.Time {
		lease, err := w.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), "fairlead", "test")
		require.NoError(t, err)
		return lease.(*coordinationv1.Lease).Spec.RenewTime.Time
	}
	first := renewed()
	eventually(t, func() bool { return renewed().Sub(first) > d }, "the Lease is renewed")
}

// leaseGets counts the GET requests for the Lease. Only replicas that do not lead send them.
func (w *world) leaseGets() int {
	n := 0
	for _, a := range w.Actions() {
		if a.Matches("get", "leases") {
			n++
		}
	}
	return n
}

func (w *world) count(leaders int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leaders += leaders; w.leaders > 1 {
		w.overlaps++
	}
}

// replica is a running Elector.
type replica struct {
	*Elector

	world  *world
	mu     sync.Mutex
	terms  int // times that it became leader
	leads  bool
	failed error // of Run

	stop  context.CancelFunc
	ended chan struct{}
}

func (r *replica) isLeading() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leads
}

func (r *replica) termCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms
}

// atOnce is a drained channel that is already closed.
var atOnce = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// run starts a replica. Its lead function returns when its context is canceled, or when the replica is stopped and drained is
// closed.
func run(t *testing.T, name string, o Options, w *world, drained <-chan struct{}) *replica {
	t.Helper()
	elector, err := New(Params{
		Options: o, Name: "test", Identity: name, Leases: w.CoordinationV1(), Log: zap.NewNop(), Metrics: prometheus.NewPedanticRegistry(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{Elector: elector, world: w, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.failed = elector.Run(ctx, func(lease context.Context) {
			r.set(true)
			defer r.set(false)
			select {
			case <-ctx.Done():
				<-drained
			case <-lease.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		assert.NoError(t, r.failed)
	})
	return r
}

func (r *replica) set(leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leads = leads; !leads {
		r.world.count(-1)
		return
	}
	r.terms++
	r.world.count(1)
}

// eventually waits in the time of the bubble.
func eventually(t *testing.T, condition func() bool, message string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 5*time.Millisecond, message)
}

func TestOneLeadsAndAnotherFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		drained := make(chan struct{})
		a := run(t, "a", quick(), w, drained)
		eventually(t, a.isLeading, "a leads")
		b := run(t, "b", quick(), w, atOnce)
		w.waitRenewed(t, 2*quick().LeaseDuration)
		assert.True(t, a.isLeading(), "a renews its Lease")
		assert.False(t, b.isLeading())
		assert.InDelta(t, 1, testutil.ToFloat64(a.leading), 0)

		a.stop()
		w.waitRenewed(t, quick().RenewDeadline)
		assert.True(t, a.isLeading(), "a still drains and holds the Lease")
		close(drained)
		eventually(t, func() bool { return !a.isLeading() }, "a has drained")
		released := time.Now()
		eventually(t, b.isLeading, "b leads")
		assert.Less(t, time.Since(released), 3*quick().RetryPeriod, "a released the Lease, and b asks every RetryPeriod, with jitter at most every 2.2 of them")
		assert.Zero(t, w.overlaps)
		<-a.ended
		assert.Zero(t, testutil.ToFloat64(a.leading))
	})
}

// A leader that crashed neither renews nor releases its Lease.
func TestTakeoverAfterACrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Namespace = "fairlead"
		w := newWorld()
		crashed, seconds, now := "crashed", int32(o.LeaseDuration.Seconds()), metav1.NowMicro()
		require.NoError(t, w.Tracker().Add(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: "test"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &crashed, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
		}))
		began := time.Now()
		b := run(t, "b", o, w, atOnce)
		eventually(t, b.isLeading, "b leads")
		assert.GreaterOrEqual(t, time.Since(began), o.LeaseDuration, "the Lease is held for its duration")
		assert.Less(t, time.Since(began), 5*time.Second, "b asks every RetryPeriod, with jitter at most every 2.2 of them")
	})
}

// refuse makes Lease updates fail until the returned function is called.
func refuse(client *fake.Clientset) (allow func()) {
	var mu sync.Mutex
	refused := true
	client.Fake.Lock()
	defer client.Fake.Unlock()
	client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return refused, nil, errors.New("no connection")
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		refused = false
	}
}

func TestWhoCannotRenewStopsAndStandsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := run(t, "a", quick(), w, atOnce)
		eventually(t, a.isLeading, "a leads")
		allow := refuse(w.Clientset)
		eventually(t, func() bool { return !a.isLeading() }, "a stops")
		allow()
		eventually(t, a.isLeading, "a leads again")
		assert.Equal(t, 2, a.termCount())
	})
}

func TestWhoWaitsEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := run(t, "a", quick(), w, atOnce)
		eventually(t, a.isLeading, "a leads")
		b := run(t, "b", quick(), w, atOnce)
		gets := w.leaseGets()
		eventually(t, func() bool { return w.leaseGets() > gets+1 }, "b waits")
		b.stop()
		<-b.ended
		assert.Zero(t, b.termCount())
		assert.True(t, a.isLeading())
	})
}

func TestALeadThatEndsByItselfEndsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		elector, err := New(Params{Options: quick(), Name: "test", Leases: w.CoordinationV1(), Log: zap.NewNop(), Metrics: prometheus.NewRegistry()})
		require.NoError(t, err)
		require.NoError(t, elector.Run(t.Context(), func(context.Context) {}))
	})
}

func TestNobodyIsElected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, "a", Options{}, newWorld(), atOnce)
		b := run(t, "b", Options{}, newWorld(), atOnce)
		eventually(t, a.isLeading, "a leads")
		eventually(t, b.isLeading, "b leads")
	})
}

func TestNamespaceOfTheLease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "namespace")
	require.NoError(t, os.WriteFile(file, []byte("pod-s\n"), 0o600))
	tests := []struct{ name, flag, file, want, fails string }{
		{name: "flag", flag: "given", file: file, want: "given"},
		{name: "pod", file: file, want: "pod-s"},
		{name: "neither", file: filepath.Join(dir, "absent"), fails: "set --leader-election-namespace or --leader-elect=false"},
		{name: "unreadable", file: dir, fails: "read namespace of the pod"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := namespaceOf(tt.flag, tt.file)
			if tt.fails != "" {
				assert.ErrorContains(t, err, tt.fails)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, fails string
		give        []string
	}{
		{name: "defaults"},
		{name: "off, and nonsense", give: []string{"--leader-elect=false", "--leader-election-retry-period=0s"}},
		{name: "no period", give: []string{"--leader-election-retry-period=0s"}, fails: "--leader-election-retry-period 0s must be at least 1ms"},
		{name: "one attempt", give: []string{"--leader-election-renew-deadline=480ms"}, fails: "to leave time for a second attempt"},
		{name: "a lease that ends before its renewal", give: []string{"--leader-election-lease-duration=2s"}, fails: "--leader-election-lease-duration 2s must be longer than --leader-election-renew-deadline 2s"},
		{name: "a part of a second", give: []string{"--leader-election-lease-duration=3500ms"}, fails: "--leader-election-lease-duration 3.5s must be in whole seconds"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, fs := DefaultOptions(), pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.AddFlags(fs)
			require.NoError(t, fs.Parse(tt.give))
			if tt.fails == "" {
				assert.NoError(t, o.Validate())
				return
			}
			assert.ErrorContains(t, o.Validate(), tt.fails)
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		first := run(t, "first", quick(), w, atOnce)
		eventually(t, first.isLeading, "it leads")
		require.NoError(t, first.Check())
		second := run(t, "second", quick(), w, atOnce)
		require.EqualError(t, second.Check(), "this replica does not hold the Lease")

		synctest.Wait() // a renewal that is due now
		// The process was stopped for longer than another replica waits: no timer has run since.
		past := time.Now().Add(-time.Minute)
		first.lock.last.Store(&past)
		require.ErrorContains(t, first.Check(), "the Lease was renewed 1m0s ago, which is longer than --leader-election-renew-deadline 300ms")
		eventually(t, func() bool { return first.Check() == nil }, "the next renewal")
	})
}

func TestCheckWithoutAnElection(t *testing.T) {
	t.Parallel()
	e, err := New(Params{Log: zap.NewNop(), Metrics: prometheus.NewRegistry()})
	require.NoError(t, err)
	require.NoError(t, e.Check())
}

func TestAReleasedLeaseIsNotHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := run(t, "first", quick(), w, atOnce)
		eventually(t, r.isLeading, "it leads")
		r.stop()
		eventually(t, func() bool { return r.Check() != nil }, "it was released")
	})
}
