package modelserver

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// simulation runs the scheduler in virtual time: scrapes take none, and tell what the test says.
type simulation struct {
	*Scraper

	clock   *clocktesting.FakeClock
	scrapes map[*endpoint.Endpoint]int
}

func simulate(o Options, n int) *simulation {
	c := clocktesting.NewFakeClock(noon)
	s := &simulation{NewScraper(ScraperParams{Options: o, Log: zap.NewNop(), Outliers: deaf{}, Clock: c}), c, map[*endpoint.Endpoint]int{}}
	for range n {
		s.workers = append(s.workers, &worker{Scraper: s.Scraper, endpoint: anEndpoint()})
	}
	return s
}

func anEndpoint() *endpoint.Endpoint {
	id := endpoint.Identity{Namespace: "ns", Pod: "pod", UID: "1", Address: netip.MustParseAddrPort("10.0.0.1:8000")}
	return endpoint.New(endpoint.Description{Identity: id}, noon, nil)
}

// run lets a time pass. Before each beat the traffic comes, and each scrape ends as told.
func (s *simulation) run(d time.Duration, traffic func(), tell func(*pace)) (scrapes int) {
	clear(s.scrapes)
	for end := s.clock.Now().Add(d); s.clock.Now().Before(end); s.clock.Step(s.period()) {
		traffic()
		for _, w := range s.choose(s.clock.Now()) {
			w.begin(s.clock.Now())
			tell(&w.pace)
			s.scrapes[w.endpoint]++
			scrapes++
		}
	}
	return scrapes
}

// place is traffic on one endpoint.
func place(e *endpoint.Endpoint) func() { return func() { e.Acquire().Release() } }

func nothing() {}

func TestIdlePoolIsScrapedSlowly(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 8)
	s.run(5*time.Second, nothing, (*pace).news)
	assert.InDelta(t, 8*10, s.run(10*time.Second, nothing, (*pace).news), 8, "others' traffic is nobody's business")
}

func TestPagesThatTellSomethingNewAreScrapedFast(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 8)
	traffic := place(s.workers[0].endpoint)
	assert.InDelta(t, 8*100, s.run(10*time.Second, traffic, (*pace).news), 8*10)
}

func TestPagesThatOnlyConfirmAreScrapedLess(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 8)
	busy := s.workers[0].endpoint
	s.run(5*time.Second, place(busy), (*pace).noNews)
	s.run(10*time.Second, place(busy), (*pace).noNews)
	assert.InDelta(t, 50, s.scrapes[busy], 8, "where our leases move")
	assert.InDelta(t, 10, s.scrapes[s.workers[1].endpoint], 2)
}

func TestFirstRequestAfterAPauseBringsAScrape(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 8)
	s.run(5*time.Second, nothing, (*pace).noNews)
	e := s.workers[3].endpoint
	e.Acquire()
	s.run(250*time.Millisecond, nothing, (*pace).noNews)
	assert.GreaterOrEqual(t, s.scrapes[e], 1)
}

func TestHurryIsTraffic(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 8)
	s.run(5*time.Second, nothing, (*pace).news)
	assert.InDelta(t, 8*50, s.run(5*time.Second, s.Hurry, (*pace).news), 8*6)
}

func TestBudgetHoldsWhateverTheNumberOfEndpoints(t *testing.T) {
	t.Parallel()
	for _, n := range []int{64, 256, 1000} {
		s := simulate(DefaultOptions(), n)
		traffic := place(s.workers[0].endpoint)
		s.run(5*time.Second, traffic, (*pace).news)
		assert.LessOrEqual(t, s.run(10*time.Second, traffic, (*pace).news), 10*400+40, n)
		least, most := len(s.workers)*1000, 0
		for _, w := range s.workers {
			least, most = min(least, s.scrapes[w.endpoint]), max(most, s.scrapes[w.endpoint])
		}
		require.Positive(t, least)
		assert.LessOrEqual(t, most-least, most/4+2, "%d endpoints share it alike", n)
	}
}

func TestBudgetIsSharedByTheBusyAndTheIdle(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Budget = 50
	s := simulate(o, 64)
	loud := s.workers[:32]
	for _, w := range s.workers[32:] {
		w.pace = pace{streak: 10}
	}
	s.run(20*time.Second, place(loud[0].endpoint), func(p *pace) {
		if p.streak == 0 {
			p.news()
		}
	})
	for _, w := range s.workers {
		assert.Positive(t, s.scrapes[w.endpoint], "none is forgotten")
	}
	assert.Greater(t, s.scrapes[loud[1].endpoint], s.scrapes[s.workers[40].endpoint])
}

func TestSmallBudgetIsSavedUp(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Budget = 1
	s := simulate(o, 4)
	assert.InDelta(t, 20, s.run(20*time.Second, nothing, (*pace).noNews), 2)
}

func TestBusyWorkersAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 2)
	s.workers[0].busy.Store(true)
	s.run(3*time.Second, nothing, (*pace).noNews)
	assert.Zero(t, s.scrapes[s.workers[0].endpoint])
	assert.Positive(t, s.scrapes[s.workers[1].endpoint])
}

func TestBeats(t *testing.T) {
	t.Parallel()
	for fastest, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 5 * time.Millisecond, 50 * time.Millisecond: 25 * time.Millisecond,
		100 * time.Millisecond: 50 * time.Millisecond, time.Second: 50 * time.Millisecond,
	} {
		o := DefaultOptions()
		o.Interval.Fastest = fastest
		assert.Equal(t, want, simulate(o, 1).period())
	}
}
