package balancer

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/datastore"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newEndpoint(address string) *endpoint.Endpoint {
	return endpoint.New(endpoint.Description{Identity: endpoint.Identity{Pod: address, Address: netip.MustParseAddrPort(address)}}, noon, predict.NewLearner().NewServer())
}

func snapshotOf(endpoints ...*endpoint.Endpoint) *datastore.Snapshot {
	return &datastore.Snapshot{Endpoints: endpoints}
}

func running(n float64) endpoint.Gauges { return endpoint.Gauges{Running: n} }

// constant is a configuration that never changes.
type constant struct{ config *pickerconfig.Config }

func (c constant) Current() *pickerconfig.Config { return c.config }

func leastLoaded() constant {
	return constant{&pickerconfig.Config{Profile: scheduling.LeastLoaded(scheduling.StalenessFilter{After: time.Minute})}}
}

// counter is a source of random numbers that counts up.
func counter() func() uint64 {
	var n atomic.Uint64
	return func() uint64 { return n.Add(1) }
}

func newBalancer(t *testing.T, s *datastore.Snapshot) (*Balancer, *mockObserver) {
	t.Helper()
	source := newMockSnapshots(t)
	source.EXPECT().Snapshot().Return(s)
	return newBalancerOf(t, source)
}

func newBalancerOf(t *testing.T, source *mockSnapshots) (*Balancer, *mockObserver) {
	t.Helper()
	observed := newMockObserver(t)
	return New(Params{
		Snapshots: source, Learner: predict.NewLearner(), Prefixes: prefix.NewIndex(1 << 20), Configs: leastLoaded(), Observer: observed, Clock: clocktesting.NewFakePassiveClock(noon), Random: counter(),
	}), observed
}

func TestPickTakesTheLeastLoadedAndCountsIt(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	a.Record(a.BeginScrape(noon), running(2))
	balancer, observed := newBalancer(t, snapshotOf(a, b))
	observed.EXPECT().ObservePick(time.Duration(0), nil).Times(3)
	for _, want := range []string{"10.0.0.2:8000", "10.0.0.2:8000"} {
		lease, err := balancer.Pick(request.Incoming{}, nil)
		require.NoError(t, err)
		assert.Equal(t, want, lease.Address())
	}
	a.Record(a.BeginScrape(noon), running(1))
	lease, err := balancer.Pick(request.Incoming{}, nil)
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.1:8000", lease.Address())
	assert.EqualValues(t, 2, b.Stats(noon).InFlight)
}

func TestBurstBetweenTwoScrapesIsSpread(t *testing.T) {
	t.Parallel()
	endpoints := []*endpoint.Endpoint{newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000"), newEndpoint("10.0.0.3:8000")}
	balancer, observed := newBalancer(t, snapshotOf(endpoints...))
	observed.EXPECT().ObservePick(mock.Anything, nil)
	for range 300 {
		_, err := balancer.Pick(request.Incoming{}, nil)
		require.NoError(t, err)
	}
	for _, e := range endpoints {
		assert.EqualValues(t, 100, e.Stats(noon).InFlight)
	}
}

func TestSlowEndpointGetsItsShare(t *testing.T) {
	t.Parallel()
	// Thirty requests are always open; two servers finish one in a step, the third one in four.
	endpoints := []*endpoint.Endpoint{newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000"), newEndpoint("10.0.0.3:8000")}
	balancer, observed := newBalancer(t, snapshotOf(endpoints...))
	observed.EXPECT().ObservePick(mock.Anything, nil)
	queues := map[*endpoint.Endpoint][]*endpoint.Lease{}
	place := func() {
		lease, err := balancer.Pick(request.Incoming{}, nil)
		require.NoError(t, err)
		queues[lease.Endpoint()] = append(queues[lease.Endpoint()], lease)
	}
	for range 30 {
		place()
	}
	for step := range 4000 {
		for i, e := range endpoints {
			if i == 2 && step%4 != 0 || len(queues[e]) == 0 {
				continue
			}
			queues[e][0].Release()
			queues[e] = queues[e][1:]
			place()
		}
	}
	total := endpoints[0].Stats(noon).Picks + endpoints[1].Stats(noon).Picks + endpoints[2].Stats(noon).Picks
	assert.Less(t, float64(endpoints[2].Stats(noon).Picks)/float64(total), 0.15)
}

func TestPickKeepsToTheSubset(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.1:8001")
	b.Record(b.BeginScrape(noon), running(50))
	balancer, observed := newBalancer(t, snapshotOf(a, b))
	observed.EXPECT().ObservePick(mock.Anything, nil).Once()
	lease, err := balancer.Pick(request.Incoming{}, scheduling.ParseSubset([]string{"10.0.0.1:8001"}))
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.1:8001", lease.Address())

	observed.EXPECT().ObservePick(mock.Anything, scheduling.ErrNoneInSubset).Once()
	_, err = balancer.Pick(request.Incoming{}, scheduling.ParseSubset(nil))
	require.ErrorIs(t, err, scheduling.ErrNoneInSubset)
}

func TestPickTakesTheConfigurationOfTheMoment(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	a.Record(a.BeginScrape(noon), endpoint.Gauges{Running: 9, KVUsage: 0.1})
	b.Record(b.BeginScrape(noon), endpoint.Gauges{Running: 1, KVUsage: 0.9})
	source, observed, configured := newMockSnapshots(t), newMockObserver(t), newMockConfigs(t)
	source.EXPECT().Snapshot().Return(snapshotOf(a, b))
	observed.EXPECT().ObservePick(mock.Anything, nil)
	balancer := New(Params{
		Snapshots: source, Learner: predict.NewLearner(), Prefixes: prefix.NewIndex(1 << 20), Configs: configured, Observer: observed,
		Clock: clocktesting.NewFakePassiveClock(noon), Random: counter(),
	})
	for scorer, want := range map[string]string{"running-requests-size-scorer": b.Address(), "kv-cache-utilization-scorer": a.Address()} {
		config, err := pickerconfig.Load([]byte("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: "+scorer+"}]\n"), pickerconfig.Options{StaleAfter: time.Minute})
		require.NoError(t, err)
		configured.EXPECT().Current().Return(config).Once()
		lease, err := balancer.Pick(request.Incoming{}, nil)
		require.NoError(t, err)
		assert.Equal(t, want, lease.Address(), scorer)
		lease.Release()
	}
}

func TestPickWithoutEndpoints(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give *datastore.Snapshot
		want string
	}{
		{name: "empty pool", give: snapshotOf(), want: "no ready endpoints in the pool"},
		{name: "no pool", give: &datastore.Snapshot{Err: datastore.ErrNoPool}, want: "no ready endpoints in the pool: the InferencePool does not exist"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			balancer, observed := newBalancer(t, tt.give)
			observed.EXPECT().ObservePick(mock.Anything, mock.MatchedBy(func(err error) bool { return err != nil })).Once()
			_, err := balancer.Pick(request.Incoming{}, nil)
			require.ErrorIs(t, err, scheduling.ErrNoEndpoints)
			require.EqualError(t, err, tt.want)
		})
	}
}

// silent takes measurements and forgets them.
type silent struct{}

func (silent) ObservePick(time.Duration, error) {}

// fixed is a snapshot that never changes.
type fixed struct{ snapshot *datastore.Snapshot }

func (f fixed) Snapshot() *datastore.Snapshot { return f.snapshot }

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{8, 64, 256} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			snapshot := &datastore.Snapshot{}
			for i := range n {
				e := newEndpoint(fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250+1))
				e.Record(e.BeginScrape(noon), running(float64(i%7)))
				snapshot.Endpoints = append(snapshot.Endpoints, e)
			}
			balancer := New(Params{
				Snapshots: fixed{snapshot}, Learner: predict.NewLearner(), Prefixes: prefix.NewIndex(1 << 20), Configs: leastLoaded(), Observer: silent{}, Clock: clock.RealClock{}, Random: rand.Uint64,
			})
			b.ReportAllocs()
			for b.Loop() {
				lease, err := balancer.Pick(request.Incoming{}, nil)
				if err != nil {
					b.Fatal(err)
				}
				lease.Release()
			}
		})
	}
}

// chat is a request whose prompt begins with one of a few long texts.
func chat(text string, own int) request.Incoming {
	body := fmt.Sprintf(`{"model": "m", "stream": true, "messages": [{"role": "system", "content": %q}, {"role": "user", "content": %q}]}`,
		strings.Repeat(text+" ", 2000), strings.Repeat(fmt.Sprint(own, " "), 100))
	return request.Incoming{Path: "/v1/chat/completions", Body: []byte(body)}
}

func TestPickGoesWhereThePromptIsUnlessThatIsTooBusy(t *testing.T) {
	t.Parallel()
	learner, prefixes := predict.NewLearner(), prefix.NewIndex(1<<20)
	factory := endpoint.NewFactory(learner, prefixes)
	var endpoints []*endpoint.Endpoint
	for _, address := range []string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"} {
		endpoints = append(endpoints, factory.New(endpoint.Description{Identity: endpoint.Identity{Pod: address, Address: netip.MustParseAddrPort(address)}}, noon))
	}
	source, observed := newMockSnapshots(t), newMockObserver(t)
	source.EXPECT().Snapshot().Return(snapshotOf(endpoints...))
	observed.EXPECT().ObservePick(mock.Anything, nil)
	b := New(Params{
		Snapshots: source, Learner: learner, Prefixes: prefixes, Configs: constant{pickerconfig.Default(pickerconfig.Options{StaleAfter: time.Minute})},
		Observer: observed, Clock: clocktesting.NewFakePassiveClock(noon), Random: counter(),
	})
	place := func(text string, own int) *endpoint.Lease {
		lease, err := b.Pick(chat(text, own), nil)
		require.NoError(t, err)
		return lease
	}
	homes := map[string]string{}
	for _, text := range []string{"one", "two", "three"} {
		first := place(text, 0)
		homes[text] = first.Address()
		first.First(noon)
		first.Release()
	}
	for own := range 20 {
		for text, home := range homes {
			lease := place(text, own)
			assert.Equal(t, home, lease.Address())
			lease.First(noon)
			lease.Release()
		}
	}
	seen := map[string]bool{}
	for own := range 300 { // at once, and none is answered
		seen[place("one", own).Address()] = true
	}
	assert.Len(t, seen, 3)
}

func TestPickRefusesABodyThatItCannotRead(t *testing.T) {
	t.Parallel()
	balancer, observed := newBalancerOf(t, newMockSnapshots(t))
	observed.EXPECT().ObservePick(mock.Anything, mock.Anything).Twice()
	for _, body := range []string{"{", "{}"} {
		_, err := balancer.Pick(request.Incoming{Path: "/v1/completions", Body: []byte(body)}, nil)
		require.ErrorIs(t, err, request.ErrMalformed)
	}
}
