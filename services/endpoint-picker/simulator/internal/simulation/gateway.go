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

// tryServer asks the policy for a server and sends the request there.
func (g *gateway) tryServer(a *arrival) {
	p, ok := g.chooser.choosePlacement(a)
	if !ok {
		g.giveUpRequest()
		return
	}
	if wait := p.travelTime(); wait > 0 {
		g.timeline.scheduleAfter(wait, func() { g.sendRequest(a, p) })
		return
	}
	g.sendRequest(a, p) // before the next request of the same instant
}

// sendRequest hands the request to its server.
func (g *gateway) sendRequest(a *arrival, p placement) {
	v := &serverAttempt{gateway: g, placement: p}
	if p.targetServer().dead {
		g.result.Rejected++
		v.onRefusal(a)
		return
	}
	if failure := p.targetServer().nextFailure(); failure != nil {
		if failure.Stalls {
			g.timeline.scheduleAfter(hop, func() { v.placement.onFailureStart(failure) })
		}
		g.timeline.scheduleAfter(failure.After+hop, func() { v.onFailure(failure, a) })
		return
	}
	p.targetServer().enqueue(&job{arrival: a, watcher: v})
}

// giveUpRequest gives up a request.
func (g *gateway) giveUpRequest() {
	g.result.Failed++
	g.open--
}

// serverAttempt is one attempt of a request.
type serverAttempt struct {
	*gateway

	placement placement
	over      bool // the client has gone
}

// onFirstToken handles the first token. The gateway sends the beginning of the answer to the policy, unless the answer comes in one
// piece.
func (v *serverAttempt) onFirstToken(j *job) {
	if j.stream {
		v.timeline.scheduleAfter(hop, v.sendResponse)
	}
	if after := j.leaves; after > 0 {
		v.timeline.scheduleAfter(hop+after, func() { v.onClientGone(j) })
	}
}

func (v *serverAttempt) sendResponse() {
	if v.over {
		return
	}
	v.placement.onStatus(http.StatusOK)
	v.placement.onFirstPiece()
}

// onMoreTokens handles another token of a stream.
func (v *serverAttempt) onMoreTokens(*job) {
	if !v.over {
		v.placement.onMoreContent()
	}
}

// onClientGone handles a client that goes before the last token. The server goes on.
func (v *serverAttempt) onClientGone(j *job) {
	if v.over {
		return
	}
	v.over = true
	v.placement.onClientGone()
	v.countEnded(j)
}

// onEnd handles the last token.
func (v *serverAttempt) onEnd(j *job) {
	v.timeline.scheduleAfter(hop, func() {
		if v.over {
			return
		}
		if !j.stream {
			v.sendResponse()
		}
		v.over = true
		v.placement.onEnd(j)
		v.countEnded(j)
	})
}

// onServerLost handles the death of the server. If the client has received nothing, the request can be sent to another server.
func (v *serverAttempt) onServerLost(j *job) {
	v.over = true
	if j.first == 0 || !j.stream {
		v.onRefusal(j.arrival)
		return
	}
	v.timeline.scheduleAfter(hop, func() {
		v.placement.onServerLost()
		v.countEnded(j)
	})
}

// onRefusal converts the refusal to an error of the gateway, and retries.
func (v *serverAttempt) onRefusal(a *arrival) {
	v.timeline.scheduleAfter(hop, func() {
		v.placement.onStatus(http.StatusServiceUnavailable)
		v.placement.onFirstPiece()
		v.placement.onEnd(nil)
		if v.timeline.now-a.at > giveUp {
			v.giveUpRequest()
			return
		}
		v.timeline.scheduleAfter(retryAfter, func() { v.tryServer(a) })
	})
}

// onFailure handles an answer that is none, which the client gets.
func (v *serverAttempt) onFailure(f *Failure, a *arrival) {
	v.placement.onFailure(f)
	v.result.failures = append(v.result.failures, a.at)
	v.giveUpRequest()
}

// countEnded counts a request with a complete or partial answer.
func (v *serverAttempt) countEnded(j *job) {
	v.open--
	v.result.addJob(j)
	if j.measured {
		v.result.addServer(v.placement.targetServer().number)
	}
}
