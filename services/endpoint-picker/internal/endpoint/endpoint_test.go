package endpoint

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newEndpoint(t testing.TB) *Endpoint {
	t.Helper()
	return New(Description{Identity: Identity{Namespace: "ns", Pod: "a", UID: "1", Address: netip.MustParseAddrPort("[2001:db8::1]:8000")}}, noon, nil)
}

func after(d time.Duration) time.Time { return noon.Add(d) }

// scrape records a page that takes no time.
func scrape(e *Endpoint, at time.Time, g Gauges) { e.RecordSample(e.StartScrape(at), g) }

func TestNewEndpointIsIdleAndFresh(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	assert.Equal(t, "[2001:db8::1]:8000", e.Address())
	load := e.Load()
	assert.Zero(t, load.Requests)
	assert.Equal(t, noon, load.At)
	assert.Equal(t, Stats{Pod: "a", Address: e.Address(), Estimates: Estimates{Slowdown: 1}, SampleAge: time.Minute},
		e.StatsAt(after(time.Minute)))
}

func TestLoadJoinsSampleAndLeases(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(e *Endpoint)
		want float64
	}{
		{
			name: "leases count before any sample",
			do:   func(e *Endpoint) { e.Acquire(); e.Acquire(); e.Acquire().Release() },
			want: 2,
		},
		{
			name: "the sample has what came before it",
			do: func(e *Endpoint) {
				e.Acquire()
				scrape(e, after(1), Gauges{Waiting: 1, Running: 4})
			},
			want: 5,
		},
		{
			name: "picks and ends since the sample correct it",
			do: func(e *Endpoint) {
				before := e.Acquire()
				scrape(e, after(1), Gauges{Running: 10})
				e.Acquire()
				e.Acquire()
				before.Release()
			},
			want: 11,
		},
		{
			name: "what happens while a page is on its way is not in it",
			do: func(e *Endpoint) {
				mark := e.StartScrape(after(1))
				e.Acquire()
				e.RecordSample(mark, Gauges{Running: 3})
			},
			want: 4,
		},
		{
			name: "never less than what is open here",
			do: func(e *Endpoint) {
				e.Acquire()
				e.Acquire()
				scrape(e, after(1), Gauges{Running: 0}) // neither has arrived there yet
			},
			want: 2,
		},
		{
			name: "never less than nothing",
			do: func(e *Endpoint) {
				l := e.Acquire()
				scrape(e, after(1), Gauges{Running: 0})
				l.Release()
			},
			want: 0,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t)
			tt.do(e)
			assert.InDelta(t, tt.want, e.Load().Requests, 0)
		})
	}
}

func TestLoadShowsTheLastSample(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	scrape(e, after(time.Second), Gauges{Waiting: 2, Running: 1, KVUsage: 0.5})
	e.RecordFailure(e.StartScrape(after(2 * time.Second)))
	load := e.Load()
	assert.InDelta(t, 2, load.Waiting, 0)
	assert.InDelta(t, 0.5, load.KVUsage, 0)
	assert.Equal(t, after(time.Second), load.At)
	assert.EqualValues(t, 1, e.StatsAt(noon).ScrapeFailures)
}

func TestFailingCountsFromTheFirstFailedScrape(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	assert.Zero(t, e.Load().Failing, "not scraped yet")
	e.RecordFailure(e.StartScrape(after(time.Second)))
	e.RecordFailure(e.StartScrape(after(2 * time.Second)))
	assert.Equal(t, ToMonotonic(after(time.Second)), e.Load().Failing)

	scrape(e, after(3*time.Second), Gauges{})
	assert.Zero(t, e.Load().Failing)
	e.RecordFailure(e.StartScrape(after(4 * time.Second)))
	assert.Equal(t, ToMonotonic(after(4*time.Second)), e.Load().Failing)
	assert.EqualValues(t, 3, e.StatsAt(noon).ScrapeFailures)
}

// A page that does not change belongs to the leases of the first scrape that returned it.
func TestRepeatedPage(t *testing.T) {
	t.Parallel()
	busy := Gauges{Waiting: 1, Running: 3, KVUsage: 0.25}
	for _, tt := range []struct {
		name         string
		first, again Gauges
		repeated     bool
	}{
		{"the same", busy, busy, true},
		{"idle", Gauges{}, Gauges{}, false},
		{"other queue", busy, Gauges{Waiting: 2, Running: 3, KVUsage: 0.25}, false},
		{"other batch", busy, Gauges{Waiting: 1, Running: 2, KVUsage: 0.25}, false},
		{"other use of the cache", busy, Gauges{Waiting: 1, Running: 3, KVUsage: 0.26}, false},
		{"without the use of the cache", Gauges{Running: 3}, Gauges{Running: 3}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t)
			ended := e.Acquire()
			scrape(e, after(time.Second), tt.first)
			e.Acquire()
			e.Acquire()
			ended.Release()
			scrape(e, after(2*time.Second), tt.again)
			load := e.Load()
			assert.Equal(t, after(2*time.Second), load.At, "the age of a page is that of its scrape")
			since, ours := 0.0, 2.0
			if tt.repeated {
				since, ours = 1, 1
			}
			assert.Equal(t, []float64{since, ours}, []float64{load.Since, load.OwnRequests()})
		})
	}
}

func TestPredictPage(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	predicted := func() float64 {
		requests, _, _ := e.PredictPage(e.StartScrape(noon))
		return requests
	}
	_, _, ok := e.PredictPage(e.StartScrape(noon))
	assert.False(t, ok, "nothing was sampled yet")

	scrape(e, noon, Gauges{Waiting: 1, Running: 3, KVUsage: 0.5})
	assert.InDelta(t, 4, predicted(), 0)
	first := e.Acquire()
	second := e.Acquire()
	assert.InDelta(t, 6, predicted(), 0)
	first.Release()
	assert.InDelta(t, 5, predicted(), 0)
	assert.EqualValues(t, 3, e.Movements())

	scrape(e, noon, Gauges{})
	assert.InDelta(t, 1, predicted(), 0, "what is open is there")
	second.Release()
	assert.InDelta(t, 0, predicted(), 0)
	_, last, ok := e.PredictPage(e.StartScrape(noon))
	assert.True(t, ok)
	assert.Equal(t, Gauges{}, last)
}

func TestLeaseEndsOnce(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	l := e.Acquire()
	assert.Same(t, e, l.Endpoint())
	assert.Equal(t, e.Address(), l.Endpoint().Address())
	l.Release()
	l.Release()
	l.Abandon(noon)
	assert.Zero(t, e.StatsAt(noon).InFlight)

	l = e.Acquire()
	l.Abandon(noon)
	l.Release()
	l.Abandon(noon)
	assert.EqualValues(t, 1, e.StatsAt(noon).InFlight)
	scrape(e, after(1), Gauges{})
	assert.Zero(t, e.StatsAt(noon).InFlight)
}

func TestAbandonedLease(t *testing.T) {
	t.Parallel()
	inFlight := func(e *Endpoint) int64 { return e.StatsAt(noon).InFlight }

	t.Run("counts until a sample that began after it was acquired", func(t *testing.T) {
		t.Parallel()
		e := newEndpoint(t)
		early := e.StartScrape(noon)
		e.Acquire().Abandon(after(1))
		e.RecordSample(early, Gauges{Running: 0})
		assert.EqualValues(t, 1, inFlight(e), "this page is from before")
		assert.InDelta(t, 1, e.Load().Requests, 0)

		scrape(e, after(2), Gauges{Running: 1})
		assert.Zero(t, inFlight(e))
		assert.InDelta(t, 1, e.Load().Requests, 0, "the page has it")
	})
	t.Run("ends at once if the last sample has it", func(t *testing.T) {
		t.Parallel()
		e := newEndpoint(t)
		l := e.Acquire()
		scrape(e, after(1), Gauges{Running: 1})
		l.Abandon(after(2))
		assert.Zero(t, inFlight(e))
		assert.InDelta(t, 1, e.Load().Requests, 0, "it goes on there")
	})
	t.Run("ends at the limit if no sample comes", func(t *testing.T) {
		t.Parallel()
		e := newEndpoint(t)
		e.Acquire().Abandon(after(time.Second))
		e.Acquire().Abandon(after(2 * time.Second))
		e.ExpireAbandoned(after(time.Second))
		assert.EqualValues(t, 2, inFlight(e))
		e.ExpireAbandoned(after(2 * time.Second))
		assert.EqualValues(t, 1, inFlight(e))
		assert.InDelta(t, 1, e.Load().Requests, 0)
		e.ExpireAbandoned(after(time.Hour))
		assert.Zero(t, e.Load().Requests)
	})
}

// FuzzLeases runs any order of events and checks that the load never drops below what is open here, and that at rest
// nothing is left.
func FuzzLeases(f *testing.F) {
	f.Add([]byte{0, 0, 1, 3, 2, 4, 0, 5})
	f.Add([]byte{0, 2, 3, 0, 2, 5, 5, 1})
	f.Fuzz(func(t *testing.T, events []byte) {
		e := newEndpoint(t)
		now := noon
		var open []*Lease
		mark := e.StartScrape(now)
		for i, event := range events {
			now = now.Add(time.Second)
			switch event % 6 {
			case 0:
				open = append(open, e.Acquire())
			case 1, 2:
				if len(open) == 0 {
					continue
				}
				l := open[i%len(open)]
				open = append(open[:i%len(open)], open[i%len(open)+1:]...)
				if event%6 == 1 {
					l.Release()
				} else {
					l.Abandon(now)
				}
			case 3:
				mark = e.StartScrape(now)
			case 4:
				e.RecordSample(mark, Gauges{Running: float64(i % 3)})
			case 5:
				e.ExpireAbandoned(now.Add(-5 * time.Second))
			}
			require.GreaterOrEqual(t, e.Load().Requests, float64(len(open)))
			require.GreaterOrEqual(t, e.StatsAt(now).InFlight, int64(len(open)))
		}
		for _, l := range open {
			l.Abandon(now)
		}
		scrape(e, now, Gauges{})
		require.Zero(t, e.StatsAt(now).InFlight)
		require.Zero(t, e.Load().Requests)
	})
}

func TestEndpointUnderConcurrency(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 0))
			for range 2000 {
				switch l := e.Acquire(); random.IntN(3) {
				case 0:
					l.Release()
				case 1:
					l.Abandon(noon)
				default:
					scrape(e, noon, Gauges{Running: 1})
					_ = e.Load()
					l.Abandon(noon)
				}
			}
		})
	}
	wg.Wait()
	e.ExpireAbandoned(after(time.Hour))
	assert.Zero(t, e.StatsAt(noon).InFlight)
	assert.EqualValues(t, 16000, e.StatsAt(noon).Picks)
}

// A request whose stream ended early counts until a scrape that began after it, also if the page does not change.
func TestRepeatedPageEndsAbandonedLeases(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	busy := Gauges{Running: 3, KVUsage: 0.25}
	scrape(e, after(time.Second), busy)
	e.Acquire().Abandon(after(time.Second))
	assert.InDelta(t, 1, e.Load().Open, 0)
	scrape(e, after(2*time.Second), busy)
	assert.Zero(t, e.Load().Open)
}
