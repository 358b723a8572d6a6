package decision

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

const (
	// usualEndpoints is the number of endpoints in an answer: one, and two to retry with. At 1 a client could not retry; at 6
	// answers are longer for endpoints that are rarely used.
	usualEndpoints = 3
	// maxEndpoints is the maximum number of endpoints in an answer. Each takes 16 bytes while the pick is open. More attempts
	// than half as many are rarely of use.
	maxEndpoints = 16
	// firstRead is the size of the first read of a body of unknown length, in bytes.
	firstRead = 4 << 10
	// objectCopies is the memory of a pick in the form of an object, in relation to its length: the text, and the body without
	// escapes.
	objectCopies = 2
)

// Paths of the calls.
const (
	PathPick    = "/v1/pick"
	PathOutcome = "/v1/outcome"
)

// Options configures the decision API.
type Options struct {
	MaxBody     int           // of a request, in bytes
	MaxBytes    int           // of all bodies and open picks
	MaxOpen     int           // picks without an outcome
	Timeout     time.Duration // of a pick without an outcome
	BodyTimeout time.Duration // maximum time to receive a call
}

// pools finds the pool of a request.
type pools interface {
	// FindTitle returns the pool with a title, or nil.
	FindTitle(title string) exchange.Pool
	// FindHost returns the pool of an HTTP request, by its host. It returns a pool that refuses all requests if there is none.
	FindHost(host string) exchange.Pool
}

// observer counts what becomes of picks.
type observer interface {
	// ObserveDecision counts one of Results.
	ObserveDecision(result string)
}

// Server is the decision API, without its port. It is an http.Handler.
type Server struct {
	options  Options
	log      *zap.Logger
	pools    pools
	observer observer
	exchange exchange.Options
	wanted   atomic.Pointer[wanted]
	mux      http.ServeMux

	open     *openPicks
	places   *shares // of open picks
	bytes    *shares
	draining atomic.Bool
}

// Params are the parameters of New.
type Params struct {
	Options  Options
	Log      *zap.Logger
	Pools    pools
	Observer observer
	Tracer   exchange.Tracer // nil if tracing is disabled
	Clock    clock.PassiveClock
	NewID    func() string // identifies requests without x-request-id; may be nil
}

// New returns a Server.
func New(p Params) *Server {
	s := &Server{
		options: p.Options, log: p.Log, pools: p.Pools, observer: p.Observer,
		exchange: exchange.Options{Tracer: p.Tracer, Now: p.Clock.Now, NewID: p.NewID, Ranking: maxEndpoints},
		open:     newOpenPicks(), places: newShares(int64(p.Options.MaxOpen)), bytes: newShares(int64(p.Options.MaxBytes)),
	}
	s.WantHeaders(nil)
	s.mux.HandleFunc("POST "+PathPick, s.pick)
	s.mux.HandleFunc("POST "+PathOutcome, s.outcome)
	return s
}

// WantHeaders sets the request headers, in lower case, that the picker needs besides those for every pick.
func (s *Server) WantHeaders(names []string) { s.wanted.Store(newWanted(names)) }

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Stats are figures of the decision API.
type Stats struct {
	Open         int   // picks without an outcome
	Bytes        int64 // of bodies and open picks
	RefusedPicks int64 // because of too many open picks
	RefusedBytes int64 // because of too many bytes
}

// Stats returns current figures.
func (s *Server) Stats() Stats {
	stats := Stats{Open: s.open.count()}
	_, stats.RefusedPicks = s.places.usage()
	stats.Bytes, stats.RefusedBytes = s.bytes.usage()
	return stats
}

var (
	errDraining = &Problem{Message: "the picker is stopping: ask another replica", status: http.StatusServiceUnavailable}
	errUnknown  = &Problem{Field: "id", Message: "no pick with this id is open here", status: http.StatusNotFound}
	errSlow     = &Problem{Message: "the call took too long to come", status: http.StatusRequestTimeout}
	errBroken   = &Problem{Message: "the call did not come whole", status: http.StatusBadRequest}
	errNoPool   = &Problem{Field: "pool", Message: "the picker serves no pool of this name: give namespace/name", status: http.StatusNotFound}
)

// pick answers one pick.
func (s *Server) pick(w http.ResponseWriter, r *http.Request) {
	o, problem := readOptions(r)
	if problem != nil {
		problem.write(w)
		return
	}
	pool := s.pools.FindHost(r.Host)
	if o.pool != "" {
		pool = s.pools.FindTitle(o.pool)
	}
	switch {
	case s.draining.Load():
		w.Header().Set("Connection", "close") // the next connection reaches another replica
		errDraining.write(w)
		return
	case pool == nil:
		errNoPool.write(w)
		return
	}
	p := &openPick{client: clientOf(r)}
	p.exchange.Begin(pool, &s.exchange)
	p.exchange.LateFirst = !o.firstToken
	if problem := s.decide(p, r); problem != nil {
		p.exchange.End(nil)
		problem.write(w)
		return
	}
	s.answer(w, r, p, o)
}

// decide places the request of a pick, and makes room for it among the open picks.
func (s *Server) decide(p *openPick, r *http.Request) *Problem {
	x := &p.exchange
	q, held, problem := s.read(r, p.client)
	defer func() { s.bytes.give(p.client, held) }()
	if problem != nil {
		x.Refuse(problem.refusal())
		return problem
	}
	x.Receive(&q.Request)
	x.Incoming.Digest, x.RequestBytes = q.digest, len(q.body)
	if refusal := x.Decide(r.Context(), q.body); refusal != nil {
		return problemOf(refusal)
	}
	if p.held = sizeOf(x); !s.bytes.take(p.client, p.held) {
		return busy("too many bytes of bodies and open picks: report outcomes")
	}
	if !s.places.take(p.client, 1) {
		s.bytes.give(p.client, p.held)
		return busy("too many open picks: report their outcomes")
	}
	return nil
}

// answer answers a pick, which is open then.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, p *openPick, o options) {
	p.mu.Lock() // until the client has the answer: its outcome may come at once
	defer p.mu.Unlock()
	s.open.add(p)
	x := &p.exchange
	x.Ranking = x.Ranking[:min(len(x.Ranking), o.endpoints)]
	a := &Answer{
		ID: p.id.String(), Endpoints: endpointsOf(x.Ranking), SetHeaders: headersOf(x.Set), RemoveHeaders: slices.Compact(x.Remove),
		OutcomeURL: outcomeURL(r), Expires: s.options.Timeout.Seconds(),
	}
	if x.Target != x.Model {
		a.Model = x.Target
	}
	p.shed()
	err := r.Context().Err()
	if err == nil {
		err = writeJSON(w, http.StatusOK, a)
	}
	if err != nil {
		s.end(p, resultGone)
		return
	}
	x.Sent()
	p.answered = s.exchange.Now()
	p.expires = p.answered.Add(s.options.Timeout)
	p.expiry = time.AfterFunc(s.options.Timeout, func() { s.expire(p) })
}

// outcome records one report.
func (s *Server) outcome(w http.ResponseWriter, r *http.Request) {
	client := clientOf(r)
	text, held, problem := s.readBody(r, client, maxOutcome, 1)
	defer func() { s.bytes.give(client, held) }()
	var o *outcome
	if problem == nil {
		o, problem = readOutcome(text)
	}
	if problem == nil {
		problem = s.report(o)
	}
	if problem != nil {
		problem.write(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// report applies a report to its pick.
func (s *Server) report(o *outcome) *Problem {
	p := s.open.find(o.id)
	if p == nil {
		s.observer.ObserveDecision(resultUnknown)
		return errUnknown
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		s.observer.ObserveDecision(resultUnknown)
		return errUnknown
	case o.endpoint != "" && !slices.Contains(p.endpoints, o.endpoint):
		return wrong("endpoint", "it is not one of the endpoints of the pick")
	}
	if now := s.exchange.Now(); p.apply(o, now) {
		s.end(p, o.event)
	} else {
		p.expires = now.Add(s.options.Timeout)
		s.observer.ObserveDecision(o.event)
	}
	return nil
}

// end ends a pick. The caller has its lock.
func (s *Server) end(p *openPick, result string) {
	p.ended = true
	if p.expiry != nil {
		p.expiry.Stop()
	}
	p.exchange.End(nil)
	s.open.remove(p)
	s.places.give(p.client, 1)
	s.bytes.give(p.client, p.held)
	s.observer.ObserveDecision(result)
}

// expire ends a pick whose time limit is over. A report may have extended it.
func (s *Server) expire(p *openPick) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	if left := p.expires.Sub(s.exchange.Now()); left > 0 {
		p.expiry.Reset(left)
		return
	}
	s.end(p, resultExpired)
}

// Drain refuses picks, and waits until the last open one has its outcome, or until ctx ends. It returns the number of open
// picks.
func (s *Server) Drain(ctx context.Context) int {
	s.draining.Store(true)
	for {
		n := s.open.count()
		if n == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return n
		case <-s.open.fewer:
		}
	}
}

// Close ends all open picks. No call is in progress or comes later.
func (s *Server) Close() {
	for _, p := range s.open.all() {
		p.mu.Lock()
		if !p.ended {
			s.end(p, resultStopped)
		}
		p.mu.Unlock()
	}
}

// read reads the request of a pick. It returns the bytes to give back when the request is not needed any more.
func (s *Server) read(r *http.Request, client netip.Addr) (q *request, held int64, problem *Problem) {
	raw := r.Header.Get(headerPath) != ""
	copies := objectCopies
	if raw {
		copies = 1
	}
	body, held, problem := s.readBody(r, client, s.options.MaxBody, copies)
	switch {
	case problem != nil:
	case raw:
		q, problem = s.readRaw(r, body)
	default:
		q, problem = s.readObject(body)
	}
	return q, held, problem
}

// readBody reads the body of a call. It counts its memory as it grows, so that a client holds only what it has sent.
func (s *Server) readBody(r *http.Request, client netip.Addr, most, copies int) (body []byte, held int64, problem *Problem) {
	if r.ContentLength > int64(most) {
		return nil, 0, tooLarge(most)
	}
	for {
		if len(body) == cap(body) {
			size := min(max(2*cap(body), firstRead), most+1)
			if r.ContentLength >= 0 {
				size = min(size, int(r.ContentLength)+1) // and a byte for the end
			}
			if more := int64((size - cap(body)) * copies); s.bytes.take(client, more) {
				held += more
			} else {
				return nil, held, busy("too many bytes of bodies and open picks: send fewer requests at a time")
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > most:
			return nil, held, tooLarge(most)
		case errors.Is(err, io.EOF):
			return body, held, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, held, errSlow
		case err != nil:
			return nil, held, errBroken
		}
	}
}

func tooLarge(most int) *Problem { return problemOf(exchange.TooLarge(most)) }

// clientOf returns the IP address of a client.
func clientOf(r *http.Request) netip.Addr {
	address, _ := netip.ParseAddrPort(r.RemoteAddr) // zero for connections of tests in memory
	return address.Addr().Unmap().WithZone("")
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
