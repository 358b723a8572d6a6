package simulation

import (
	"slices"
	"time"
)

// A Result contains the measurements of one run, for requests after the warm-up.
type Result struct {
	ttft, total []time.Duration // to the first token, and to the last
	arrived     []time.Duration // arrivals of the requests of ttft
	waited      time.Duration   // sum of ttft
	prompt, hit int             // tokens
	served      []int           // answers that began, by number of the server
	good        int             // requests that were fast enough
	failures    []time.Duration // when requests came that met a Failure

	Rejected int // attempts at a dead server
	Lost     int // answers that broke off
	Failed   int // requests without an answer
}

// addJob counts a finished request.
func (r *Result) addJob(j *job) {
	if j.done == 0 {
		r.Lost++
	}
	if !j.measured {
		return
	}
	r.ttft, r.arrived = append(r.ttft, j.first-j.at), append(r.arrived, j.at)
	r.waited += j.first - j.at
	r.prompt, r.hit = r.prompt+j.prompt, r.hit+j.hit
	if j.done > 0 {
		r.total = append(r.total, j.done-j.at)
		if j.isGood() {
			r.good++
		}
	}
}

// addServer counts a measured request on its server.
func (r *Result) addServer(number int) {
	for len(r.served) <= number {
		r.served = append(r.served, 0)
	}
	r.served[number]++
}

// PerServer returns the smallest and the largest number of measured requests of a server.
func (r *Result) PerServer() (least, most int) {
	if len(r.served) == 0 {
		return 0, 0
	}
	return slices.Min(r.served), slices.Max(r.served)
}

// isGood reports whether the first token took no longer than 2 s and a millisecond for each uncached token of the prompt, and each further
// token no longer than 50 ms on average.
func (j *job) isGood() bool { return IsGood(j.first-j.at, j.done-j.first, j.prompt-j.hit, j.out) }

// IsGood is the same for any request: by the times to its first token and from there to its last one, its uncached tokens and those of
// its answer.
func IsGood(first, rest time.Duration, uncached, out int) bool {
	const longest, perToken, between = 2 * time.Second, time.Millisecond, 50 * time.Millisecond
	return first <= longest+time.Duration(uncached)*perToken && rest <= time.Duration(out-1)*between
}

// Goodput returns the share of requests that were fast enough.
func (r *Result) Goodput() float64 { return float64(r.good) / float64(max(len(r.ttft), 1)) }

// Requests returns the number of measured requests.
func (r *Result) Requests() int { return len(r.ttft) }

// FirstTokenTimes returns the times to the first token.
func (r *Result) FirstTokenTimes() Times { return NewTimes(r.ttft) }

// AnswerTimes returns the times to the last token.
func (r *Result) AnswerTimes() Times { return NewTimes(r.total) }

// HitRate returns the share of prompt tokens that were in a cache.
func (r *Result) HitRate() float64 { return float64(r.hit) / float64(max(r.prompt, 1)) }

// Times summarizes durations.
type Times struct {
	Mean, P50, P90, P99 time.Duration
}

// NewTimes returns the summary of durations.
func NewTimes(all []time.Duration) Times {
	if len(all) == 0 {
		return Times{}
	}
	sorted, sum := slices.Sorted(slices.Values(all)), time.Duration(0)
	for _, d := range sorted {
		sum += d
	}
	at := func(q float64) time.Duration { return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))] }
	return Times{Mean: sum / time.Duration(len(sorted)), P50: at(0.50), P90: at(0.90), P99: at(0.99)}
}
