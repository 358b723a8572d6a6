package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/mem"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/fairconn"
	"fairlead.dev/services/endpoint-picker/internal/fairshare"
)

// requestBytes is the memory of an open request besides its headers and body: the stacks and buffers of its handler, and those
// of its connection to a model server (BenchmarkMemory: 45 kB). At half the value, open streams take twice the
// memory that is counted. At double, a load balancer has its share with half as many requests.
const requestBytes = 48 << 10

// discardTimeout is the time for the rest of the body of a refused request. At half the value, slow clients may see a reset in
// place of the refusal. At double, hostile clients keep refused requests for twice as long.
const discardTimeout = time.Second

// A transfer is one request of a client, from its headers to the end of its response.
type transfer struct {
	server   *Server
	writer   http.ResponseWriter
	control  *http.ResponseController
	request  *http.Request
	account  *fairshare.Account
	exchange exchange.Exchange
	body     mem.Buffer // nil if there is none
	arrived  bool       // the whole body was read
	written  time.Time  // when the deadline for writing was last set
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := fairconn.Of(r)
	if c == nil || !s.requests.add() {
		panic(http.ErrAbortHandler) // it closes the connection
	}
	defer s.requests.remove()
	c.Begin(r)
	defer c.End()
	t := &transfer{server: s, writer: w, control: http.NewResponseController(w), request: r, account: c.Account()}
	held := int64(requestBytes + fairconn.HeadersSize(r.Header))
	t.account.Add(fairshare.Streams, 1)
	t.account.Add(fairshare.Bytes, held)
	defer func() {
		t.account.Add(fairshare.Streams, -1)
		t.account.Add(fairshare.Bytes, -held)
	}()
	if !t.serve() {
		panic(http.ErrAbortHandler)
	}
}

// serve handles the request. It returns false if the client must see that the response is not complete.
func (t *transfer) serve() (whole bool) {
	x, s, r := &t.exchange, t.server, t.request
	x.Begin(s.pools.FindHost(r.Host), &s.exchange)
	defer func() {
		if t.gone() {
			x.Left()
		}
		x.End(nil)
	}()
	defer t.drop()
	s.connections.Mark(t.writer)
	if isWebSocket(r) {
		t.writer.Header().Set(headerConnection, tokenClose) // if it is declined
	}
	headers, private := s.wanted.Load().read(r.Header)
	x.Receive(&exchange.Request{
		Path: r.URL.RequestURI(), ID: r.Header.Get(exchange.HeaderRequestID), TraceParent: r.Header.Get(exchange.HeaderTrace),
		Headers: headers, Private: private,
	})
	refusal := t.admit()
	if refusal == nil {
		var err error
		if refusal, err = t.collect(); err != nil {
			return false
		}
	}
	if refusal != nil {
		return t.refuse(x.Refuse(refusal))
	}
	if refusal = x.Decide(r.Context(), t.bytes()); refusal != nil {
		return t.refuse(refusal)
	}
	if s.log.Core().Enabled(zap.DebugLevel) {
		s.log.Debug("Picked endpoint", zap.String(logging.KeyRequestID, x.RequestID), zap.String(logging.KeyEndpoint, x.Destination))
	}
	return t.forward()
}

// errConnect refuses requests to connect to another host.
var errConnect = errors.New("the picker opens no tunnels by CONNECT: use a WebSocket of HTTP/1.1, or another proxy")

// admit returns the refusal of a request that is not for this proxy, or of a client beyond its share.
func (t *transfer) admit() *exchange.Refusal {
	switch r := t.request; {
	case r.Method == http.MethodConnect:
		return exchange.Unanswered(http.StatusNotImplemented, errConnect)
	case t.account.BeyondShare(fairshare.Streams):
		return exchange.Exhausted(fairshare.ErrTooManyStreams)
	case t.account.BeyondShare(fairshare.Bytes):
		return exchange.Exhausted(fairshare.ErrTooManyBytes)
	}
	return nil
}

// refuse answers the request in place of a model server.
func (t *transfer) refuse(r *exchange.Refusal) (whole bool) {
	t.drop()
	if !t.arrived { // net/http reads the rest of a small body before it answers
		_ = t.control.SetReadDeadline(time.Now().Add(discardTimeout))
	}
	in := api.Incoming{Path: t.request.URL.RequestURI()}
	body, contentType := r.Body(exchange.FormOf(in.CleanPath()))
	h := t.writer.Header()
	h.Set(headerContentType, contentType)
	h.Set(headerContentLength, strconv.Itoa(len(body)))
	if r.Reason != "" {
		h.Set(exchange.HeaderDropped, r.Reason)
	}
	if r.RetryAfter > 0 {
		h.Set(headerRetryAfter, strconv.Itoa(int(r.RetryAfter/time.Second)))
	}
	t.prepareWrite()
	t.writer.WriteHeader(r.Code)
	if t.request.Method != http.MethodHead {
		_, _ = t.writer.Write(body)
	}
	if !t.arrived && t.request.ProtoMajor == 2 { // a stream that ends during an upload is reset: curl then shows that in place of the refusal
		_ = t.control.Flush()
		_, _ = io.Copy(io.Discard, t.request.Body)
	}
	return true
}

// deadlineAge is the age up to which a deadline for writing is good enough. At half the value, streams of many pieces set twice
// as many. At double, a client may get two seconds less than it should.
const deadlineAge = time.Second

// prepareWrite gives the client time to read what is written next.
func (t *transfer) prepareWrite() {
	if now := time.Now(); now.Sub(t.written) > deadlineAge {
		t.written = now
		_ = t.control.SetWriteDeadline(now.Add(t.server.options.SendTimeout))
	}
}

// gone reports whether the client has gone.
func (t *transfer) gone() bool {
	return errors.Is(context.Cause(t.request.Context()), context.Canceled)
}
