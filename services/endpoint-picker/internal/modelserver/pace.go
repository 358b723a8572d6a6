package modelserver

import (
	"math"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	jitter     = 0.1         // share of the interval, in both directions, so that replicas of the picker do not scrape in step
	recovery   = time.Second // approximate time until a recovered endpoint is noticed
	movedTimes = 2           // values that our own leases change are read at this multiple of the fastest interval

	// Allowed difference between a page and its prediction: requests are on their way to the server, or have ended there and
	// not here.
	newsRequests = 2
	newsShare    = 0.125
	newsKVUsage  = 0.05
)

// attention is the current need for an endpoint's values.
type attention uint8

const (
	unwatched attention = iota // no request asked for an endpoint for a while
	watched                    // requests ask for endpoints
	moved                      // our own leases on it began or ended since the start of the last scrape
)

// pace determines the scrape interval of one endpoint. It starts at the fastest interval, returns to it after a page with
// news, and doubles after each page without.
type pace struct {
	failing bool
	streak  int // consecutive failed scrapes, or else consecutive pages without news
}

func (p *pace) resetPace() { *p = pace{} }

func (p *pace) noNews() {
	if p.failing {
		*p = pace{}
		return
	}
	p.streak++
}

func (p *pace) recordFailure() {
	if !p.failing {
		*p = pace{failing: true}
		return
	}
	p.streak++
}

// scrapeInterval returns the time between the starts of the last and the next scrape.
//
//	failing                 the fastest, doubling up to a second
//	unwatched               the slowest: no request would use the values
//	news                    the fastest
//	no news                 doubling up to the slowest; while our leases change, at most twice the fastest, because
//	                        the split into waiting and running and the KV cache change with them
func (p *pace) scrapeInterval(i Interval, a attention) time.Duration {
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

// isSurprising reports whether a page differs from its prediction, by others' requests or the progress of ours: from a number of requests,
// and from the last page.
func isSurprising(requests float64, last, g *endpoint.Gauges) bool {
	return isDifferent(requests, g.Waiting+g.Running) || isDifferent(last.Waiting, g.Waiting) ||
		math.Abs(last.KVUsage-g.KVUsage) > newsKVUsage
}

func isDifferent(foreseen, found float64) bool {
	return math.Abs(foreseen-found) > newsRequests+newsShare*foreseen
}
