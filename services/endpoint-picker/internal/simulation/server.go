package simulation

import (
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// server is one model server.
type server struct {
	batch

	timeline *timeline
	cache    *blockCache
	number   int
	dead     bool
	shown    endpoint.Gauges // on its page, with StaleGauges
	busy     time.Duration   // until when a page holds up tokens
}

// requests is how many it has.
func (s *server) requests() int { return len(s.waiting) + len(s.running) }

// address is where it listens.
func (s *server) address() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(s.number >> 8), byte(s.number)}), 8000)
}

// page is what its page says, and how long it takes to write.
func (s *server) page() (endpoint.Gauges, time.Duration) {
	now := s.timeline.now
	s.busy = max(s.busy, now) + s.PageTime
	if !s.StaleGauges {
		s.shown = s.gauges(len(s.waiting))
	}
	s.shown.Blocks = s.Blocks
	return s.shown, s.busy - now
}

// gauges are its state, with so many requests that wait.
func (s *server) gauges(waiting int) endpoint.Gauges {
	return endpoint.Gauges{
		Waiting: float64(waiting), Running: float64(len(s.running)),
		KVUsage: 1 - float64(s.cache.free)/float64(s.Blocks), Blocks: s.Blocks,
	}
}

// enqueue takes a request.
func (s *server) enqueue(j *job) {
	s.size(j)
	s.waiting = append(s.waiting, j)
	if !s.stepping {
		s.step()
	}
}

// size sets what a job would cost as things stand.
func (s *server) size(j *job) {
	hit := s.cache.match(j.promptChain())
	j.expect(hit)
	j.need = j.blocks() - hit
}

// step goes on computing, if there is anything to compute.
func (s *server) step() {
	if s.begin(s.timeline.now, s); s.stepping {
		s.timeline.at(s.end, s.finishStep)
	}
}

func (s *server) finishStep() {
	if s.dead {
		return
	}
	began, ended := s.finish(s)
	s.shown = s.gauges(min(s.left, len(s.waiting)))
	s.step()
	for _, j := range began {
		s.send(&j.first, func() {
			if j.first > 0 { // else it is lost
				j.watcher.began(j)
			}
		})
	}
	for _, j := range ended {
		s.send(&j.done, func() { j.watcher.ended(j) })
	}
}

// send does at once what tells of a token, or when the page is written that holds it up. It corrects the token's time.
func (s *server) send(at *time.Duration, tell func()) {
	late := s.busy - s.timeline.now
	if late <= 0 {
		tell()
		return
	}
	*at += late
	s.timeline.after(late, tell)
}

// admit takes room for a job that is to run, or reports that there is none. What is cached may be other than when it came.
func (s *server) admit(j *job) bool {
	held, hit, ok := s.cache.acquire(j.promptChain(), j.blocks())
	if ok {
		j.held = held
		j.expect(hit)
	}
	return ok
}

func (s *server) release(j *job) { s.cache.release(j.held, j.chain) }

// kill ends it, and all that is on it.
func (s *server) kill() {
	lost := append(slices.Clone(s.running), s.waiting...)
	s.dead, s.stepping, s.running, s.waiting = true, false, nil, nil
	for _, j := range lost {
		if j.first > s.timeline.now {
			j.first = 0 // the page held it up
		}
		j.watcher.lost(j)
	}
}

// forecast returns when a request would have its first token if it came now. It knows the true queue, the true cache and
// how long all answers will be, which nobody can.
func (s *server) forecast(a *arrival) time.Duration {
	j := &job{arrival: a}
	s.size(j)
	b := s.ahead(j)
	r := &room{batch: &b, free: s.cache.free}
	if !b.stepping {
		b.begin(s.timeline.now, r)
	}
	for j.first == 0 {
		b.finish(r)
		b.begin(b.end, r)
	}
	return j.first
}
