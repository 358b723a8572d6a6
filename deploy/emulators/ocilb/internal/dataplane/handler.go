package dataplane

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"go.uber.org/zap"
)

// handler serves the requests to a port.
func (p *Plane) handler(id string, number int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, s := p.route(id, number, r)
		switch {
		case l == nil:
			http.Error(w, "no listener", http.StatusBadGateway)
		case l.rules.Answer(w, r, number):
		case s == nil:
			http.Error(w, "no backend set", http.StatusBadGateway)
		default:
			forward(w, r, l, s)
		}
	})
}

// forward sends a request to a backend of a set.
func forward(w http.ResponseWriter, r *http.Request, l *listener, s *backendSet) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	f := s.choose(clientOf(r), r, cancel)
	if f == nil {
		http.Error(w, "no healthy backend", http.StatusBadGateway)
		return
	}
	defer s.done(f)
	watch := time.AfterFunc(l.idle, func() { cancel(errIdle) })
	defer watch.Stop()
	requestID := ""
	if l.requestID != "" {
		if requestID = r.Header.Get(l.requestID); requestID == "" {
			requestID = rand.Text()
		}
	}
	proxy := &httputil.ReverseProxy{
		Transport: f.transport, FlushInterval: -1, ErrorLog: zap.NewStdLog(zap.NewNop()),
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL.Scheme, out.Out.URL.Host, out.Out.Host = "http", f.backend.address, r.Host // the transport adds TLS
			out.SetXForwarded()
			if requestID != "" {
				out.Out.Header.Set(l.requestID, requestID)
			}
			l.rules.Request(out.Out.Header)
			out.Out.Body = &once{ReadCloser: out.Out.Body, left: out.Out.ContentLength}
			out.Out.GetBody = nil
		},
		ModifyResponse: func(response *http.Response) error {
			watch.Reset(l.idle)
			body := &watched{ReadCloser: response.Body, timer: watch, idle: l.idle}
			response.Body = body
			if to, ok := body.ReadCloser.(io.Writer); ok && response.StatusCode == http.StatusSwitchingProtocols {
				response.Body = &upgraded{watched: body, to: to}
			}
			if requestID != "" {
				response.Header.Set(l.requestID, requestID)
			}
			if f.affinity != nil {
				f.affinity.mark(response, f.session, f.name)
			}
			l.rules.Response(response.Header)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			status := http.StatusBadGateway
			if context.Cause(ctx) == errIdle { //nolint:errorlint // it is not wrapped
				status = http.StatusGatewayTimeout
			}
			http.Error(w, err.Error(), status)
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

func clientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
