// Package app assembles and runs the picker, as its command line says. All parts start together, and stop in the order in which requests
// stop needing them.
package app

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/service"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/listener/decisionapi"
	"fairlead.dev/services/endpoint-picker/internal/listener/extproc"
	"fairlead.dev/services/endpoint-picker/internal/listener/grpcserver"
	"fairlead.dev/services/endpoint-picker/internal/listener/httpproxy"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/pools"
	"fairlead.dev/services/endpoint-picker/internal/replicas"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/debugpage"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/tracing"
)

const name = "endpoint-picker"

// extProcListener and healthListener distinguish two servers of the same type.
type (
	extProcListener struct{ *grpcserver.Server }
	healthListener  struct{ *grpcserver.Server }
)

// parts contains all parts. Run requests them from the container.
type parts struct {
	dig.In

	Config   *config.Config
	Log      *zap.Logger
	Clock    clock.Clock // of the delay of a drain
	Pools    *pools.Registry
	Replicas *replicas.Node      // nil if replicas tell each other nothing
	State    *replicas.StateFile // nil if the next process knows nothing
	Events   *pools.Events
	Request  request.Options
	Reloader *reload.Reloader
	ExtProc  *extproc.Server
	Decision *decisionapi.Server
	Health   *grpcserver.HealthServer
	Tracer   *tracing.Tracer
	Recorder *recorder.Recorder // nil without a recording

	Certificates    *certificates
	HTTP            *httpserver.Server
	ExtProcListener extProcListener
	HealthListener  healthListener
	Proxy           *httpproxy.Server
}

// constructors returns what creates every part of the picker.
func constructors(cfg *config.Config, log *zap.Logger) []any {
	return []any{
		// Inputs.
		func() (*config.Config, *zap.Logger) { return cfg, log },
		func() (clock.RealClock, clock.Clock) { return clock.RealClock{}, clock.RealClock{} },

		// Metrics, traces, recordings and debug pages.
		service.NewRegistry,
		newTracer,
		newRecorder,
		newDebugPage,

		// The configuration of the plugins.
		newClients,
		func(c *clients, log *zap.Logger, now clock.RealClock) *pools.Events {
			return pools.NewEvents(c.Core, log, now)
		},
		func(r *prometheus.Registry) *metrics.Config { return metrics.NewConfig(r) },
		newReloader,

		// The pools.
		newReplicaNode,
		newStateFile,
		newPools,

		// Servers for gateways, probes and Prometheus.
		newCertificates,
		newProtection,
		newLedger,
		newRequestOptions,
		newExtProc,
		newDecision,
		newProxy,
		newHealth,
		newExtProcListener,
		newHealthListener,
		newHTTPServer,
	}
}

// newParts creates every part, and starts none.
func newParts(cfg *config.Config, log *zap.Logger) (*parts, error) {
	return service.Assemble[parts](constructors(cfg, log))
}

// printGraph writes the dependency graph of the parts in the format of Graphviz.
func printGraph(w io.Writer) error {
	return service.PrintGraph(w, constructors(config.Default(), zap.NewNop()))
}

func userAgent() string { return service.Owner(name) + "/" + version.String() }

// listenerParts are the parameters of the constructors of listeners for requests.
type listenerParts struct {
	dig.In

	Config       *config.Config
	Log          *zap.Logger
	Pools        *pools.Registry
	Request      request.Options
	Certificates *certificates
	Ledger       *limits.Ledger
	Registry     *prometheus.Registry
}

// newRequestOptions returns the options that the listeners for requests share.
func newRequestOptions(cfg *config.Config, t *tracing.Tracer, c clock.RealClock) request.Options {
	return request.Options{
		Tracer: enabledTracer(t), Now: c.Now, NewID: uuid.NewString, Wanted: &request.WantedHeaders{},
		ReportEndpoint: cfg.ExtProc.ReportEndpoint,
	}
}

func newExtProc(p listenerParts) *extproc.Server {
	cfg := p.Config.ExtProc
	return extproc.NewServer(extproc.Params{
		Options: extproc.Options{
			Options:        p.Request,
			BodyMode:       cfg.BodyMode,
			MaxRequestBody: int(cfg.MaxRequestBody),
			BodyTimeout:    cfg.BodyTimeout,
			IdleTimeout:    cfg.IdleTimeout,
			IgnoreSubset:   cfg.IgnoreSubset,
			LeaveEarly:     cfg.LeaveEarly,
			EmitScores:     cfg.EmitScores,
		},
		Log: p.Log.Named("extproc"), Pools: p.Pools,
	})
}

func newDecision(p listenerParts) *decisionapi.Server {
	cfg := p.Config
	params := decisionapi.Params{
		Options: decisionapi.Options{
			Options: p.Request, Flag: config.FlagDecisionAddress, Address: cfg.Decision.Address,
			MaxBody: int(cfg.ExtProc.MaxRequestBody), BodyTimeout: cfg.ExtProc.BodyTimeout, Timeout: cfg.Decision.Timeout,
		},
		Log: p.Log.Named("decision"), Pools: p.Pools, Ledger: p.Ledger,
	}
	if cfg.Decision.TLS {
		params.Options.TLS = p.Certificates.forGateways()
	}
	if !cfg.Decision.IsEnabled() {
		return decisionapi.New(params)
	}
	params.Observer = metrics.NewDecisions(p.Registry)
	server := decisionapi.New(params)
	metrics.RegisterDecisions(p.Registry, server.PickStats)
	return server
}

func newProxy(p listenerParts) *httpproxy.Server {
	cfg := p.Config
	server := httpproxy.New(httpproxy.Params{
		Options: httpproxy.Options{
			Options:        p.Request,
			Address:        cfg.Proxy.Address,
			SharePort:      len(cfg.Pool.Servers.URLs) > 0, // one process on a machine: nothing else bridges its restart
			TLS:            p.Certificates.forProxy(cfg.Proxy),
			MaxRequestBody: int(cfg.ExtProc.MaxRequestBody),
			BodyTimeout:    cfg.ExtProc.BodyTimeout,
			IdleTimeout:    cfg.ExtProc.IdleTimeout,
			SendTimeout:    replyTimeout,
			Forwarded:      cfg.Proxy.Forwarded,
			MaxServerConns: cfg.Proxy.MaxServerConns,
			MaxAttempts:    cfg.Proxy.MaxAttempts,
		},
		Log: p.Log.Named("proxy"), Pools: p.Pools, Ledger: p.Ledger,
	})
	if cfg.Proxy.Address != "" {
		metrics.RegisterProxy(p.Registry, server.ProxyStats)
	}
	return server
}

func newHealth(r *pools.Registry) *grpcserver.HealthServer {
	return grpcserver.NewHealthServer(r, extproc.ServiceName)
}

// replyTimeout is the time for a gateway to read a reply, and to send the rest of a message.
const replyTimeout = 30 * time.Second

// newLedger returns what the clients of all listeners for requests hold.
func newLedger(cfg *config.Config) *limits.Ledger {
	return limits.NewLedger(limits.Limits{
		Connections: grpcserver.MaxConnections, Streams: cfg.ExtProc.MaxStreams, Bytes: int(cfg.ExtProc.MaxBuffered),
	})
}

func newExtProcListener(p listenerParts, s *extproc.Server) extProcListener {
	cfg := p.Config
	options := grpcserver.Options{
		TLS: p.Certificates.forGateways(), MaxRequestBody: int(cfg.ExtProc.MaxRequestBody),
		MaxReceive: int(cfg.Messages.MaxReceive), MaxSend: int(cfg.Messages.MaxSend),
	}
	listener := grpcserver.New(grpcserver.Params{
		Log: p.Log.Named("grpc"), Flag: config.FlagGRPCPort, Port: cfg.GRPC.Port, Closed: cfg.GRPC.Closed, Ledger: p.Ledger,
		Options:        options.ServerOptions(),
		MessageTimeout: replyTimeout, SendTimeout: replyTimeout, Register: s.Register,
	})
	metrics.RegisterGateways(p.Registry, listener.GatewayStats)
	return extProcListener{listener}
}

const (
	// maxHealthStreams is the number of concurrent requests for health, which are short or watch.
	maxHealthStreams = 1000
	// maxHealthMessage is the size of a request for health, which names a service.
	maxHealthMessage = 4 << 10
	// maxHealthBytes is the memory for requests for health.
	maxHealthBytes = 16 << 20
)

func newHealthListener(cfg *config.Config, log *zap.Logger, h *grpcserver.HealthServer) healthListener {
	return healthListener{grpcserver.New(grpcserver.Params{
		Log: log.Named("grpc"), Flag: config.FlagGRPCHealthPort, Port: cfg.GRPC.HealthPort, Closed: cfg.GRPC.HealthClosed,
		Register: h.Register,
		Options:  grpcserver.Options{MaxReceive: maxHealthMessage}.ServerOptions(),
		Ledger:   limits.NewLedger(limits.Limits{Connections: grpcserver.MaxConnections, Streams: maxHealthStreams, Bytes: maxHealthBytes}),
	})}
}

// httpParts are the parameters of newHTTPServer.
type httpParts struct {
	dig.In

	Config       *config.Config
	Log          *zap.Logger
	Pools        *pools.Registry
	Health       *grpcserver.HealthServer
	Certificates *certificates
	Protection   protection
	Debug        *debugpage.Page
	Clock        clock.RealClock
}

func newHTTPServer(p httpParts) *httpserver.Server {
	handlers := p.Debug.Handlers()
	handlers[pool.HoldsPattern] = pool.NewHoldsHandler(p.Pools.PoolQueues, p.Clock)
	return httpserver.New(httpserver.Params{
		Options:  p.Config.HTTP,
		Log:      p.Log.Named("http"),
		Gatherer: newGatherer(p.Config, p.Pools),
		Handlers: handlers,
		Ready:    []httpserver.Check{{Name: "pool", Probe: func(context.Context) error { return p.Health.CheckReady() }}},
		Protect:  p.Protection,
		TLS:      p.Certificates.forMetrics(),
	})
}
