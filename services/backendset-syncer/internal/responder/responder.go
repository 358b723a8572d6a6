// Package responder answers requests that have no backend. An OCI Load Balancer has no fixed responses: it answers a request that no rule
// matches, or whose rule has no backend, with 502. The Gateway API wants 404 and 500. Every replica serves both answers, each at a port of
// its own, and the backend sets of such requests have the replicas as backends.
//
// The servers read no body and keep no state, so a tenant whose routes match nothing takes only connections.
package responder

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/run"
)

// Options are the addresses of the servers. Empty: no server.
type Options struct {
	// NotFound answers requests that no rule matches.
	NotFound string
	// NoBackends answers requests whose rule has no backend.
	NoBackends string
}

const (
	// keepAlive is the time for which idle connections stay open. OCI Load Balancers use idle connections again for up to 300 s, and ask
	// for at least 310 s: a connection that closes sooner is a 502.
	keepAlive = 310 * time.Second
	// requestTimeout limits the time in which a request arrives, and that in which its answer is read. Load balancers send requests as a
	// whole.
	requestTimeout = 10 * time.Second
	// maxHeader limits the size of headers. OCI Load Balancers accept 8 KiB, and up to 64 KiB with a rule set: larger ones get 431.
	maxHeader = 32 << 10
	// drain is the time for which running requests can end.
	drain = 5 * time.Second
	// maxConnections limits the connections to each server. A load balancer has a few dozen.
	maxConnections = 512
	// retryInterval is the time until a server that failed starts again.
	retryInterval = 5 * time.Second
)

// Answers of the servers.
const (
	notFound   = "no route of this gateway matches the request\n"
	noBackends = "the route of this request has no backend: see the conditions of the HTTPRoute\n"
)

// Meter counts answers.
type Meter interface {
	CountAnswer(status int)
}

// Responder serves the answers.
type Responder struct {
	o      Options
	meter  Meter
	log    *zap.Logger
	listen func(ctx context.Context, network, address string) (net.Listener, error)
}

// New returns a Responder. Run starts it.
func New(o Options, meter Meter, log *zap.Logger) *Responder {
	return &Responder{o: o, meter: meter, log: log.Named("responder"), listen: new(net.ListenConfig).Listen}
}

// answer is what a server answers.
type answer struct {
	address, text string
	status        int
}

// Run serves until ctx ends. All replicas do. A server that fails starts again after a while.
func (r *Responder) Run(ctx context.Context) {
	var servers sync.WaitGroup
	for _, a := range []answer{
		{r.o.NotFound, notFound, http.StatusNotFound}, {r.o.NoBackends, noBackends, http.StatusInternalServerError},
	} {
		if a.address != "" {
			servers.Go(func() { r.keepServing(ctx, &a) })
		}
	}
	servers.Wait()
}

func (r *Responder) keepServing(ctx context.Context, a *answer) {
	run.UntilCanceled(ctx, retryInterval, func() error { return r.serveAnswers(ctx, a) }, func(err error) {
		r.log.Warn("Responder does not work: load balancers answer 502 instead. Retrying", zap.Int("status", a.status), zap.Error(err))
	})
}

func (r *Responder) answerHandler(a *answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.text)) // the load balancer may be gone
		r.meter.CountAnswer(a.status)
	})
}

// serveAnswers serves until ctx ends. Running requests can end then.
func (r *Responder) serveAnswers(ctx context.Context, a *answer) error {
	l, err := r.listen(ctx, "tcp", a.address)
	if err != nil {
		return fmt.Errorf("listen for answers with status %d: %w", a.status, err)
	}
	errorLog, err := zap.NewStdLogAt(r.log, zap.DebugLevel) // any client can cause errors
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	limiter := connlimit.New(connlimit.Limits{Waiting: maxConnections})
	server := &http.Server{
		Handler: r.answerHandler(a), ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: keepAlive,
		MaxHeaderBytes: maxHeader, ErrorLog: errorLog,
	}
	limiter.Attach(server)
	r.log.Info("Serving answers of requests without backends", zap.Int("status", a.status), zap.Stringer(logging.KeyAddress, l.Addr()))
	if err := httpserver.Serve(ctx, server, limiter.Listener(l), drain); err != nil {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
