// Package httpserver serves what every service shows of itself: /healthz and /readyz on one address, /metrics, on
// request /debug/pprof/, and a service's own debug pages on another.
//
// Health is open to all, as probes have no credentials. Who may see the other address is up to the service: Protect stands
// before all its pages, TLS encrypts it and can ask for certificates; without them it is open too.
//
// Listen opens the ports, so that a port in use is an error at start; Run serves until its context ends, which should be
// the last thing to end, because probes and scrapes go on while a service drains. Every phase of a request has a time limit.
package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
)

const (
	readTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	// writeTimeout leaves room for a CPU profile or a trace, which pprof refuses to make beyond it.
	writeTimeout    = 2 * time.Minute
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = 5 * time.Second
)

// Params is what New needs.
type Params struct {
	Options

	Log *zap.Logger
	// Gatherer is shown as /metrics, nil shows none.
	Gatherer prometheus.Gatherer
	// Live and Ready decide /healthz and /readyz.
	Live, Ready []Check
	// Handlers are served beside /metrics, by pattern of http.ServeMux.
	Handlers map[string]http.Handler
	// Protect puts before all that is served beside health a handler that passes on what may be seen; nil lets everybody see it.
	Protect func(next http.Handler) http.Handler
	// TLS is for the same address; nil serves it in plaintext.
	TLS *tls.Config
}

// Server serves health on one address and metrics on another.
type Server struct {
	log     *zap.Logger
	metrics *endpoint
	health  *endpoint
}

// endpoint is one address; its listener is nil before listen and when it is off.
type endpoint struct {
	flag     string
	address  string
	server   *http.Server
	listener net.Listener
}

// New makes a server that opens nothing until Listen.
func New(p Params) *Server {
	errorLog, err := zap.NewStdLogAt(p.Log, zap.DebugLevel)
	if err != nil {
		panic(err) // only for a level that zap does not have
	}
	serve := func(flag, address string, h http.Handler) *endpoint {
		return &endpoint{flag: flag, address: address, server: &http.Server{
			Handler:           h,
			ErrorLog:          errorLog,
			ReadHeaderTimeout: readTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
		}}
	}
	s := &Server{
		log:     p.Log,
		metrics: serve(metricsFlag, p.MetricsAddress, metricsHandler(p)),
		health:  serve(healthFlag, p.HealthAddress, healthMux(p)),
	}
	s.metrics.server.TLSConfig = p.TLS
	return s
}

// Listen opens both addresses or none.
func (s *Server) Listen() error {
	if err := s.metrics.listen(); err != nil {
		return err
	}
	if err := s.health.listen(); err != nil {
		return errors.Join(err, s.metrics.close())
	}
	return nil
}

// Run serves what Listen opened until ctx ends, then gives requests in hand a few seconds. It returns an error when an
// address stops being served before that.
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
			defer cancel() // one that fails ends the other
			ended <- e.run(ctx)
		}()
	}
	var errs []error
	for range endpoints {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// MetricsAddress returns the address in use after Listen, with the real port; empty when off.
func (s *Server) MetricsAddress() string {
	return s.metrics.realAddress()
}

// HealthAddress returns the address in use after Listen, with the real port; empty when off.
func (s *Server) HealthAddress() string {
	return s.health.realAddress()
}

func (e *endpoint) listen() error {
	if off(e.address) {
		return nil
	}
	listener, err := net.Listen("tcp", e.address)
	if err != nil {
		return fmt.Errorf("open --%s %s: %w", e.flag, e.address, err)
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

// run serves until ctx ends and returns when the server and its requests have ended.
func (e *endpoint) run(ctx context.Context) error {
	if e.listener == nil {
		<-ctx.Done()
		return nil
	}
	served := make(chan error, 1)
	go func() { served <- e.serve() }()
	select {
	case err := <-served:
		return fmt.Errorf("serve --%s %s: %w", e.flag, e.address, err)
	case <-ctx.Done():
	}
	// The parent context has ended; shutting down has its own bound.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if e.server.Shutdown(bounded) != nil {
		// Requests outlived the bound: cut them.
		_ = e.server.Close()
	}
	<-served
	return nil
}

func (e *endpoint) serve() error {
	if e.server.TLSConfig == nil {
		return e.server.Serve(e.listener)
	}
	return e.server.ServeTLS(e.listener, "", "") // the configuration has the certificate
}

func (e *endpoint) realAddress() string {
	if e.listener == nil {
		return ""
	}
	return e.listener.Addr().String()
}

func metricsHandler(p Params) http.Handler {
	mux := metricsMux(p)
	if p.Protect == nil {
		return mux
	}
	return p.Protect(mux)
}

func metricsMux(p Params) *http.ServeMux {
	mux := http.NewServeMux()
	if p.Gatherer != nil {
		// One collector that fails must not hide the others.
		mux.Handle("GET /metrics", promhttp.HandlerFor(p.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	}
	if p.EnablePprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	for pattern, h := range p.Handlers {
		mux.Handle(pattern, h)
	}
	return mux
}
