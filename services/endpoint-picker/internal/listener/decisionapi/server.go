package decisionapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/wake"
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

const (
	// headerTimeout is the maximum time to receive the headers of a call, and for a TLS handshake.
	headerTimeout = 10 * time.Second
	// writeTimeout is the maximum time for a client to take an answer, which is a few KiB: the same as for ext_proc's replies.
	writeTimeout = 30 * time.Second
	// idleTimeout is the time after which an unused connection is closed. Load balancers keep theirs for about a minute.
	idleTimeout = 2 * time.Minute
	// closeTimeout is the time for calls in progress at the end. They take milliseconds, unless their client stopped.
	closeTimeout = time.Second
	// maxHeaderBytes is the maximum size of a call's headers: those of the request, in the raw form.
	maxHeaderBytes = 64 << 10
)

// Paths of the calls.
const (
	PathPick    = "/v1/pick"
	PathOutcome = "/v1/outcome"
)

// Options configures the decision API.
type Options struct {
	request.Options

	Flag        string        // that sets the address, for messages
	Address     string        // empty: the API is off
	TLS         *tls.Config   // nil for plaintext
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

// Server is the decision API. It is an http.Handler, and its HTTPListener has the port.
type Server struct {
	*limits.HTTPListener

	params Params
	server *http.Server
	mux    http.ServeMux

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
}

// New returns a Server. OpenListener opens its port.
func New(p Params) *Server {
	p.Options.Ranking = maxEndpoints
	s := &Server{params: p, openPicks: &openPicks{picks: map[id]*openPick{}, fewer: wake.NewSignal()}}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // by HTTP/2, a client beyond its share could report any number of outcomes at a time
	timeout := p.Options.BodyTimeout
	s.server = &http.Server{
		Handler: s, Protocols: &protocols, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: min(headerTimeout, timeout), ReadTimeout: timeout, WriteTimeout: timeout + writeTimeout,
		IdleTimeout: idleTimeout,
	}
	s.HTTPListener = limits.NewHTTPListener(limits.HTTPParams{
		Log: p.Log, Ledger: p.Ledger, Flag: p.Options.Flag, Address: p.Options.Address, TLS: p.Options.TLS,
		Protocols: []string{"http/1.1"}, Server: s.server,
	})
	s.mux.HandleFunc("POST "+PathPick, s.countCalls(s.servePick))
	s.mux.HandleFunc("POST "+PathOutcome, s.countCalls(s.serveOutcome))
	for _, path := range []string{PathPick, PathOutcome} {
		s.mux.HandleFunc(path, refuseMethod)
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { errPath.sendTo(w) })
	return s
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.MarkResponse(w)
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
	RefusedConnections int64 // because of too many bytes
}

// PickStats returns current figures.
func (s *Server) PickStats() Stats {
	return Stats{
		Open: len(s.openPicks.listPicks()), RefusedPicks: s.refusedPicks.Load(), RefusedBytes: s.refusedBytes.Load(),
		RefusedConnections: s.RefusedConns(),
	}
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
	pool := s.params.Pools.FindHost(c.Host)
	if o.pool != "" {
		pool = s.params.Pools.FindTitle(o.pool)
	}
	switch {
	case s.draining.Load():
		errDraining.sendTo(w)
		return
	case pool == nil:
		errNoPool.sendTo(w)
		return
	}
	p := &openPick{account: s.params.Ledger.OpenAccount(c.account.Address)}
	p.requestContext.StartRequest(pool, &s.params.Options.Options)
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
	_ = c.control.SetWriteDeadline(s.params.Options.Now().Add(writeTimeout)) // it may have waited; recorders in tests have none
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
		ID: p.id.String(), Endpoints: endpointsOf(rc.Ranking), SetHeaders: rc.Set, RemoveHeaders: slices.Compact(rc.Remove),
		OutcomeURL: outcomeURL(r), Expires: s.params.Options.Timeout.Seconds(),
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
	p.answered = s.params.Options.Now()
	p.expires = p.answered.Add(s.params.Options.Timeout)
	p.expiry = time.AfterFunc(min(absentAfter, s.params.Options.Timeout), func() { s.expirePick(p) })
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
		s.params.Observer.ObserveDecision(resultUnknown)
		return errUnknown
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isEnded:
		s.params.Observer.ObserveDecision(resultUnknown)
		return errUnknown
	case o.endpoint != "" && !slices.Contains(p.endpoints, o.endpoint):
		return fieldProblem("endpoint", "it is not one of the endpoints of the pick")
	}
	if now := s.params.Options.Now(); p.applyReport(o, now) {
		s.endPick(p, o.event)
	} else {
		p.expires = now.Add(s.params.Options.Timeout)
		s.params.Observer.ObserveDecision(o.event)
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
	s.params.Observer.ObserveDecision(result)
}

// expirePick ends a pick whose time limit is over, which a report may have extended. Until then it looks whether the model server has the
// request, each time after twice as long.
func (s *Server) expirePick(p *openPick) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isEnded {
		return
	}
	now := s.params.Options.Now()
	if left := p.expires.Sub(now); left > 0 {
		if p.isAbsent() {
			p.requestContext.MarkNotReceived()
		}
		p.expiry.Reset(min(left, now.Sub(p.answered)))
		return
	}
	s.endPick(p, resultExpired)
}

// DrainAll refuses picks, waits until the last open one has its outcome, and then until clients have left their connections. It returns
// the number of picks that were still open when ctx ended. Then Close cuts what is open.
func (s *Server) DrainAll(ctx context.Context) int {
	n := s.drainPicks(ctx)
	s.DrainConns(ctx)
	return n
}

// drainPicks refuses picks, and waits until the last open one has its outcome, or until ctx ends. It returns the number of open picks.
func (s *Server) drainPicks(ctx context.Context) int {
	s.draining.Store(true)
	for s.openPicks.pendingCount() > 0 {
		select {
		case <-ctx.Done():
			return len(s.openPicks.listPicks()) // a call whose client has its answer may still be pending
		case <-s.openPicks.fewer:
		}
	}
	return 0
}

// Close stops the server, and ends the open picks.
func (s *Server) Close() {
	bounded, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.server.Shutdown(bounded)
	s.HTTPListener.Close() // it cuts the connections of calls that are in progress after the timeout
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
		body, problem := c.readBody(s.params.Options.MaxBody, objectCopies, c.tryAddBytes)
		if problem != nil {
			return nil, problem
		}
		return s.readObject(body)
	}
	body, problem := c.readBody(s.params.Options.MaxBody, 1, c.tryAddBytes)
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
