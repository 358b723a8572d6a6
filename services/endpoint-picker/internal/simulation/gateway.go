package simulation

import (
	"net/http"
	"time"
)

const (
	hop        = 250 * time.Microsecond // between two processes
	retryAfter = 50 * time.Millisecond  // for requests that no server accepted
	giveUp     = 30 * time.Second       // time limit of a request
)

// gateway sends requests to the servers that a policy chooses, and retries those that a dead server refused. A request keeps
// the time of its arrival, so the results include all requests.
type gateway struct {
	timeline *timeline
	chooser  chooser
	open     int // unfinished requests
	result   *Result
}

// try asks the policy for a server and sends the request there.
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
		if failure := p.server().failure(); failure != nil {
			if failure.Stalls {
				g.timeline.after(hop, func() { v.placement.failing(failure) })
			}
			g.timeline.after(failure.After+hop, func() { v.failed(failure, a) })
			return
		}
		p.server().enqueue(&job{arrival: a, watcher: v})
	})
}

// fail gives up a request.
func (g *gateway) fail() {
	g.result.Failed++
	g.open--
}

// visit is one attempt of a request.
type visit struct {
	*gateway

	placement placement
	over      bool // the client has gone
}

// began handles the first token. The gateway sends the beginning of the answer to the policy, unless the answer comes in one
// piece.
func (v *visit) began(j *job) {
	if j.stream {
		v.timeline.after(hop, v.show)
	}
	if after := j.leaves; after > 0 {
		v.timeline.after(hop+after, func() { v.left(j) })
	}
}

func (v *visit) show() {
	if v.over {
		return
	}
	v.placement.responded(http.StatusOK)
	v.placement.piece()
}

// continued handles another token of a stream.
func (v *visit) continued(*job) {
	if !v.over {
		v.placement.continued()
	}
}

// left handles a client that goes before the last token. The server goes on.
func (v *visit) left(j *job) {
	if v.over {
		return
	}
	v.over = true
	v.placement.left()
	v.settle(j)
}

// ended handles the last token.
func (v *visit) ended(j *job) {
	v.timeline.after(hop, func() {
		if v.over {
			return
		}
		if !j.stream {
			v.show()
		}
		v.over = true
		v.placement.ended(j)
		v.settle(j)
	})
}

// lost handles the death of the server. If the client has received nothing, the request can be sent to another server.
func (v *visit) lost(j *job) {
	v.over = true
	if j.first == 0 || !j.stream {
		v.refused(j.arrival)
		return
	}
	v.timeline.after(hop, func() {
		v.placement.lost()
		v.settle(j)
	})
}

// refused converts the refusal to an error of the gateway, and retries.
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

// failed handles an answer that is none, which the client gets.
func (v *visit) failed(f *Failure, a *arrival) {
	v.placement.failed(f)
	v.result.failures = append(v.result.failures, a.at)
	v.fail()
}

// settle counts a request with a complete or partial answer.
func (v *visit) settle(j *job) {
	v.open--
	v.result.add(j)
	if j.measured {
		v.result.addServer(v.placement.server().number)
	}
}
