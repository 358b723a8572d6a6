package pool

import (
	"math"
	"math/bits"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

const (
	// decayTime is the time after which a response counts for a third.
	decayTime = 30 * time.Second
	// tolerance is how many times as often as the others an endpoint may fail.
	tolerance = 4
	// leastPart is the part of the requests of an endpoint that may fail even if the others never do.
	leastPart = 0.05
	// minFaulty and minDoubtful are failures beyond what the others have in proportion.
	minFaulty, minDoubtful = 3, 5
	// minOthers is the number of responses of other endpoints to compare with.
	minOthers = 10
	// minBegun is the answers of each of the other endpoints during which one that refuses requests has none: an endpoint that works has
	// none by chance once in 150 times.
	minBegun = 5
	// minWhole is the same for whole answers, while all answers of one server end early and nobody knows whose fault it is (simulated).
	minWhole = 4 * minBegun
	// beyondUsual is how many times as long as usual a streak must be, beside its least length: one of an endpoint that works is so long by
	// chance once in ten thousand times.
	beyondUsual = 10
	// streakWeight is the weight of the newest streak in the usual length.
	streakWeight = 1.0 / 32
	// trialAnswers is how many more probes an endpoint must answer for each time that it has returned and failed again, at most maxTrials
	// times (simulated).
	trialAnswers, maxTrials = 4, 2
	// firstAnswers is the number of answers without failures that count at the beginning.
	firstAnswers = 8
)

// signalCounts are the numbers of responses by their health signal, of which older ones count less. A response that fails in the middle
// counts twice. Refusals in a row count once, and only when the endpoint answers a request of the same subject after them.
type signalCounts struct {
	bySignal [request.HealthSignalCount]float64
	at       time.Time
}

// addSignal counts a health signal.
func (c *signalCounts) addSignal(v request.HealthSignal, now time.Time) {
	if past := now.Sub(c.at); past > 0 {
		fade := math.Exp(-past.Seconds() / decayTime.Seconds())
		for i := range c.bySignal {
			c.bySignal[i] *= fade
		}
		c.at = now
	}
	c.bySignal[v]++
}

func (c *signalCounts) totalCount() (sum float64) {
	for _, n := range c.bySignal {
		sum += n
	}
	return sum
}

// A streak is the failures of an endpoint since its last answer, or its last ejection.
type streak struct {
	failures int
	answers  int // of all endpoints until that answer
}

// A tally is what all endpoints do: the answers, and how many failures an endpoint that works has before one.
type tally struct {
	answers int
	usual   float64
}

// endStreak records an answer of the endpoint.
func (s *streak) endStreak(all *tally) {
	all.answers++
	all.usual += max(streakWeight, 1/float64(all.answers+firstAnswers)) * (float64(s.failures) - all.usual)
	*s = streak{answers: all.answers}
}

// othersAnswers returns the answers of the other endpoints meanwhile.
func (s *streak) othersAnswers(all *tally) int { return all.answers - s.answers }

// isLong reports whether the streak has a least length, and is far longer than usual.
func (s *streak) isLong(least int, all *tally) bool {
	if all.failsOften() {
		least += int(beyondUsual * all.usual)
	}
	return s.failures >= least
}

// failsOften reports whether endpoints that work fail once for two answers, so that one failure says nothing.
func (t *tally) failsOften() bool { return t.usual > 0.5 }

// A history is what an endpoint did, and its last ejections.
type history struct {
	signalCounts

	refusals streak // doubtful responses without content, until an answer begins
	lacks    uint64 // the subject of the first of them
	lacksOne bool   // all of them say that the endpoint does not have this subject
	failures streak // of whole answers
	early    earlyEnds
	recent   recentFailures

	ejections int       // one soon after the other
	returns   int       // those of them that followed a return, because the endpoint fails sometimes
	trial     int       // answers of probes, beside the last one, until it returns
	ejected   time.Time // when the last one began
	until     time.Time // when it ends
}

// addRefusal counts a doubtful response without content.
func (h *history) addRefusal(r *Response) {
	if h.refusals.failures == 0 {
		h.lacks, h.lacksOne = r.Subject, true
	}
	h.lacksOne = h.lacksOne && r.ModelMissing && r.Subject == h.lacks
	h.refusals.failures++
}

// earlyEnds are the answers of an endpoint that ended early, and nobody knows whose fault it was, since the last request that came after
// the first of them and got a whole answer.
type earlyEnds struct {
	prompts     uint64    // a bit for each first half of a prompt: one client, whose requests are alike, is not the endpoint
	since       time.Time // the first of these requests was placed
	others      bool      // a later request got a whole answer elsewhere, so that this endpoint has had the time for one, too
	wholeBefore int       // whole answers of all endpoints until then
}

// wholeAnswers are the whole answers of all endpoints.
type wholeAnswers struct {
	n      int
	newest time.Time // when the last of their requests was placed
}

func (w *wholeAnswers) addAnswer(r *Response) {
	w.n++
	if r.Placed.After(w.newest) {
		w.newest = r.Placed
	}
}

// addEarlyEnd counts an answer that ended early.
func (e *earlyEnds) addEarlyEnd(r *Response, w *wholeAnswers) {
	if e.prompts == 0 {
		e.since, e.others = r.Placed, false
	}
	if !e.others && w.newest.After(e.since) {
		e.others, e.wholeBefore = true, w.n
	}
	e.prompts |= 1 << (r.Prompt % 64)
}

// addWhole records a whole answer of the endpoint.
func (e *earlyEnds) addWhole(r *Response) {
	if r.Placed.After(e.since) {
		e.prompts = 0
	}
}

// isAll reports whether the endpoint ends all answers early, while others do not.
func (e *earlyEnds) isAll(w *wholeAnswers, others int) bool {
	return e.others && bits.OnesCount64(e.prompts) >= minDoubtful && w.n-e.wholeBefore >= minWhole*max(others, 1)
}

// outOfProportion reports whether the endpoint has far more responses with a signal, Faulty or Doubtful, than the others have. all counts
// the responses of both.
func (h *history) outOfProportion(v request.HealthSignal, all *signalCounts) bool {
	own, total := h.bySignal[v], h.totalCount()
	others := all.totalCount() - total
	if others < minOthers || own < leastPart*total {
		return false
	}
	least := float64(minFaulty)
	if v == request.Doubtful {
		least = minDoubtful
	}
	if h.at.Sub(h.until) < decayTime { // it has returned a moment ago
		least /= 2
	}
	expected := tolerance * total * max(all.bySignal[v]-own, 0) / others
	return own-expected > least-0.5 // older ones have faded
}
