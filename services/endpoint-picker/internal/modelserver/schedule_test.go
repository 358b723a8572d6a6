package modelserver

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// simulation runs a schedule in virtual time: scrapes take none, and tell what the test says.
type simulation struct {
	*Schedule

	interval Interval
	now      time.Time
	scrapes  map[*endpoint.Endpoint]int
	work     time.Duration // of each page
}

func simulate(o Options, n int) *simulation {
	s := &simulation{NewSchedule(NewBudget(o.Budget), rand.Float64), o.Interval, noon, map[*endpoint.Endpoint]int{}, 0}
	var endpoints []*endpoint.Endpoint
	for range n {
		endpoints = append(endpoints, anEndpoint())
	}
	s.SetEndpoints(endpoints)
	return s
}

func anEndpoint() *endpoint.Endpoint {
	id := endpoint.Identity{Namespace: "ns", Pod: "pod", UID: "1", Address: netip.MustParseAddrPort("10.0.0.1:8000")}
	return endpoint.New(endpoint.Description{Identity: id}, noon, nil)
}

// run lets a time pass. Before each beat the traffic comes, and each scrape ends as told.
func (s *simulation) run(d time.Duration, traffic func(), tell func(*pace)) (scrapes int) {
	clear(s.scrapes)
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(beatPeriod(s.interval)) {
		traffic()
		for _, turn := range s.StartDue(s.now, s.interval) {
			tell(&turn.pace)
			turn.EndTurn(s.work)
			s.scrapes[turn.Endpoint()]++
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
	s.run(5*time.Second, nothing, (*pace).resetPace)
	assert.InDelta(t, 8*10, s.run(10*time.Second, nothing, (*pace).resetPace), 8, "others' traffic is nobody's business")
}

func TestPagesThatTellSomethingNewAreScrapedFast(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 8)
	traffic := place(s.turns[0].endpoint)
	assert.InDelta(t, 8*100, s.run(10*time.Second, traffic, (*pace).resetPace), 8*10)
}

func TestPagesThatOnlyConfirmAreScrapedLess(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 8)
	busy := s.turns[0].endpoint
	s.run(5*time.Second, place(busy), (*pace).noNews)
	s.run(10*time.Second, place(busy), (*pace).noNews)
	assert.InDelta(t, 50, s.scrapes[busy], 8, "where our leases move")
	assert.InDelta(t, 10, s.scrapes[s.turns[1].endpoint], 2)
}

func TestFirstRequestAfterAPauseBringsAScrape(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 8)
	s.run(5*time.Second, nothing, (*pace).noNews)
	e := s.turns[3].endpoint
	e.Acquire()
	s.run(250*time.Millisecond, nothing, (*pace).noNews)
	assert.GreaterOrEqual(t, s.scrapes[e], 1)
}

func TestBudgetHoldsWhateverTheNumberOfEndpoints(t *testing.T) {
	t.Parallel()
	for _, n := range []int{64, 256, 1000} {
		s := simulate(DefaultOptions(), n)
		traffic := place(s.turns[0].endpoint)
		s.run(5*time.Second, traffic, (*pace).resetPace)
		assert.LessOrEqual(t, s.run(10*time.Second, traffic, (*pace).resetPace), 10*400+40, n)
		least, most := len(s.turns)*1000, 0
		for _, w := range s.turns {
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
	loud := s.turns[:32]
	for _, w := range s.turns[32:] {
		w.pace = pace{streak: 10}
	}
	s.run(20*time.Second, place(loud[0].endpoint), func(p *pace) {
		if p.streak == 0 {
			p.resetPace()
		}
	})
	for _, w := range s.turns {
		assert.Positive(t, s.scrapes[w.endpoint], "none is forgotten")
	}
	assert.Greater(t, s.scrapes[loud[1].endpoint], s.scrapes[s.turns[40].endpoint])
}

func TestSmallBudgetIsSavedUp(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Budget = 1
	s := simulate(o, 4)
	assert.InDelta(t, 20, s.run(20*time.Second, nothing, (*pace).noNews), 2)
}

// However fast an endpoint should be read, its pages take at most 20 ms of processor time a second.
func TestCostlyPagesAreScrapedLess(t *testing.T) {
	t.Parallel()
	for work, most := range map[time.Duration]int{
		time.Millisecond: 100, 2 * time.Millisecond: 100, 5 * time.Millisecond: 40, 43 * time.Millisecond: 5, 500 * time.Millisecond: 1,
	} {
		for _, fastest := range []time.Duration{MinInterval, DefaultOptions().Interval.Fastest} {
			o := DefaultOptions()
			o.Interval.Fastest = fastest
			s := simulate(o, 1)
			s.work = work
			traffic := place(s.turns[0].endpoint)
			s.run(5*time.Second, traffic, (*pace).resetPace)
			scrapes := s.run(10*time.Second, traffic, (*pace).resetPace)
			assert.LessOrEqual(t, float64(scrapes-1)*work.Seconds()/10, maxWorkShare, "%s, every %s", work, fastest)
			if fastest > MinInterval {
				assert.InDelta(t, most, scrapes, 0.1*float64(most)+1, work)
			}
		}
	}
}

func TestSchedulesShareOneBudget(t *testing.T) {
	t.Parallel()
	budget := NewBudget(100)
	var pools []*simulation
	for range 8 {
		pool := simulate(DefaultOptions(), 32)
		pool.budget = budget
		pools = append(pools, pool)
	}
	scrapes, beats := map[*simulation]int{}, map[*simulation]time.Time{}
	for now := noon; now.Before(noon.Add(time.Minute)); now = now.Add(time.Millisecond) {
		for _, pool := range pools {
			if now.Before(beats[pool]) {
				continue
			}
			beats[pool], pool.now = now.Add(pool.WaitTime(pool.interval)), now
			scrapes[pool] += pool.run(time.Millisecond, place(pool.turns[0].endpoint), (*pace).resetPace)
		}
	}
	sum := 0
	for _, n := range scrapes {
		sum += n
		assert.InDelta(t, 750, n, 350, "beats come at random, so no pool starves")
	}
	assert.InDelta(t, 6000, sum, 60, "100 a second, whatever the number of pools")
}

func TestBusyWorkersAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 2)
	s.turns[0].busy.Store(true)
	s.run(3*time.Second, nothing, (*pace).noNews)
	assert.Zero(t, s.scrapes[s.turns[0].endpoint])
	assert.Positive(t, s.scrapes[s.turns[1].endpoint])
}

func TestBeats(t *testing.T) {
	t.Parallel()
	for fastest, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 5 * time.Millisecond, 50 * time.Millisecond: 25 * time.Millisecond,
		100 * time.Millisecond: 50 * time.Millisecond, time.Second: 50 * time.Millisecond,
	} {
		o := DefaultOptions()
		o.Interval.Fastest = fastest
		assert.Equal(t, want, beatPeriod(o.Interval))
	}
}

func TestBeatsVary(t *testing.T) {
	t.Parallel()
	interval := DefaultOptions().Interval
	seen := map[time.Duration]bool{}
	s := NewSchedule(NewBudget(1), rand.Float64)
	for range 100 {
		wait := s.WaitTime(interval)
		assert.InDelta(t, beatPeriod(interval), wait, jitter*float64(beatPeriod(interval)))
		seen[wait] = true
	}
	assert.Greater(t, len(seen), 50)
}

// Tests in virtual time can be repeated: the order of turns, their times and the waits follow from the random numbers alone.
func TestScheduleRepeatsItself(t *testing.T) {
	t.Parallel()
	play := func(seed uint64) (waits []time.Duration, scrapes []int) {
		s := simulate(DefaultOptions(), 20)
		s.random = rand.New(rand.NewPCG(seed, 1)).Float64
		for range 50 {
			s.run(time.Second, place(s.turns[3].endpoint), (*pace).noNews)
			waits = append(waits, s.WaitTime(s.interval))
		}
		for _, turn := range s.turns {
			scrapes = append(scrapes, s.scrapes[turn.endpoint])
		}
		return waits, scrapes
	}
	waits, scrapes := play(1)
	again, same := play(1)
	assert.Equal(t, waits, again)
	assert.Equal(t, scrapes, same)
	other, _ := play(2)
	assert.NotEqual(t, waits, other)
}

// An endpoint that stays in the list keeps its place, its interval and a scrape that is under way.
func TestEndpointsKeepTheirTurns(t *testing.T) {
	t.Parallel()
	s := NewSchedule(NewBudget(DefaultOptions().Budget), rand.Float64)
	a, b, c := anEndpoint(), anEndpoint(), anEndpoint()
	first := s.SetEndpoints([]*endpoint.Endpoint{a, b})
	require.Len(t, s.StartDue(noon, DefaultOptions().Interval), 2)
	second := s.SetEndpoints([]*endpoint.Endpoint{c, a})
	assert.Same(t, first[0], second[1])
	begun := s.StartDue(noon.Add(time.Second), DefaultOptions().Interval)
	require.Len(t, begun, 1, "the scrape of the first is under way")
	assert.Same(t, c, begun[0].Endpoint())
	second[1].EndTurn(0)
	assert.Len(t, s.StartDue(noon.Add(2*time.Second), DefaultOptions().Interval), 1)
}
