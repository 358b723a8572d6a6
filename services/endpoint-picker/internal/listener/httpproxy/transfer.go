package httpproxy

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
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// requestBytes is the memory of an open request besides its headers and body: the stacks and buffers of its handler, and those of its
// connection to a model server (BenchmarkMemory: 45 kB).
const requestBytes = 48 << 10

// discardTimeout is the time for the rest of the body of a refused request.
const discardTimeout = time.Second

// A transfer is one request of a client, from its headers to the end of its response.
type transfer struct {
	server         *Server
	writer         http.ResponseWriter
	control        *http.ResponseController
	request        *http.Request
	account        *limits.Account
	requestContext request.Context
	body           mem.Buffer // nil if there is none
	bodyComplete   bool       // the whole body was read
	written        time.Time  // when the deadline for writing was last set
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := limits.ConnOf(r)
	if c == nil || !s.requests.addRequest() {
		panic(http.ErrAbortHandler) // it closes the connection
	}
	defer s.requests.removeRequest()
	c.BeginRequest(r)
	defer c.EndRequest()
	t := &transfer{server: s, writer: w, control: http.NewResponseController(w), request: r, account: c.Account()}
	held := int64(requestBytes + limits.HeadersSize(r.Header))
	t.account.AddUse(limits.Streams, 1)
	t.account.AddUse(limits.Bytes, held)
	defer func() {
		t.account.AddUse(limits.Streams, -1)
		t.account.AddUse(limits.Bytes, -held)
	}()
	if !t.serveRequest() {
		panic(http.ErrAbortHandler)
	}
}

// serveRequest handles the request. It returns false if the client must see that the response is not complete.
func (t *transfer) serveRequest() (complete bool) {
	rc, s, r := &t.requestContext, t.server, t.request
	rc.StartRequest(s.params.Pools.FindHost(r.Host), &s.params.Options.Options)
	defer func() {
		if t.isClientGone() {
			rc.OnClientGone()
		}
		rc.EndRequest(nil)
	}()
	defer t.freeBody()
	s.MarkResponse(t.writer)
	if isWebSocket(r) {
		t.writer.Header().Set(headerConnection, tokenClose) // if it is declined
	}
	rc.SetRequestHeaders(s.readHeaders(r))
	refusal := t.admitRequest()
	if refusal == nil {
		var err error
		if refusal, err = t.collectBody(); err != nil {
			return false
		}
	}
	if refusal != nil {
		return t.refuseRequest(rc.RefuseRequest(refusal))
	}
	if refusal = rc.PickEndpoint(r.Context(), t.bodyBytes()); refusal != nil {
		return t.refuseRequest(refusal)
	}
	if s.params.Log.Core().Enabled(zap.DebugLevel) {
		s.params.Log.Debug("Picked endpoint", zap.String(logging.KeyRequestID, rc.RequestID),
			zap.String(logging.KeyEndpoint, rc.Destination))
	}
	return t.forwardRequest()
}

// errConnect refuses requests to connect to another host.
var errConnect = errors.New("the picker opens no tunnels by CONNECT: use a WebSocket of HTTP/1.1, or another proxy")

// admitRequest returns the refusal of a request that is not for this proxy, or of a client beyond its share.
func (t *transfer) admitRequest() *request.Refusal {
	switch r := t.request; {
	case r.Method == http.MethodConnect:
		return request.NoAnswer(http.StatusNotImplemented, errConnect)
	case t.account.IsBeyondShare(limits.Streams):
		return request.Exhausted(limits.ErrTooManyStreams)
	case t.account.IsBeyondShare(limits.Bytes):
		return request.Exhausted(limits.ErrTooManyBytes)
	}
	return nil
}

// refuseRequest answers the request in place of a model server.
func (t *transfer) refuseRequest(r *request.Refusal) (complete bool) {
	t.freeBody()
	if !t.bodyComplete { // net/http reads the rest of a small body before it answers
		_ = t.control.SetReadDeadline(time.Now().Add(discardTimeout))
	}
	in := api.Incoming{Path: t.request.URL.RequestURI()}
	headers, body := r.EncodeResponse(request.ErrorFormatOf(in.CleanPath()))
	h := t.writer.Header()
	for _, header := range headers {
		h.Set(header.Name, header.Value)
	}
	h.Set(headerContentLength, strconv.Itoa(len(body)))
	t.prepareWrite()
	t.writer.WriteHeader(r.Code)
	if t.request.Method != http.MethodHead {
		_, _ = t.writer.Write(body)
	}
	// a stream that ends during an upload is reset: curl then shows that in place of the refusal
	if !t.bodyComplete && t.request.ProtoMajor == 2 {
		_ = t.control.Flush()
		_, _ = io.Copy(io.Discard, t.request.Body)
	}
	return true
}

// deadlineAge is the age up to which a deadline for writing is good enough.
const deadlineAge = time.Second

// prepareWrite gives the client time to read what is written next.
func (t *transfer) prepareWrite() {
	if now := time.Now(); now.Sub(t.written) > deadlineAge {
		t.written = now
		_ = t.control.SetWriteDeadline(now.Add(t.server.params.Options.SendTimeout))
	}
}

// isClientGone reports whether the client has gone.
func (t *transfer) isClientGone() bool {
	return errors.Is(context.Cause(t.request.Context()), context.Canceled)
}
