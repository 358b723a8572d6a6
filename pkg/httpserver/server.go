// Package httpserver serves the operational endpoints of a service: /healthz and /readyz on one address, and /metrics,
// optionally /debug/pprof/, and debug pages of the service on another address.
//
// Health endpoints have no access control, because probes have no credentials. The service can restrict the metrics address:
// Protect wraps all its handlers, and TLS encrypts it and can require client certificates. By default, it is open too.
//
// Listen opens the ports, so that a port in use is an error at startup. Run serves until its context is canceled. Cancel it
// last at shutdown, because probes and scrapes continue while a service drains.
//
// Both addresses are open to whoever reaches them, so both have limits (limits.go), which no setting changes: of connections and
// requests, fairly for each client address, of the size of headers and bodies, and of the time of every phase of a request. A probe
// waits for no page, because probes have an address of their own.
package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/pkg/logging"
)

// Params holds the arguments of New.
type Params struct {
	Options

	Log *zap.Logger
	// Gatherer provides /metrics; if nil, /metrics is not served.
	Gatherer prometheus.Gatherer
	// Live and Ready are the checks of /healthz and /readyz.
	Live, Ready []Check
	// Handlers are served on the metrics address; keys are patterns of http.ServeMux.
	Handlers map[string]http.Handler
	// Protect wraps all handlers of the metrics address with access control; nil allows all requests.
	Protect func(next http.Handler) http.Handler
	// TLS configures the metrics address; nil serves it in plaintext.
	TLS *tls.Config
}

// Server serves health on one address and metrics on another.
type Server struct {
	log     *zap.Logger
	metrics *endpoint
	health  *endpoint
}

// endpoint is the server of one address; its listener is nil before listen, and if the address is disabled.
type endpoint struct {
	flag     string
	address  string
	server   *http.Server
	limiter  *connlimit.Limiter
	listener net.Listener
}

// New returns a server. It opens its ports once Listen is called.
func New(p Params) *Server {
	errorLog, err := zap.NewStdLogAt(p.Log, zap.DebugLevel)
	if err != nil {
		panic(err) // unreachable: zap has this level
	}
	s := &Server{
		log:     p.Log,
		metrics: newEndpoint(metricsFlag, p.MetricsAddress, connlimit.Limits{Waiting: maxWaiting, Requests: maxPages}),
		health:  newEndpoint(healthFlag, p.HealthAddress, connlimit.Limits{Waiting: maxWaiting, Requests: maxProbes}),
	}
	s.metrics.server.Handler = limitBody(protectHandler(p, s.metrics.limiter.Requests(metricsMux(p))))
	s.metrics.server.WriteTimeout = profileTimeout
	s.health.server.Handler = limitBody(s.health.limiter.Requests(healthMux(p)))
	s.health.server.WriteTimeout = answerTimeout
	s.metrics.server.ErrorLog, s.health.server.ErrorLog = errorLog, errorLog
	s.metrics.server.TLSConfig = p.TLS
	return s
}

func newEndpoint(flag, address string, limits connlimit.Limits) *endpoint {
	// Streams see the end of the context of their request, and end when the server does.
	streams, end := context.WithCancel(context.Background())
	e := &endpoint{flag: flag, address: address, limiter: connlimit.New(limits), server: &http.Server{
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return streams },
	}}
	e.server.RegisterOnShutdown(end)
	e.limiter.Attach(e.server)
	return e
}

// Listen opens both addresses. If one fails, neither stays open.
func (s *Server) Listen() error {
	if err := s.metrics.listen(); err != nil {
		return err
	}
	if err := s.health.listen(); err != nil {
		return errors.Join(err, s.metrics.close())
	}
	return nil
}

// Run serves the opened addresses until ctx is canceled, then waits a few seconds for running requests. It returns an error if
// a server stops earlier.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	endpoints := []*endpoint{s.metrics, s.health}
	ended := make(chan error, len(endpoints))
	for _, e := range endpoints {
		if e.listener != nil {
			s.log.Info("Started listening", zap.String(logging.KeyAddress, e.listener.Addr().String()), zap.String("flag", e.flag))
		}
		go func() {
			defer cancel() // if one server fails, the other one stops
			ended <- e.run(ctx)
		}()
	}
	var errs []error
	for range endpoints {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// MetricsAddress returns the bound address after Listen, with the actual port; it is empty if disabled.
func (s *Server) MetricsAddress() string {
	return s.metrics.boundAddress()
}

// HealthAddress returns the bound address after Listen, with the actual port; it is empty if disabled.
func (s *Server) HealthAddress() string {
	return s.health.boundAddress()
}

func (e *endpoint) listen() error {
	if isDisabled(e.address) {
		return nil
	}
	listener, err := net.Listen("tcp", e.address)
	if err != nil {
		return fmt.Errorf("listen on --%s %s: %w", e.flag, e.address, err)
	}
	e.listener = listener
	return nil
}

func (e *endpoint) close() error {
	if e.listener == nil {
		return nil
	}
	return e.listener.Close()
}

// run serves until ctx is canceled, and returns after the server and its requests have ended.
func (e *endpoint) run(ctx context.Context) error {
	if e.listener == nil {
		<-ctx.Done()
		return nil
	}
	if err := Serve(ctx, e.server, e.limiter.Listener(e.listener), shutdownTimeout); err != nil {
		return fmt.Errorf("serve --%s %s: %w", e.flag, e.address, err)
	}
	return nil
}

func (e *endpoint) boundAddress() string {
	if e.listener == nil {
		return ""
	}
	return e.listener.Addr().String()
}

func protectHandler(p Params, h http.Handler) http.Handler {
	if p.Protect == nil {
		return h
	}
	return p.Protect(h)
}

func metricsMux(p Params) *http.ServeMux {
	mux := http.NewServeMux()
	if p.Gatherer != nil {
		// A failing collector must not hide the metrics of the others.
		mux.Handle("GET /metrics", limitAnswer(promhttp.HandlerFor(p.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})))
	}
	if p.EnablePprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	for pattern, h := range p.Handlers {
		mux.Handle(pattern, limitAnswer(h))
	}
	return mux
}
