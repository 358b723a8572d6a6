package simulation

import (
	"slices"
	"time"
)

// A Result contains the measurements of one run, for requests after the warm-up.
type Result struct {
	ttft, total []time.Duration // to the first token, and to the last
	waited      time.Duration   // sum of ttft
	prompt, hit int             // tokens
	good        int             // requests that were fast enough

	Rejected int // attempts at a dead server
	Lost     int // answers that broke off
	Failed   int // requests without an answer
}

// add counts a finished request.
func (r *Result) add(j *job) {
	if j.done == 0 {
		r.Lost++
	}
	if !j.measured {
		return
	}
	r.ttft = append(r.ttft, j.first-j.at)
	r.waited += j.first - j.at
	r.prompt, r.hit = r.prompt+j.prompt, r.hit+j.hit
	if j.done > 0 {
		r.total = append(r.total, j.done-j.at)
		if j.isGood() {
			r.good++
		}
	}
}

// isGood reports whether the first token took no longer than 2 s and a millisecond for each uncached token of the prompt, and each further
// token no longer than 50 ms on average.
func (j *job) isGood() bool {
	const first, perToken, between = 2 * time.Second, time.Millisecond, 50 * time.Millisecond
	return j.first-j.at <= first+time.Duration(j.prompt-j.hit)*perToken && j.done-j.first <= time.Duration(j.out-1)*between
}

// Goodput returns the share of requests that were fast enough.
func (r *Result) Goodput() float64 { return float64(r.good) / float64(max(len(r.ttft), 1)) }

// Requests returns the number of measured requests.
func (r *Result) Requests() int { return len(r.ttft) }

// TTFT returns the times to the first token.
func (r *Result) TTFT() Times { return newTimes(r.ttft) }

// Total returns the times to the last token.
func (r *Result) Total() Times { return newTimes(r.total) }

// HitRate returns the share of prompt tokens that were in a cache.
func (r *Result) HitRate() float64 { return float64(r.hit) / float64(max(r.prompt, 1)) }

// Times summarizes durations.
type Times struct {
	Mean, P50, P90, P99 time.Duration
}

func newTimes(all []time.Duration) Times {
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
