package estimate

import (
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events. Their numbers are part of the protocol between replicas.
const (
	EventBegun EventKind = 1 + iota // a request was placed on Endpoint, with Tokens to compute after a Context, and an Answer
	EventFirst                      // its answer has begun
	EventMoved                      // Endpoint serves it in place of another one
	EventEnded                      // it has ended
	EventLost                       // it may continue, but nobody will see its end
	// Endpoint has the prompt with the Chain in its cache; Tokens were just sent there, 0 of an earlier one
	EventCached
	EventAnswered // Endpoint has sent an answer of Tokens
	EventOccupied // Endpoint has Tokens of unknown prompts in its cache
)

// An Event is what one replica of the picker tells the others about a request that it has placed.
type Event struct {
	Kind     EventKind
	Request  uint64 // number of the request, unique in the replica that placed it; of the first five kinds
	Endpoint *endpoint.Endpoint
	Tokens   int64
	Context  int64 // tokens of a prompt before those to compute
	Answer   AnswerMode
	Chain    []uint64 // valid during the call only
}

// A Publisher tells the other replicas. It is called in picks and must not wait.
type Publisher interface {
	PublishEvent(e Event)
}

// SetPublisher makes other replicas hear of the requests that are placed from now on. Call it before the first one.
func (x *Estimator) SetPublisher(p Publisher) { x.publisher = p }

// publishPlacement publishes a request that is about to be placed, and returns its number.
func (x *Estimator) publishPlacement(e *endpoint.Endpoint, q *sequence, answer AnswerMode) uint64 {
	if x.publisher == nil {
		return 0
	}
	if answer == Late {
		answer = Whole // an event that is reported later says nothing to others
	}
	request := x.requests.Add(1)
	context := q.prefill.Context + q.prefill.Tokens - int(q.backlog)
	x.publisher.PublishEvent(Event{Kind: EventBegun, Request: request, Endpoint: e, Tokens: q.backlog, Context: int64(context),
		Answer: answer})
	return request
}

// publishEvent publishes an event of a request, unless other replicas do not know it.
func (x *Estimator) publishEvent(request uint64, e Event) {
	if request == 0 {
		return
	}
	e.Request = request
	x.publisher.PublishEvent(e)
}

// publishFact publishes an event that belongs to no request.
func (x *Estimator) publishFact(e Event) {
	if x.publisher != nil {
		x.publisher.PublishEvent(e)
	}
}

// maxRemoteRequests limits the requests of one other replica that count here (guarded): twice what a replica accepts by default.
const maxRemoteRequests = 64 << 10

// maxRemoteTokens limits the tokens of one event (guarded): ten times the longest context of today's models. An event beyond it
// is an error of its sender.
const maxRemoteTokens = 10 << 20

// A Replica is another replica of the picker in the view of this one: its requests count as load of their endpoints, its prompts
// are in the caches where it placed them, and its first tokens teach the costs. It is not safe for concurrent use.
type Replica struct {
	estimator *Estimator
	requests  map[uint64]*endpoint.Lease
}

// NewReplica returns a Replica without requests.
func (x *Estimator) NewReplica() *Replica {
	return &Replica{estimator: x, requests: map[uint64]*endpoint.Lease{}}
}

// ApplyEvent applies an event that happened at the given time. It ignores events of requests that it does not know.
func (r *Replica) ApplyEvent(e Event, at time.Time) {
	x, tokens := r.estimator, min(max(e.Tokens, 0), maxRemoteTokens)
	switch e.Kind {
	case EventBegun:
		if len(r.requests) < maxRemoteRequests && r.requests[e.Request] == nil {
			r.requests[e.Request] = ServerOf(e.Endpoint).placeRemote(e.Endpoint, at,
				Prefill{Tokens: int(max(tokens, 1)), Context: int(min(max(e.Context, 0), maxRemoteTokens))}, e.Answer)
		}
	case EventFirst, EventMoved, EventEnded, EventLost:
		if l := r.requests[e.Request]; l != nil {
			r.applyToLease(l, e, at)
		}
	case EventCached:
		s := ServerOf(e.Endpoint)
		s.fit.addRemoteTokens(float64(tokens))
		x.index.UseChain(s.cache, e.Chain)
		x.recent.addPrompt(e.Chain)
	case EventAnswered:
		x.learnAnswer(e.Endpoint, int(tokens))
	case EventOccupied:
		x.index.OccupyBlocks(ServerOf(e.Endpoint).cache, int(tokens)/prefixindex.BlockTokens)
	}
}

// applyToLease applies an event of an open request.
func (r *Replica) applyToLease(l *endpoint.Lease, e Event, at time.Time) {
	switch e.Kind {
	case EventFirst:
		l.MarkFirstContent(at)
		return
	case EventMoved:
		l.MoveTo(e.Endpoint, at)
		return
	case EventEnded:
		l.Release()
	default:
		l.Abandon(at)
	}
	delete(r.requests, e.Request)
}

// Close ends the observation of all requests: from now on the pages of their endpoints show them.
func (r *Replica) Close(now time.Time) {
	for _, l := range r.requests {
		l.Abandon(now)
	}
	clear(r.requests)
}

// Contents returns events with all that is known of the caches of these endpoints. A replica without requests that applies them
// in their order knows the same.
func (x *Estimator) Contents(endpoints []*endpoint.Endpoint) []Event {
	bySlot := map[int]*endpoint.Endpoint{}
	for _, e := range endpoints {
		bySlot[ServerOf(e).cache.Slot()] = e
	}
	entries := x.index.Entries()
	events := make([]Event, 0, len(entries))
	for _, entry := range entries {
		e := bySlot[entry.Slot]
		switch {
		case e == nil:
		case entry.Hashes == nil:
			events = append(events, Event{Kind: EventOccupied, Endpoint: e, Tokens: int64(entry.Blocks) * prefixindex.BlockTokens})
		default:
			events = append(events, Event{Kind: EventCached, Endpoint: e, Chain: entry.Hashes})
		}
	}
	return events
}
