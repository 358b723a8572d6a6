package httpproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"sync"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// maxInformational is the maximum number of informational responses before a response: servers send one or two (103, 102).
const maxInformational = 5

// Errors of attempts.
var (
	errFull        = errors.New("the model server has as many connections as --proxy-max-connections-per-server allows")
	errSilent      = errors.New("the model server was silent for longer than --stream-idle-timeout")
	errUnsupported = errors.New("the model server switched to a protocol that was not asked for")
	errDeclined    = errors.New("the model server answered with an error before any content")
	errInformation = fmt.Errorf("the model server sent more than %d informational responses", maxInformational)
)

// forwardRequest sends the request to the picked server, or to the next one, and relays the response.
func (t *transfer) forwardRequest() (complete bool) {
	rc, s := &t.requestContext, t.server
	candidates := t.candidateEndpoints()
	to := s.upstream.reserveServer(candidates[0])
	if to == nil {
		return t.refuseRequest(rc.RefuseRequest(request.Exhausted(errFull)))
	}
	rc.ConfirmSent()
	base := t.baseRequest()
	for rest := candidates[1:]; ; {
		a := t.newAttempt(to, base)
		err := a.sendRequest()
		if err == nil && len(rest) > 0 && a.isDeclined() {
			err = errDeclined
		}
		if err == nil {
			return a.relayResponse()
		}
		to = nil
		if a.isRepeatable(err) && !t.isClientGone() {
			to, rest = t.reserveNext(rest)
		}
		switch {
		case to != nil:
			a.endAttempt()
			s.counters.countResult(err)
			s.counters.retries.Add(1)
			rc.OnFailedAttempt(a.to.address, a.statusCode())
		case errors.Is(err, errDeclined):
			return a.relayResponse()
		default:
			return a.failAttempt(err)
		}
	}
}

// statusCode returns the status of the response, 0 if there is none.
func (a *attempt) statusCode() int {
	if a.response == nil {
		return 0
	}
	return a.response.StatusCode
}

// failAttempt ends the last attempt, which has no response.
func (a *attempt) failAttempt(err error) (complete bool) {
	a.endAttempt()
	if a.isClientGone() {
		a.server.counters.countResult(errGone)
		return false
	}
	a.server.counters.countResult(err)
	return a.transfer.answerFailure(err, a.to.address)
}

// candidateEndpoints returns the picked endpoint and the next ones.
func (t *transfer) candidateEndpoints() []*endpoint.Endpoint {
	rc := &t.requestContext
	endpoints := []*endpoint.Endpoint{rc.Endpoint}
	for i := range rc.Ranking {
		if e := rc.Ranking[i].Endpoint; e != rc.Endpoint {
			endpoints = append(endpoints, e)
		}
	}
	return endpoints[:min(len(endpoints), t.server.params.Options.MaxAttempts)]
}

// reserveNext reserves the first candidate that has room, nil if none has. It returns the candidates after it.
func (t *transfer) reserveNext(candidates []*endpoint.Endpoint) (*server, []*endpoint.Endpoint) {
	for i, e := range candidates {
		if to := t.server.upstream.reserveServer(e); to != nil {
			return to, candidates[i+1:]
		}
	}
	return nil, nil
}

// baseRequest returns what all attempts have in common.
func (t *transfer) baseRequest() *http.Request {
	r := t.request
	return &http.Request{
		Method: r.Method, Host: r.Host, Header: t.outgoingHeaders(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		URL: &url.URL{Scheme: "http", Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery},
	}
}

// answerFailure answers a request without a response of a model server. It counts as a failure of the picked endpoint and of the last
// one.
func (t *transfer) answerFailure(err error, last string) (complete bool) {
	r := request.NoAnswer(http.StatusBadGateway, err)
	switch {
	case errors.Is(err, errSilent):
		r.Code = http.StatusGatewayTimeout
	case errors.Is(err, errUnconnected):
		r = request.Unavailable(errUnconnected)
		r.Reason = "" // there are endpoints
	}
	t.requestContext.OnResponseHeaders(&request.ResponseHeaders{Status: r.Code, Served: last, Unanswered: true})
	t.requestContext.OnResponseEnd()
	return t.refuseRequest(r)
}

// An attempt is one attempt to send the request to a server, with its response.
type attempt struct {
	*transfer

	to        *server
	request   *http.Request
	cancel    context.CancelCauseFunc
	silence   *time.Timer // nil if there is no limit
	bodyStart []byte      // the beginning of the body, if it was read before

	heldBytes int64       // bytes of the response that count for the client
	announced http.Header // the trailers that the response's headers name

	mu            sync.Mutex // guards the following, which the transport's goroutines use
	over          bool       // informational responses are not relayed anymore
	informational int        // number of informational responses
	conn          *serverConn
	before        int64 // bytes that the connection had written for other requests
	response      *http.Response
}

// newAttempt returns an attempt to send the request to a server, whose count of requests it takes over.
func (t *transfer) newAttempt(to *server, base *http.Request) *attempt {
	a := &attempt{transfer: t, to: to}
	ctx, cancel := context.WithCancelCause(t.request.Context())
	a.cancel = cancel
	if limit := t.server.params.Options.IdleTimeout; limit > 0 {
		a.silence = time.AfterFunc(limit, func() { cancel(errSilent) })
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: a.gotConn, Got1xxResponse: a.relayInformational})
	a.request = base.WithContext(ctx)
	u := *base.URL
	u.Host = to.address
	a.request.URL = &u
	a.request.Body, a.request.ContentLength = t.newSentBody()
	if a.request.Body != http.NoBody {
		a.request.GetBody = func() (io.ReadCloser, error) {
			body, _ := t.newSentBody()
			return body, nil
		}
	}
	return a
}

// sendRequest sends the request and waits for the headers of the response.
func (a *attempt) sendRequest() error {
	response, err := a.server.upstream.transport.RoundTrip(a.request) //nolint:bodyclose // end closes it
	a.mu.Lock()
	a.over, a.response = true, response
	a.mu.Unlock()
	switch {
	case errors.Is(context.Cause(a.request.Context()), errSilent):
		return errSilent
	case err != nil:
		return fmt.Errorf("send the request to the model server: %w", err)
	case response.StatusCode == http.StatusSwitchingProtocols && !opensWebSocket(a.request.Header, response.Header):
		return errUnsupported
	}
	a.to.keepAlive.announced.Store(int64(announcedTimeout(response.Header.Get(headerKeepAlive))))
	return a.checkHeaders()
}

// isRepeatable reports whether the request may be sent to another server after an error.
func (a *attempt) isRepeatable(err error) bool {
	switch {
	case errors.Is(err, errSilent), errors.Is(err, errUnsupported):
		return false
	case errors.Is(err, errUnconnected), errors.Is(err, errDeclined):
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != nil && a.conn.written.Load() == a.before {
		return true // the connection had been closed
	}
	return a.isHarmless() || isIdempotent(a.transfer.request)
}

// isIdempotent reports whether a request may run twice, by the rules of net/http.
func isIdempotent(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return len(r.Header[headerIdempotency]) > 0 || len(r.Header[headerIdempotencyX]) > 0
}

// endAttempt ends the attempt. A connection whose response was not read to its end is closed.
func (a *attempt) endAttempt() {
	if a.silence != nil {
		a.silence.Stop()
	}
	a.cancel(nil)
	if a.response != nil {
		_ = a.response.Body.Close()
	}
	a.countHeld(-a.heldBytes)
	a.to.requests.Add(-1)
}

// countHeld counts bytes of the response for the client, in place of what its connection counted while the headers arrived.
func (a *attempt) countHeld(bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heldBytes += bytes
	a.account.AddUse(limits.Bytes, bytes)
	if a.conn != nil {
		a.conn.headers.stopCounting()
	}
}

// gotConn records the connection of the request: of its last one, if the transport sends it again.
func (a *attempt) gotConn(info httptrace.GotConnInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != nil {
		a.conn.headers.stopCounting()
	}
	if c, ok := info.Conn.(*serverConn); ok {
		a.conn, a.before = c, c.written.Load()
		c.headers.startCounting(a.account)
	}
}

// relayInformational relays an informational response. HTTP/1.0 has none, and its clients take one for the response. An error ends the
// attempt.
func (a *attempt) relayInformational(code int, header textproto.MIMEHeader) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.informational++; a.informational > maxInformational {
		return errInformation
	}
	if a.over || code == http.StatusContinue || !a.transfer.request.ProtoAtLeast(1, 1) {
		return nil
	}
	h := a.writer.Header()
	own := h.Clone()
	maps.Copy(h, http.Header(header))
	removeHopByHop(h)
	a.prepareWrite()
	a.writer.WriteHeader(code)
	clear(h)
	maps.Copy(h, own)
	return nil
}
