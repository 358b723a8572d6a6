package simulation

import (
	"net/http"
	"time"
)

const (
	hop        = 250 * time.Microsecond // from one process to another
	retryAfter = 50 * time.Millisecond  // what no server took
	giveUp     = 30 * time.Second       // on a request
)

// gateway takes requests to the servers that a policy chooses, and tries again what a dead one refused. A request keeps
// the time at which it first came, so that none drops out of the figures.
type gateway struct {
	timeline *timeline
	chooser  chooser
	open     int // requests that have not come to their end
	result   *Result
}

// try asks for a server and sends the request there.
func (g *gateway) try(a *arrival) {
	p, ok := g.chooser.choose(a)
	if !ok {
		g.fail()
		return
	}
	g.timeline.after(hop, func() {
		v := &visit{gateway: g, placement: p}
		if p.server().dead {
			g.result.Rejected++
			v.refused(a)
			return
		}
		p.server().enqueue(&job{arrival: a, watcher: v})
	})
}

// fail gives a request up.
func (g *gateway) fail() {
	g.result.Failed++
	g.open--
}

// visit is one try of one request.
type visit struct {
	*gateway

	placement placement
}

// began hears of the first token. A gateway shows the answer's beginning, unless it comes in one piece.
func (v *visit) began(j *job) {
	if j.stream {
		v.timeline.after(hop, v.show)
	}
}

func (v *visit) show() {
	v.placement.responded(http.StatusOK)
	v.placement.piece()
}

// ended hears of the last token.
func (v *visit) ended(j *job) {
	v.timeline.after(hop, func() {
		if !j.stream {
			v.show()
		}
		v.placement.ended(j.arrival)
		v.settle(j)
	})
}

// lost hears that the server has died. If the client has seen nothing yet the request can be sent to another.
func (v *visit) lost(j *job) {
	if j.first == 0 || !j.stream {
		v.refused(j.arrival)
		return
	}
	v.timeline.after(hop, func() {
		v.placement.lost()
		v.settle(j)
	})
}

// refused makes an error of the gateway of it, and tries again.
func (v *visit) refused(a *arrival) {
	v.timeline.after(hop, func() {
		v.placement.responded(http.StatusServiceUnavailable)
		v.placement.piece()
		v.placement.ended(nil)
		if v.timeline.now-a.at > giveUp {
			v.fail()
			return
		}
		v.timeline.after(retryAfter, func() { v.try(a) })
	})
}

// settle counts a request that has had an answer, or a part of one.
func (v *visit) settle(j *job) {
	v.open--
	v.result.add(j)
}
