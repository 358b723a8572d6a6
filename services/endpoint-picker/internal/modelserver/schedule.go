package modelserver

import (
	"slices"
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	beatsInInterval = 2 // of the fastest interval
	shortestBeat    = 5 * time.Millisecond
	longestBeat     = 50 * time.Millisecond
	burstBeats      = 2 // beats whose budget can accumulate
)

// A Schedule decides which pages are read, and when. It has no clock, no goroutine and no connection: time, randomness and the results of
// scrapes come from its caller, which is a Scraper, or a simulation in virtual time.
//
//	StartDue ---> turns, which have begun ---> RecordPage or RecordFailure ---> EndTurn ---> due again
//
// Only one goroutine may use a Schedule. A turn belongs to its scrape until EndTurn.
type Schedule struct {
	budget *Budget
	random func() float64 // from 0 to 1

	turns     []*Turn
	movements int64     // of all leases, at the last beat
	busyAt    time.Time // when they last moved
	due       []*Turn
}

// A Turn is one endpoint in a Schedule.
type Turn struct {
	endpoint *endpoint.Endpoint
	busy     atomic.Bool // a scrape is under way

	pace        pace
	onlyWaiting bool // its pages do not report running requests

	startTime time.Time     // start of the last scrape
	varied    float64       // factor of the interval until the next
	movements int64         // of leases, at the start of the last one
	due       time.Time     // as of the last beat
	work      time.Duration // processor time of the last one
}

// NewSchedule returns a schedule without endpoints. random returns numbers from 0 to 1.
func NewSchedule(budget *Budget, random func() float64) *Schedule {
	return &Schedule{budget: budget, random: random}
}

// SetEndpoints sets the list of endpoints, and returns their turns. An endpoint that was there before keeps its turn.
func (s *Schedule) SetEndpoints(endpoints []*endpoint.Endpoint) []*Turn {
	before := make(map[*endpoint.Endpoint]*Turn, len(s.turns))
	for _, t := range s.turns {
		before[t.endpoint] = t
	}
	s.turns = make([]*Turn, 0, len(endpoints))
	for _, e := range endpoints {
		t := before[e]
		delete(before, e)
		if t == nil {
			t = &Turn{endpoint: e}
		}
		s.turns = append(s.turns, t)
	}
	return s.turns
}

// StartDue begins the due turns and returns them, the longest overdue first, within the budget. A wake-up costs more than a scrape, so it
// includes those that are due before the next beat. The result is valid until the next call.
func (s *Schedule) StartDue(now time.Time, i Interval) []*Turn {
	period := beatPeriod(i)
	a, soon := s.attentionAt(now, i), now.Add(period/2)
	s.due = s.due[:0]
	for _, t := range s.turns {
		if t.busy.Load() {
			continue
		}
		if t.due = t.dueAt(i, a, period); !t.due.After(soon) {
			s.due = append(s.due, t)
		}
	}
	slices.SortStableFunc(s.due, func(a, b *Turn) int { return a.due.Compare(b.due) })
	chosen := s.due[:s.budget.takeScrapes(len(s.due), now, burstBeats*period)]
	for _, t := range chosen {
		t.busy.Store(true)
		t.startTime, t.varied, t.movements = now, s.randomFactor(), t.endpoint.Movements()
	}
	return chosen
}

// WaitTime returns the time until the next beat.
func (s *Schedule) WaitTime(i Interval) time.Duration {
	return time.Duration(s.randomFactor() * float64(beatPeriod(i)))
}

// beatPeriod is the mean time between two beats.
func beatPeriod(i Interval) time.Duration {
	return min(max(i.Fastest/beatsInInterval, shortestBeat), longestBeat)
}

// attentionAt returns whether requests were placed recently.
func (s *Schedule) attentionAt(now time.Time, i Interval) attention {
	var movements int64
	for _, t := range s.turns {
		movements += t.endpoint.Movements()
	}
	if movements != s.movements {
		s.movements, s.busyAt = movements, now
	}
	if s.busyAt.Before(now.Add(-i.Slowest)) {
		return unwatched
	}
	return watched
}

// randomFactor returns a random factor for an interval.
func (s *Schedule) randomFactor() float64 { return 1 - jitter + 2*jitter*s.random() }

// Endpoint returns the endpoint.
func (t *Turn) Endpoint() *endpoint.Endpoint { return t.endpoint }

// dueAt returns the time of the next scrape, which may start half a period earlier. A costly page delays it.
func (t *Turn) dueAt(i Interval, a attention, period time.Duration) time.Time {
	if t.startTime.IsZero() {
		return t.startTime // first scrape: now
	}
	if a == watched && t.endpoint.Movements() != t.movements {
		a = moved
	}
	interval := time.Duration(t.varied * float64(t.pace.scrapeInterval(i, a)))
	return t.startTime.Add(max(interval, time.Duration(float64(t.work)/maxWorkShare)+period/2))
}

// RecordPage records the page of a scrape.
func (t *Turn) RecordPage(mark endpoint.ScrapeStart, g *endpoint.Gauges) {
	requests, last, sampled := t.endpoint.PredictPage(mark)
	if t.onlyWaiting {
		requests = g.Waiting
	}
	if !sampled || isSurprising(requests, &last, g) {
		t.pace.resetPace()
	} else {
		t.pace.noNews()
	}
	t.endpoint.RecordSample(mark, *g)
}

// RecordFailure records that a scrape failed.
func (t *Turn) RecordFailure(mark endpoint.ScrapeStart) {
	t.pace.recordFailure()
	t.endpoint.RecordFailure(mark)
}

// EndTurn ends the turn, whose scrape took some processor time.
func (t *Turn) EndTurn(work time.Duration) {
	t.work = work
	t.busy.Store(false)
}
