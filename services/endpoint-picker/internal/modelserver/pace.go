package modelserver

import (
	"math"
	"math/rand/v2"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	jitter     = 0.1         // of the interval, either way, so that replicas of the picker do not come in step
	recovery   = time.Second // within which an endpoint that answers again is seen to, about
	movedTimes = 2           // the fastest interval is how often figures are read that our own leases move

	// What a page may differ from what was foreseen without being news: requests are on their way to the server, or have
	// ended there and not here.
	newsRequests = 2
	newsShare    = 0.125
	newsKVUsage  = 0.05
)

// attention is how much anybody wants to know of an endpoint.
type attention uint8

const (
	unwatched attention = iota // nobody has asked for an endpoint for a while
	watched                    // somebody has
	moved                      // our own leases on it have begun or ended since the last scrape began
)

// pace is how often one endpoint is scraped. It begins at the fastest interval, goes back to it with every page that
// tells something new, and doubles it with every page that does not.
type pace struct {
	failing bool
	streak  int // scrapes that failed in a row; or else, pages in a row that told nothing new
}

func (p *pace) news() { *p = pace{} }

func (p *pace) noNews() {
	if p.failing {
		*p = pace{}
		return
	}
	p.streak++
}

func (p *pace) failed() {
	if !p.failing {
		*p = pace{failing: true}
		return
	}
	p.streak++
}

// interval returns the time from the start of the last scrape to that of the next.
//
//	failing                 the fastest, doubling up to a second
//	unwatched               the slowest: whatever a page says, nobody would act on it
//	news                    the fastest
//	no news                 doubling up to the slowest; where our leases move, twice the fastest at most, as the
//	                        split into waiting and running and the KV cache move with them
func (p *pace) interval(i Interval, a attention) time.Duration {
	if a == unwatched && !p.failing {
		return i.Slowest
	}
	limit := i.Slowest
	switch {
	case p.failing:
		limit = min(limit, max(recovery, i.Fastest))
	case a == moved:
		limit = min(limit, movedTimes*i.Fastest)
	}
	return min(i.Fastest<<min(p.streak, 10), limit)
}

// vary returns a factor by which an interval is varied.
func vary() float64 { return 1 - jitter + 2*jitter*rand.Float64() }

// foresight is what a page is compared with.
type foresight struct {
	requests float64
	last     endpoint.Gauges
}

// surprised reports whether a page tells what was not foreseen: others' requests, or how ours fare.
func (f *foresight) surprised(g *endpoint.Gauges) bool {
	return differ(f.requests, g.Waiting+g.Running) || differ(f.last.Waiting, g.Waiting) ||
		math.Abs(f.last.KVUsage-g.KVUsage) > newsKVUsage
}

func differ(foreseen, found float64) bool {
	return math.Abs(foreseen-found) > newsRequests+newsShare*foreseen
}
