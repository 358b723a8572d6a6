package pool

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zaptest "go.uber.org/zap/zaptest/observer"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

var storeStart = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a store whose world is set call by call.
type harness struct {
	*Store

	source    *mockEndpointSource
	estimator *estimate.Estimator
	logs      *zaptest.ObservedLogs
	told      [][]*endpoint.Endpoint
}

func newHarness(t *testing.T, level zapcore.Level) *harness {
	t.Helper()
	core, logs := zaptest.New(level)
	h := &harness{source: newMockEndpointSource(t), estimator: estimate.New(prefixindex.NewMemoryBudget(1 << 20)), logs: logs}
	h.Store = NewStore(zap.New(core), "ns/pool", h.source, h.estimator, clocktesting.NewFakePassiveClock(storeStart))
	h.AddObservers(func(e []*endpoint.Endpoint) { h.told = append(h.told, e) })
	return h
}

// see makes these endpoints the pool, and rebuilds. Nil means that the pool does not exist.
func (h *harness) see(pool []endpoint.Description) {
	var err error
	if pool == nil {
		err = ErrNoPool
	}
	h.source.EXPECT().ReadPool().Return(pool, err).Once()
	h.rebuild()
}

func (h *harness) addresses() []string {
	list := []string{}
	for _, e := range h.Snapshot().Endpoints {
		list = append(list, e.Address())
	}
	return list
}

func somePool(endpoints ...endpoint.Description) []endpoint.Description {
	return append([]endpoint.Description{}, endpoints...)
}

type option func(*endpoint.Description)

// server is an endpoint of a pod of that name, at that address and port 8000.
func server(name, ip string, options ...option) endpoint.Description {
	id := endpoint.Identity{Namespace: "ns", Pod: name, UID: "uid-" + name, Address: netip.AddrPortFrom(netip.MustParseAddr(ip), 8000)}
	d := endpoint.Description{Identity: id}
	for _, o := range options {
		o(&d)
	}
	return d
}

func labelled(d *endpoint.Description) { d.Labels = map[string]string{"role": "decode"} }
func uid(u string) option              { return func(d *endpoint.Description) { d.UID = u } }
func at(port uint16) option {
	return func(d *endpoint.Description) { d.Address = netip.AddrPortFrom(d.Address.Addr(), port) }
}

func TestStoreBeforeItsFirstSnapshot(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	assert.Empty(t, h.Snapshot().Endpoints)
	require.ErrorIs(t, h.CheckReady(), ErrNotSynced)
	require.EqualError(t, h.CheckReady(), "inference pool ns/pool: informers have not synced yet")
}

func TestStoreWithoutPool(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	h.see(nil)
	h.see(nil)
	require.ErrorIs(t, h.CheckReady(), ErrNoPool)
	require.Len(t, h.logs.All(), 1, "said once")
	assert.Equal(t, zap.WarnLevel, h.logs.All()[0].Level)

	h.see(somePool())
	require.NoError(t, h.CheckReady(), "an empty pool is ready")
	assert.Equal(t, "Found inference pool", h.logs.All()[1].Message)
	assert.Empty(t, h.told, "no endpoints yet, none before")
}

func TestEndpointsLiveAsLongAsTheirPods(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	h.see(somePool(server("a", "10.0.0.1"), server("b", "10.0.0.2")))
	first := h.Snapshot()
	first.Endpoints[0].Acquire()

	h.see(somePool(server("a", "10.0.0.1"), server("c", "10.0.0.3")))
	assert.Equal(t, []string{"10.0.0.1:8000", "10.0.0.3:8000"}, h.addresses())
	assert.Same(t, first.Endpoints[0], h.Snapshot().Endpoints[0], "it keeps its load")
	h.see(somePool(server("a", "10.0.0.1", labelled), server("c", "10.0.0.3")))
	assert.Same(t, first.Endpoints[0], h.Snapshot().Endpoints[0])
	assert.Equal(t, "decode", first.Endpoints[0].Description().Labels["role"], "labels may change")
	assert.Equal(t, "10.0.0.2:8000", first.Endpoints[1].Address(), "a snapshot never changes")

	h.see(somePool(server("a", "10.0.0.1", uid("another")), server("c", "10.0.0.3")))
	assert.NotSame(t, first.Endpoints[0], h.Snapshot().Endpoints[0], "another pod under the same name")
	assert.Zero(t, h.Snapshot().Endpoints[0].Load().Requests)

	h.see(somePool(server("c", "10.0.0.3"), server("c", "10.0.0.3", at(8001))))
	assert.Equal(t, []string{"10.0.0.3:8000", "10.0.0.3:8001"}, h.addresses())
}

func TestObserverLearnsOfChangesOnly(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.DebugLevel)
	h.see(somePool(server("a", "10.0.0.1")))
	require.Len(t, h.told, 1)
	before := h.logs.Len()
	h.see(somePool(server("a", "10.0.0.1")))
	assert.Len(t, h.told, 1)
	assert.Equal(t, before, h.logs.Len(), "a settled cluster logs nothing")

	h.see(somePool(server("b", "10.0.0.2")))
	require.Len(t, h.told, 2)
	assert.Equal(t, h.Snapshot().Endpoints, h.told[1])
	changed := h.logs.FilterMessage("Changed endpoints").All()
	require.Len(t, changed, 2)
	assert.Equal(t, map[string]any{"pool": "ns/pool", "added": int64(1), "removed": int64(1), "endpoints": int64(1)}, changed[1].ContextMap())

	h.see(somePool())
	require.Len(t, h.told, 3)
	assert.Empty(t, h.told[2])

	h.see(somePool(server("b", "10.0.0.2")))
	h.see(nil)
	require.Len(t, h.told, 5)
	assert.Empty(t, h.told[4], "the pool was deleted")
}

func TestRunWaitsForSyncAndFollowsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, zap.InfoLevel)
		synced := make(chan struct{})
		h.source.EXPECT().WaitForSync(mock.Anything).RunAndReturn(func(context.Context) bool { <-synced; return true }).Once()
		pools := make(chan []endpoint.Description, 1)
		h.source.EXPECT().ReadPool().RunAndReturn(func() ([]endpoint.Description, error) { return <-pools, nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.Run(ctx)
		}()

		h.MarkChanged()
		require.ErrorIs(t, h.CheckReady(), ErrNotSynced, "a change is no sync")
		pools <- somePool(server("a", "10.0.0.1"))
		close(synced)
		synctest.Wait()
		require.Len(t, h.Snapshot().Endpoints, 1)

		h.MarkChanged()
		pools <- somePool()
		time.Sleep(time.Second) // more than the time between two readings
		require.Empty(t, h.Snapshot().Endpoints)
		cancel()
		close(pools)
		<-done
	})
}

func TestRunEndsWhenTheCachesNeverSync(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	h.source.EXPECT().WaitForSync(mock.Anything).Return(false).Once()
	h.Run(t.Context())
	require.ErrorIs(t, h.CheckReady(), ErrNotSynced)
}

// fixed is a source without expectations: it counts how often it is asked.
type fixed struct {
	asked atomic.Int64
	pool  atomic.Pointer[[]endpoint.Description]
}

func (f *fixed) ReadPool() ([]endpoint.Description, error) {
	f.asked.Add(1)
	return *f.pool.Load(), nil
}

func (f *fixed) WaitForSync(context.Context) bool { return true }

func (h *harness) follow(f *fixed) *harness {
	h.Store.source = f
	return h
}

func TestHerdOfChangesGivesFewRebuilds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixed{}
		none := somePool()
		f.pool.Store(&none)
		h := newHarness(t, zap.InfoLevel).follow(f)
		go h.Run(t.Context())
		synctest.Wait()
		f.asked.Store(0)
		time.Sleep(time.Second)
		assert.Zero(t, f.asked.Load(), "nothing changed, nothing is asked")

		h.MarkChanged()
		synctest.Wait()
		assert.EqualValues(t, 1, f.asked.Load(), "the first change is followed at once")
		last := somePool(server("last", "10.0.0.9"))
		for i := range 10_000 { // in a tenth of a second
			if i == 9_999 {
				f.pool.Store(&last)
			}
			h.MarkChanged()
			time.Sleep(10 * time.Microsecond)
		}
		assert.LessOrEqual(t, f.asked.Load(), int64(7))
		time.Sleep(rebuildSpacing)
		synctest.Wait()
		assert.Equal(t, []string{"10.0.0.9:8000"}, h.addresses(), "and the last one is not lost")
	})
}

func TestSnapshotsAreReadWhileTheyAreReplaced(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.ErrorLevel)
	odd := somePool(server("a", "10.0.0.1"), server("b", "10.0.0.2", labelled))
	even := somePool(server("b", "10.0.0.2"), server("c", "10.0.0.3"))
	f := &fixed{}
	f.pool.Store(&odd)
	h.follow(f).rebuild()
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got := h.addresses()
				if !slices.Equal(got, []string{"10.0.0.1:8000", "10.0.0.2:8000"}) && !slices.Equal(got, []string{"10.0.0.2:8000", "10.0.0.3:8000"}) {
					t.Errorf("a mixture: %v", got)
					return
				}
				for _, e := range h.Snapshot().Endpoints {
					_ = e.Description().Labels["role"]
				}
			}
		})
	}
	for i := range 2_000 {
		f.pool.Store([]*[]endpoint.Description{&odd, &even}[i%2])
		h.rebuild()
	}
	close(stop)
	readers.Wait()
}

func TestStoreForgetsThePrefixesOfPodsThatHaveGone(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	h.see(somePool(server("a", "10.0.0.1"), server("b", "10.0.0.2")))
	a, b := h.Snapshot().Endpoints[0], h.Snapshot().Endpoints[1]
	place := func(e *endpoint.Endpoint, chain ...uint64) {
		h.estimator.RecordPlacement(&estimate.Prompt{Chain: &prefixindex.Chain{Hashes: chain}}, e, &estimate.Expectation{})
	}
	place(a, 1, 2, 3)
	place(b, 1, 2)
	h.see(somePool(server("b", "10.0.0.2")))
	gone, _ := h.estimator.CacheSize(a)
	assert.Zero(t, gone)
	assert.Equal(t, 2, h.estimator.IndexStats().Blocks)
	h.see(nil)
	assert.Equal(t, prefixindex.Stats{}, h.estimator.IndexStats())
}
