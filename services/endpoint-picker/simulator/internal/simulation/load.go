package simulation

import (
	"context"
	"errors"
	"math"
	"time"
)

// AtLoad returns a scenario at a fraction of the highest rate that the greedy policy sustains: the one at which its mean time to the first
// token is at most three times that of the same prompts on an idle server with an empty cache. at returns the scenario with a number of
// requests per second.
func AtLoad(ctx context.Context, load float64, seed uint64, at func(perSecond float64) Scenario) (Scenario, error) {
	const exact, most = 1.02, 40
	low, high, next := 0.0, math.Inf(1), 10.0
	for range most {
		sustained := sustainsLoad(ctx, at(next).Trace(seed))
		if ctx.Err() != nil {
			return Scenario{}, ctx.Err()
		}
		if sustained {
			low = next
		} else {
			high = next
		}
		switch {
		case high/low < exact:
			return at(load * low), nil
		case math.IsInf(high, 1):
			next *= 1.5
		case low == 0:
			next /= 1.5
		default:
			next = math.Sqrt(low * high)
		}
	}
	return Scenario{}, errors.New("every tried rate was sustained, or none")
}

// sustainsLoad reports whether the greedy policy bears the requests. It stops as soon as it does not.
func sustainsLoad(ctx context.Context, t *Trace) bool {
	const bearable = 3
	alone := &server{batch: batch{Engine: t.scenario.Servers[0]}, timeline: &timeline{},
		cache: newBlockCache(t.scenario.Servers[0].Blocks, t.contents)}
	budget := time.Duration(0)
	for _, a := range t.arrivals {
		if a.measured {
			budget += bearable * alone.forecast(a)
		}
	}
	waited := t.runWhile(Greedy(), func(r *Result) bool { return r.waited <= budget && ctx.Err() == nil }).waited
	return waited <= budget
}
