package decisionapi

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/limits"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

const (
	// usualEndpoints is the number of endpoints in an answer: one, and two to retry with. At 1 a client could not retry; at 6
	// answers are longer for endpoints that are rarely used.
	usualEndpoints = 3
	// maxEndpoints is the maximum number of endpoints in an answer. Each takes 16 bytes while the pick is open. More attempts
	// than half as many are rarely of use.
	maxEndpoints = 16
)

// Paths of the calls.
const (
	PathPick    = "/v1/pick"
	PathOutcome = "/v1/outcome"
)

// Options configures the decision API.
type Options struct {
	MaxBody     int           // of a request, in bytes
	Timeout     time.Duration // of a pick without an outcome
	BodyTimeout time.Duration // maximum time to receive a call
}

// pools finds the pool of a request.
type pools interface {
	// FindTitle returns the pool with a title, or nil.
	FindTitle(title string) request.Pool
	// FindHost returns the pool of an HTTP request, by its host. It returns a pool that refuses all requests if there is none.
	FindHost(host string) request.Pool
}

// observer counts what becomes of picks.
type observer interface {
	// ObserveDecision counts one of Results.
	ObserveDecision(result string)
}

// Server is the decision API, without its port. It is an http.Handler.
type Server struct {
	options        Options
	log            *zap.Logger
	pools          pools
	ledger         *limits.Ledger
	observer       observer
	requestOptions request.Options
	wanted         atomic.Pointer[wantedHeaders]
	mux            http.ServeMux

	openPicks                  *openPicks
	draining                   atomic.Bool
	refusedPicks, refusedBytes atomic.Int64
}

// Params are the parameters of New.
type Params struct {
	Options  Options
	Log      *zap.Logger
	Pools    pools
	Ledger   *limits.Ledger
	Observer observer
	Tracer   request.Tracer // nil if tracing is disabled
	Clock    clock.PassiveClock
	NewID    func() string // identifies requests without x-request-id; may be nil
}

// New returns a Server.
func New(p Params) *Server {
	s := &Server{
		options: p.Options, log: p.Log, pools: p.Pools, ledger: p.Ledger, observer: p.Observer,
		requestOptions: request.Options{Tracer: p.Tracer, Now: p.Clock.Now, NewID: p.NewID, Ranking: maxEndpoints},
		openPicks:      newOpenPicks(),
	}
	s.WantHeaders(nil)
	s.mux.HandleFunc("POST "+PathPick, s.countCalls(s.servePick))
	s.mux.HandleFunc("POST "+PathOutcome, s.countCalls(s.serveOutcome))
	for _, path := range []string{PathPick, PathOutcome} {
		s.mux.HandleFunc(path, refuseMethod)
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { errPath.sendTo(w) })
	return s
}

// WantHeaders sets the request headers, in lower case, that the picker needs besides those for every pick.
func (s *Server) WantHeaders(names []string) { s.wanted.Store(newWantedHeaders(names)) }

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c := limits.ConnOf(r); c != nil { // requests of tests have none
		c.BeginRequest(r)
		defer c.EndRequest()
	}
	s.mux.ServeHTTP(w, r)
}

// Stats are figures of the decision API.
type Stats struct {
	Open               int   // picks without an outcome
	RefusedPicks       int64 // because of too many open requests
	RefusedBytes       int64 // because of too many bytes
	RefusedConnections int64 // of a Listener, because of too many bytes
}

// PickStats returns current figures.
func (s *Server) PickStats() Stats {
	return Stats{Open: s.openPicks.openCount(), RefusedPicks: s.refusedPicks.Load(), RefusedBytes: s.refusedBytes.Load()}
}

var (
	errPath     = newProblem(http.StatusNotFound, "", "the path is neither "+PathPick+" nor "+PathOutcome)
	errMethod   = newProblem(http.StatusMethodNotAllowed, "", "the method is not POST")
	errDraining = newProblem(http.StatusServiceUnavailable, "", "the picker is stopping: ask another replica")
	errUnknown  = newProblem(http.StatusNotFound, "id", "no pick with this id is open here: it has ended, has expired, or is another replica's")
	errSlow     = newProblem(http.StatusRequestTimeout, "", "the call took too long to come: send it again")
	errBroken   = newProblem(http.StatusBadRequest, "", "the call did not come whole: send it again")
	errNoPool   = newProblem(http.StatusNotFound, "pool", "the picker serves no pool of this name: give namespace/name")
)

// refuseMethod refuses a call that is no POST.
func refuseMethod(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	errMethod.sendTo(w)
}

// servePick answers one pick.
func (s *Server) servePick(w http.ResponseWriter, c *call) {
	o, problem := readOptions(c.Request)
	if problem != nil {
		problem.sendTo(w)
		return
	}
	defer s.openPicks.startCall()() // before the look at draining
	pool := s.pools.FindHost(c.Host)
	if o.pool != "" {
		pool = s.pools.FindTitle(o.pool)
	}
	switch {
	case s.draining.Load():
		errDraining.sendTo(w)
		return
	case pool == nil:
		errNoPool.sendTo(w)
		return
	}
	p := &openPick{account: s.ledger.OpenAccount(c.account.Address)}
	p.requestContext.StartRequest(pool, &s.requestOptions)
	p.requestContext.Input = request.PickInput{LateFirst: !o.firstToken, Blind: true, MaxWait: o.wait}
	if problem := s.placePick(p, c); problem != nil {
		p.requestContext.EndRequest(nil)
		p.releaseAccount()
		problem.sendTo(w)
		return
	}
	s.answerPick(w, c.Request, p, o)
}

// placePick places the request of a pick, and counts the pick for its client.
func (s *Server) placePick(p *openPick, c *call) *Problem {
	rc := &p.requestContext
	if !p.account.TryAddUse(limits.Streams, 1) {
		s.refusedPicks.Add(1)
		problem := limitProblem("too many open picks: report their outcomes")
		rc.RefuseRequest(&problem.Refusal)
		return problem
	}
	p.streams = 1
	defer c.releaseBody()
	q, problem := s.readRequest(c)
	if problem != nil {
		rc.RefuseRequest(&problem.Refusal)
		return problem
	}
	rc.SetRequestHeaders(&q.IncomingHeaders)
	rc.Input.Incoming.Digest, rc.RequestBytes = q.digest, len(q.body)
	refusal := rc.PickEndpoint(c.Context(), q.body)
	_ = c.control.SetWriteDeadline(s.requestOptions.Now().Add(writeTimeout)) // the request may have waited; recorders in tests have no deadlines
	if refusal != nil {
		return toProblem(refusal)
	}
	size := pickSize(rc)
	if !p.account.TryAddUse(limits.Bytes, size) {
		s.refusedBytes.Add(1)
		return limitProblem("too many bytes of bodies and open picks: report outcomes")
	}
	p.heldBytes = size
	p.account.AddUse(limits.Parked, size)
	return nil
}

// answerPick answers a pick, which is open then.
func (s *Server) answerPick(w http.ResponseWriter, r *http.Request, p *openPick, o options) {
	p.mu.Lock() // until the client has the answer: its outcome may come at once
	defer p.mu.Unlock()
	s.openPicks.addPick(p)
	rc := &p.requestContext
	rc.Ranking = rc.Ranking[:min(len(rc.Ranking), o.endpoints)]
	a := &Answer{
		ID: p.id.String(), Endpoints: endpointsOf(rc.Ranking), SetHeaders: headersOf(rc.Set), RemoveHeaders: slices.Compact(rc.Remove),
		OutcomeURL: outcomeURL(r), Expires: s.options.Timeout.Seconds(),
	}
	if rc.Target != rc.Model {
		a.Model = rc.Target
	}
	p.dropUnneeded()
	err := r.Context().Err()
	if err == nil {
		err = writeJSON(w, http.StatusOK, a)
	}
	if err != nil {
		s.endPick(p, resultGone)
		return
	}
	rc.ConfirmSent()
	p.answered = s.requestOptions.Now()
	p.expires = p.answered.Add(s.options.Timeout)
	p.expiry = time.AfterFunc(min(absentAfter, s.options.Timeout), func() { s.expirePick(p) })
}

// serveOutcome records one report. It is not refused for what its client holds, because it returns some of that.
func (s *Server) serveOutcome(w http.ResponseWriter, c *call) {
	text, problem := c.readBody(maxOutcome, 1, c.addBytes)
	var o *outcome
	if problem == nil {
		o, problem = readOutcome(text)
	}
	if problem == nil {
		problem = s.applyOutcome(o)
	}
	if problem != nil {
		problem.sendTo(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// applyOutcome applies a report to its pick.
func (s *Server) applyOutcome(o *outcome) *Problem {
	p := s.openPicks.findPick(o.id)
	if p == nil {
		s.observer.ObserveDecision(resultUnknown)
		return errUnknown
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isEnded:
		s.observer.ObserveDecision(resultUnknown)
		return errUnknown
	case o.endpoint != "" && !slices.Contains(p.endpoints, o.endpoint):
		return fieldProblem("endpoint", "it is not one of the endpoints of the pick")
	}
	if now := s.requestOptions.Now(); p.applyReport(o, now) {
		s.endPick(p, o.event)
	} else {
		p.expires = now.Add(s.options.Timeout)
		s.observer.ObserveDecision(o.event)
	}
	return nil
}

// endPick ends a pick. The caller has its lock.
func (s *Server) endPick(p *openPick, result string) {
	p.isEnded = true
	if p.expiry != nil {
		p.expiry.Stop()
	}
	p.requestContext.EndRequest(nil)
	p.releaseAccount()
	s.openPicks.removePick(p)
	s.observer.ObserveDecision(result)
}

// expirePick ends a pick whose time limit is over, which a report may have extended. Until then it looks whether the model server has the
// request, each time after twice as long.
func (s *Server) expirePick(p *openPick) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isEnded {
		return
	}
	now := s.requestOptions.Now()
	if left := p.expires.Sub(now); left > 0 {
		if p.isAbsent() {
			p.requestContext.MarkNotReceived()
		}
		p.expiry.Reset(min(left, now.Sub(p.answered)))
		return
	}
	s.endPick(p, resultExpired)
}

// DrainPicks refuses picks, and waits until the last open one has its outcome, or until ctx ends. It returns the number of open
// picks.
func (s *Server) DrainPicks(ctx context.Context) int {
	s.draining.Store(true)
	for s.openPicks.pendingCount() > 0 {
		select {
		case <-ctx.Done():
			return s.openPicks.openCount() // a call whose client has its answer may still be pending
		case <-s.openPicks.fewer:
		}
	}
	return 0
}

// Close ends all open picks. No call is in progress or comes later.
func (s *Server) Close() {
	for _, p := range s.openPicks.listPicks() {
		p.mu.Lock()
		if !p.isEnded {
			s.endPick(p, resultStopped)
		}
		p.mu.Unlock()
	}
}

// readRequest reads the request of a pick.
func (s *Server) readRequest(c *call) (*pickRequest, *Problem) {
	if c.Header.Get(headerPath) == "" {
		body, problem := c.readBody(s.options.MaxBody, objectCopies, c.tryAddBytes)
		if problem != nil {
			return nil, problem
		}
		return s.readObject(body)
	}
	body, problem := c.readBody(s.options.MaxBody, 1, c.tryAddBytes)
	if problem != nil {
		return nil, problem
	}
	return s.readRaw(c.Request, body)
}

// outcomeURL returns the URL of this replica for outcomes: the address at which it received the call. A Service would send the
// outcome to any replica.
func outcomeURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return scheme + "://" + local.String() + PathOutcome
	}
	return scheme + "://" + r.Host + PathOutcome
}
