package simulation

import (
	"math/rand/v2"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pool"
)

// scraping reads the pages of a replica's servers in virtual time, when the scraper's schedule says so.
type scraping struct {
	timeline *timeline
	schedule *modelserver.Schedule
	interval modelserver.Interval
	timeout  time.Duration
	detector *pool.Detector

	members map[*endpoint.Endpoint]*member
	beats   int // number of the pending beat: a change of the members replaces it
}

// newScraping returns the scraping of a replica with the settings of its configuration; nil if they turn it off.
func newScraping(line *timeline, settings *modelserver.Settings, detector *pool.Detector, random *rand.Rand) *scraping {
	if settings.Off {
		return nil
	}
	o := modelserver.DefaultOptions()
	return &scraping{
		timeline: line, schedule: modelserver.NewSchedule(modelserver.NewBudget(o.Budget), random.Float64),
		interval: settings.ScrapeInterval(o.Interval),
		timeout:  o.Timeout, detector: detector,
	}
}

// setMembers sets the servers whose pages are read.
func (s *scraping) setMembers(members []*member) {
	if s == nil {
		return
	}
	endpoints := make([]*endpoint.Endpoint, len(members))
	s.members = make(map[*endpoint.Endpoint]*member, len(members))
	for i, m := range members {
		endpoints[i] = m.endpoint
		s.members[m.endpoint] = m
	}
	s.schedule.SetEndpoints(endpoints)
	s.readDue()
}

// readDue reads the pages that are due, and schedules the next beat.
func (s *scraping) readDue() {
	s.beats++
	if len(s.members) == 0 {
		return
	}
	for _, t := range s.schedule.StartDue(s.timeline.Now(), s.interval) {
		s.readPage(t, s.members[t.Endpoint()])
	}
	pending := s.beats
	s.timeline.scheduleAfter(s.schedule.WaitTime(s.interval), func() {
		if pending == s.beats {
			s.readDue()
		}
	})
}

// readPage reads one page, until the scraper's time limit.
func (s *scraping) readPage(t *modelserver.Turn, m *member) {
	mark := m.endpoint.StartScrape(s.timeline.Now())
	limit := s.timeline.now + s.timeout
	s.timeline.scheduleAfter(hop, func() {
		page, took, answers := endpoint.Gauges{}, time.Duration(0), false
		if !m.server.dead {
			page, took, answers = m.server.metricsPage()
		}
		ends := s.timeline.now + took + hop
		if answers = answers && ends <= limit; ends > limit {
			ends = limit
		}
		s.timeline.scheduleAt(ends, func() {
			defer t.EndTurn(0)
			switch {
			case m.isRemoved:
			case answers && !m.server.dead:
				t.RecordPage(mark, &page)
				s.detector.OnScrape(m.endpoint)
			default:
				t.RecordFailure(mark)
				if m.server.dead {
					s.detector.OnScrapeRefused(m.endpoint)
				}
			}
		})
	})
}
