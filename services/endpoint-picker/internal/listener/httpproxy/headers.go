package httpproxy

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Headers in the form of http.Header.
const (
	headerAcceptEncoding  = "Accept-Encoding"
	headerConnection      = "Connection"
	headerContentEncoding = "Content-Encoding"
	headerContentLength   = "Content-Length"
	headerContentType     = "Content-Type"
	headerIdempotency     = "Idempotency-Key"
	headerIdempotencyX    = "X-Idempotency-Key"
	headerKeepAlive       = "Keep-Alive"
	headerTE              = "Te"
	headerTrailer         = "Trailer"
	headerUpgrade         = "Upgrade"
	headerUserAgent       = "User-Agent"

	encodingNone  = "identity"
	tokenClose    = "close"
	tokenTrailers = "trailers"
	tokenUpgrade  = "Upgrade"

	protocolWebSocket = "websocket"
)

// hopByHop are the headers that concern one connection: RFC 9110, 7.6.1, and the older ones of RFC 2616, 13.5.1.
var hopByHop = []string{
	headerConnection, "Proxy-Connection", headerKeepAlive, "Proxy-Authenticate", "Proxy-Authorization", headerTE, headerTrailer,
	"Transfer-Encoding", headerUpgrade, "Http2-Settings",
}

// reservedHeaders are further headers that only a picker or a proxy may set.
var reservedHeaders = []string{
	headerContentLength, headerContentType, "X-Real-Ip", textproto.CanonicalMIMEHeaderKey(request.HeaderDestination),
	textproto.CanonicalMIMEHeaderKey(request.HeaderRequestID), textproto.CanonicalMIMEHeaderKey(request.HeaderTrace),
}

// removeHopByHop removes the headers that concern one connection, and those that Connection names.
func removeHopByHop(h http.Header) {
	for _, list := range h[headerConnection] {
		for name := range strings.SplitSeq(list, ",") {
			if name = textproto.TrimString(name); name != "" {
				h.Del(name)
			}
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}

// readHeaders reads what the picker needs of a request's headers.
func (s *Server) readHeaders(r *http.Request) *request.IncomingHeaders {
	in := &request.IncomingHeaders{
		Path: r.URL.RequestURI(), ID: r.Header.Get(request.HeaderRequestID), TraceParent: r.Header.Get(request.HeaderTrace),
	}
	for _, h := range s.params.Options.Wanted.ListHeaders() {
		for _, value := range r.Header[h.Canonical] {
			in.AddHeader(h, value)
		}
	}
	return in
}

// removeShadows removes headers whose names differ only by underscores from headers that the picker sets, removes or reads: CGI and WSGI
// have one variable for both, so a client could set X_Forwarded_For beside X-Forwarded-For.
func removeShadows(h http.Header, wanted []*request.WantedHeader) {
	for name := range h {
		if !strings.Contains(name, "_") {
			continue
		}
		plain := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
		_, both := h[plain]
		if both || plain == headerForwarded || strings.HasPrefix(plain, prefixForwarded) || slices.Contains(hopByHop, plain) ||
			slices.Contains(reservedHeaders, plain) ||
			slices.ContainsFunc(wanted, func(w *request.WantedHeader) bool { return w.Canonical == plain }) {
			delete(h, name)
		}
	}
}

// outgoingHeaders changes the headers of a client's request to those for the model server.
func (t *transfer) outgoingHeaders() http.Header {
	rc, h := &t.requestContext, t.request.Header
	trailers, tunnel := hasToken(h[headerTE], tokenTrailers), isWebSocket(t.request)
	removeHopByHop(h)
	if trailers {
		h[headerTE] = []string{tokenTrailers}
	}
	if tunnel {
		setWebSocket(h)
	}
	delete(h, "Expect") // the body is there
	if rc.Inference {
		delete(h, headerAcceptEncoding) // the picker reads the answers
	}
	h.Del(request.HeaderDestination)
	for _, name := range rc.Remove {
		h.Del(name)
	}
	for _, header := range rc.Set {
		h.Set(header.Name, header.Value)
	}
	t.server.params.Options.Forwarded.setHeaders(h, t.request, t.account.Address.String())
	removeShadows(h, t.server.params.Options.Wanted.ListHeaders())
	if _, ok := h[headerUserAgent]; !ok {
		h[headerUserAgent] = nil // or else the transport adds its own
	}
	return h
}

// hasToken reports whether a list in headers has a token, without its parameters.
func hasToken(lists []string, token string) bool {
	for _, list := range lists {
		for part := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(textproto.TrimString(name), token) {
				return true
			}
		}
	}
	return false
}
