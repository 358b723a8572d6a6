package datastore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zaptest "go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
)

const (
	patience = 10 * time.Second
	tick     = time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a store whose world is set call by call.
type harness struct {
	*Store

	source   *mockSource
	observer *mockObserver
	prefixes *prefix.Index
	logs     *zaptest.ObservedLogs
	told     [][]*endpoint.Endpoint
}

func newHarness(t *testing.T, level zapcore.Level) *harness {
	t.Helper()
	core, logs := zaptest.New(level)
	h := &harness{source: newMockSource(t), observer: newMockObserver(t), prefixes: prefix.NewIndex(1 << 20), logs: logs}
	h.Store = New(Params{
		Log: zap.New(core), Pool: "ns/pool", Source: h.source, Factory: endpoint.NewFactory(predict.NewLearner(), h.prefixes),
		Observer: h.observer, Clock: clocktesting.NewFakePassiveClock(noon),
	})
	h.observer.EXPECT().SetEndpoints(mock.Anything).Run(func(e []*endpoint.Endpoint) { h.told = append(h.told, e) }).Maybe()
	return h
}

// see rebuilds with this pool and these pods.
func (h *harness) see(pool *Pool, pods ...*corev1.Pod) {
	h.source.EXPECT().Pool().Return(pool).Once()
	if pool != nil {
		h.source.EXPECT().Pods(pool.Selector).Return(pods, nil).Once()
	}
	h.rebuild()
}

func (h *harness) addresses() []string {
	list := []string{}
	for _, e := range h.Snapshot().Endpoints {
		list = append(list, e.Address())
	}
	return list
}

func somePool(ports ...uint16) *Pool {
	return &Pool{Selector: labels.SelectorFromSet(labels.Set{"app": "model"}), Ports: ports}
}

func TestStoreBeforeItsFirstSnapshot(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	assert.Empty(t, h.Snapshot().Endpoints)
	require.ErrorIs(t, h.Ready(), ErrNotSynced)
	require.EqualError(t, h.Ready(), "inference pool ns/pool: informers have not synced yet")
}

func TestStoreWithoutPool(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	h.see(nil)
	h.see(nil)
	require.ErrorIs(t, h.Ready(), ErrNoPool)
	require.Len(t, h.logs.All(), 1, "said once")
	assert.Equal(t, zap.WarnLevel, h.logs.All()[0].Level)

	h.see(somePool(8000))
	require.NoError(t, h.Ready(), "an empty pool is ready")
	assert.Equal(t, "Found inference pool", h.logs.All()[1].Message)
	assert.Empty(t, h.told, "no endpoints yet, none before")
}

func TestEndpointsLiveAsLongAsTheirPods(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	pool := somePool(8000)
	h.see(pool, readyPod("a", "10.0.0.1"), readyPod("b", "10.0.0.2"))
	first := h.Snapshot()
	first.Endpoints[0].Acquire()

	h.see(pool, readyPod("a", "10.0.0.1"), readyPod("c", "10.0.0.3"))
	assert.Equal(t, []string{"10.0.0.1:8000", "10.0.0.3:8000"}, h.addresses())
	assert.Same(t, first.Endpoints[0], h.Snapshot().Endpoints[0], "it keeps its load")
	h.see(pool, readyPod("a", "10.0.0.1", labelled), readyPod("c", "10.0.0.3"))
	assert.Same(t, first.Endpoints[0], h.Snapshot().Endpoints[0])
	assert.Equal(t, "decode", first.Endpoints[0].Description().Labels["role"], "labels may change")
	assert.Equal(t, "10.0.0.2:8000", first.Endpoints[1].Address(), "a snapshot never changes")

	h.see(pool, readyPod("a", "10.0.0.1", uid("another")), readyPod("c", "10.0.0.3"))
	assert.NotSame(t, first.Endpoints[0], h.Snapshot().Endpoints[0], "another pod under the same name")
	assert.Zero(t, h.Snapshot().Endpoints[0].Load().Requests)

	h.see(somePool(8000, 8001), readyPod("c", "10.0.0.3"))
	assert.Equal(t, []string{"10.0.0.3:8000", "10.0.0.3:8001"}, h.addresses())
}

func TestObserverLearnsOfChangesOnly(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.DebugLevel)
	pool := somePool(8000)
	h.see(pool, readyPod("a", "10.0.0.1"))
	require.Len(t, h.told, 1)
	before := h.logs.Len()
	h.see(pool, readyPod("a", "10.0.0.1"))
	assert.Len(t, h.told, 1)
	assert.Equal(t, before, h.logs.Len(), "a settled cluster logs nothing")

	h.see(pool, readyPod("b", "10.0.0.2"))
	require.Len(t, h.told, 2)
	assert.Equal(t, h.Snapshot().Endpoints, h.told[1])
	changed := h.logs.FilterMessage("Changed endpoints").All()
	require.Len(t, changed, 2)
	assert.Equal(t, map[string]any{"pool": "ns/pool", "added": int64(1), "removed": int64(1), "endpoints": int64(1)}, changed[1].ContextMap())

	h.see(pool)
	require.Len(t, h.told, 3)
	assert.Empty(t, h.told[2])

	h.see(pool, readyPod("b", "10.0.0.2"))
	h.see(nil)
	require.Len(t, h.told, 5)
	assert.Empty(t, h.told[4], "the pool was deleted")
}

func TestUnreadableCacheChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.ErrorLevel)
	pool := somePool(8000)
	h.see(pool, readyPod("a", "10.0.0.1"))
	h.source.EXPECT().Pool().Return(pool).Once()
	h.source.EXPECT().Pods(pool.Selector).Return(nil, errors.New("broken")).Once()
	h.rebuild()
	assert.Equal(t, []string{"10.0.0.1:8000"}, h.addresses())
	assert.Equal(t, 1, h.logs.Len())
}

func TestRunWaitsForSyncAndFollowsChanges(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	synced := make(chan struct{})
	h.source.EXPECT().WaitForSync(mock.Anything).RunAndReturn(func(context.Context) bool { <-synced; return true }).Once()
	h.source.EXPECT().Pool().Return(somePool(8000))
	pods := make(chan []*corev1.Pod, 1)
	h.source.EXPECT().Pods(mock.Anything).RunAndReturn(func(labels.Selector) ([]*corev1.Pod, error) { return <-pods, nil })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Run(ctx)
	}()

	h.Changed()
	require.ErrorIs(t, h.Ready(), ErrNotSynced, "a change is no sync")
	pods <- []*corev1.Pod{readyPod("a", "10.0.0.1")}
	close(synced)
	require.Eventually(t, func() bool { return len(h.Snapshot().Endpoints) == 1 }, patience, tick)

	h.Changed()
	pods <- nil
	require.Eventually(t, func() bool { return len(h.Snapshot().Endpoints) == 0 }, patience, tick)
	cancel()
	close(pods)
	<-done
}

func TestRunEndsWhenTheCachesNeverSync(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	h.source.EXPECT().WaitForSync(mock.Anything).Return(false).Once()
	h.Run(t.Context())
	require.ErrorIs(t, h.Ready(), ErrNotSynced)
}

func TestStoreForgetsThePrefixesOfPodsThatHaveGone(t *testing.T) {
	t.Parallel()
	h := newHarness(t, zap.InfoLevel)
	h.see(somePool(8000), readyPod("a", "10.0.0.1"), readyPod("b", "10.0.0.2"))
	a, b := h.Snapshot().Endpoints[0], h.Snapshot().Endpoints[1]
	h.prefixes.Use(a.Cache(), []uint64{1, 2, 3})
	h.prefixes.Use(b.Cache(), []uint64{1, 2})
	h.see(somePool(8000), readyPod("b", "10.0.0.2"))
	matched := make([]int, h.prefixes.Len())
	h.prefixes.Match([]uint64{1, 2, 3}, matched)
	assert.Zero(t, matched[a.Cache()])
	assert.Equal(t, 2, matched[b.Cache()])
	h.see(nil)
	assert.Equal(t, prefix.Stats{}, h.prefixes.Stats())
}
