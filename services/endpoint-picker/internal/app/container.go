// Package app assembles and runs the picker. All parts start together, and stop in the order in which requests stop needing
// them.
package app

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/endpoint-picker/internal/balancer"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/datastore"
	"fairlead.dev/services/endpoint-picker/internal/debugpage"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/extproc"
	"fairlead.dev/services/endpoint-picker/internal/grpcserver"
	"fairlead.dev/services/endpoint-picker/internal/health"
	"fairlead.dev/services/endpoint-picker/internal/metrics"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/outlier"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
	"fairlead.dev/services/endpoint-picker/internal/reload"
	"fairlead.dev/services/endpoint-picker/internal/rules"
	"fairlead.dev/services/endpoint-picker/internal/tracing"
)

// extProcListener and healthListener distinguish two servers of the same type.
type (
	extProcListener struct{ *grpcserver.Server }
	healthListener  struct{ *grpcserver.Server }
)

// parts contains all parts. Run requests them from the container.
type parts struct {
	dig.In

	Config    *config.Config
	Log       *zap.Logger
	Source    endpointSource
	Store     *datastore.Store
	RuleWatch ruleWatch
	Factory   *endpoint.Factory
	Scraper   *modelserver.Scraper
	Events    *poolEvents
	Reloader  *reload.Reloader
	Balancer  *balancer.Balancer
	ExtProc   *extproc.Server
	Health    *health.Server
	Endpoints *metrics.EndpointCollector
	Pool      *metrics.PoolCollector
	Tracer    *tracing.Tracer

	Certificates    *certificates
	HTTP            *httpserver.Server
	ExtProcListener extProcListener
	HealthListener  healthListener
}

// newContainer returns a container that can make every part of the picker.
func newContainer(cfg *config.Config, log *zap.Logger, opts ...dig.Option) (*dig.Container, error) {
	c := dig.New(opts...)
	for _, constructor := range []any{
		// Inputs.
		func() (*config.Config, *zap.Logger) { return cfg, log },
		func() clock.RealClock { return clock.RealClock{} },

		// Metrics.
		newRegistry,
		newMetrics,
		func(s *datastore.Store, c clock.RealClock, r *prometheus.Registry) *metrics.EndpointCollector {
			return metrics.NewEndpointCollector(s, c, r)
		},
		newPoolCollector,

		// Traces, logs and debug pages.
		newTracer,
		newPicks,
		newDebugPage,
		newObservers,

		// Sources of endpoints and rules.
		newClients,
		newEndpointSource,
		newStore,
		rules.New,
		newRuleWatch,
		newPoolEvents,

		// The configuration of the plugins.
		func(r *prometheus.Registry) *metrics.Config { return metrics.NewConfig(r) },
		newReloader,

		// Model servers.
		newScraper,

		// Picks.
		predict.NewLearner,
		func(c *config.Config) *prefix.Index { return prefix.NewIndex(int(c.Prefixes.MaxBytes)) },
		func() *endpoint.Traffic { return &endpoint.Traffic{} },
		endpoint.NewFactory,
		newDetector,
		newBalancer,

		// Servers for gateways, probes and Prometheus.
		newCertificates,
		newProtection,
		newExtProc,
		newHealth,
		newExtProcListener,
		newHealthListener,
		newHTTPServer,
	} {
		if err := c.Provide(constructor); err != nil {
			return nil, fmt.Errorf("provide to container: %w", err)
		}
	}
	return c, nil
}

// newParts makes every part and starts none.
func newParts(cfg *config.Config, log *zap.Logger) (*parts, error) {
	c, err := newContainer(cfg, log)
	if err != nil {
		return nil, err
	}
	var made parts
	if err := c.Invoke(func(p parts) { made = p }); err != nil {
		return nil, dig.RootCause(err)
	}
	return &made, nil
}

// PrintGraph writes the dependencies between the parts, for Graphviz.
func PrintGraph(w io.Writer) error {
	c, err := newContainer(config.Default(), zap.NewNop())
	if err != nil {
		return err
	}
	if err := dig.Visualize(c, w); err != nil {
		return fmt.Errorf("draw container: %w", err)
	}
	return nil
}

func userAgent() string { return "fairlead-endpoint-picker/" + version.String() }

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// storeParts are the parameters of newStore.
type storeParts struct {
	dig.In

	Config   *config.Config
	Log      *zap.Logger
	Source   endpointSource
	Factory  *endpoint.Factory
	Scraper  *modelserver.Scraper
	Outliers *outlier.Detector
	Clock    clock.RealClock
}

// told are the consumers of the endpoint list.
type told []interface {
	SetEndpoints(endpoints []*endpoint.Endpoint)
}

// SetEndpoints passes the endpoints to all consumers.
func (t told) SetEndpoints(endpoints []*endpoint.Endpoint) {
	for _, one := range t {
		one.SetEndpoints(endpoints)
	}
}

func newStore(p storeParts) (*datastore.Store, error) {
	s := datastore.New(datastore.Params{
		Log: p.Log.Named("datastore"), Pool: p.Config.Pool.String(), Source: p.Source, Factory: p.Factory,
		Observer: told{p.Scraper, p.Outliers}, Clock: p.Clock,
	})
	return s, p.Source.OnChange(s.Changed)
}

func newScraper(cfg *config.Config, log *zap.Logger, m *metrics.Metrics, d *outlier.Detector, c clock.RealClock) *modelserver.Scraper {
	return modelserver.NewScraper(modelserver.ScraperParams{Options: cfg.Scraping, Log: log.Named("modelserver"), Observer: m, Outliers: d, Clock: c})
}

// balancerParts are the parameters of newBalancer.
type balancerParts struct {
	dig.In

	Config   *config.Config
	Reloader *reload.Reloader
	Store    *datastore.Store
	Learner  *predict.Learner
	Prefixes *prefix.Index
	Traffic  *endpoint.Traffic
	Rules    *rules.Rules
	Outliers *outlier.Detector
	Metrics  *metrics.Metrics
	Clock    clock.RealClock
}

func newBalancer(p balancerParts) *balancer.Balancer {
	return balancer.New(balancer.Params{
		Options: balancer.Options{
			Scores: p.Config.ExtProc.EmitScores || p.Config.Telemetry.DebugPicks > 0, Explain: p.Config.ExtProc.Explain,
		},
		Snapshots: p.Store,
		Learner:   p.Learner,
		Prefixes:  p.Prefixes,
		Traffic:   p.Traffic,
		Rules:     p.Rules,
		Configs:   p.Reloader,
		Outliers:  p.Outliers,
		Observer:  p.Metrics,
		Clock:     p.Clock,
		Random:    rand.Uint64,
	})
}

func newDetector(cfg *config.Config, log *zap.Logger, m *metrics.Metrics, c clock.RealClock) *outlier.Detector {
	return outlier.New(outlier.Params{Options: cfg.Outliers, Log: log.Named("outlier"), Observer: m, Clock: c})
}

// extProcParts are the parameters of newExtProc.
type extProcParts struct {
	dig.In

	Config    *config.Config
	Log       *zap.Logger
	Balancer  *balancer.Balancer
	Observers *observers
	Tracer    *tracing.Tracer
	Registry  *prometheus.Registry
	Clock     clock.RealClock
}

func newExtProc(p extProcParts) *extproc.Server {
	cfg := p.Config
	params := extproc.Params{
		Options: extproc.Options{
			BodyMode:       cfg.ExtProc.BodyMode,
			MaxRequestBody: int(cfg.ExtProc.MaxRequestBody),
			MaxBuffered:    int(cfg.ExtProc.MaxBuffered),
			MaxStreams:     cfg.ExtProc.MaxStreams,
			BodyTimeout:    cfg.ExtProc.BodyTimeout,
			ReportEndpoint: cfg.ExtProc.ReportEndpoint,
			IgnoreSubset:   cfg.ExtProc.IgnoreSubset,
			LeaveEarly:     cfg.ExtProc.LeaveEarly,
			EmitScores:     cfg.ExtProc.EmitScores,
		},
		Log: p.Log.Named("extproc"), Picker: p.Balancer, Observer: p.Observers, Clock: p.Clock,
	}
	if p.Tracer.Enabled() {
		params.Tracer = p.Tracer
	}
	s := extproc.NewServer(params)
	metrics.RegisterBuffered(p.Registry, s.Buffered)
	return s
}

func newHealth(s *datastore.Store, w ruleWatch) *health.Server {
	return health.NewServer(readiness{store: s, rules: w}, extproc.ServiceName)
}

func newExtProcListener(cfg *config.Config, log *zap.Logger, s *extproc.Server, c *certificates) extProcListener {
	options := grpcserver.Options{
		TLS: c.forGateways(), MaxRequestBody: int(cfg.ExtProc.MaxRequestBody),
		MaxReceive: int(cfg.Messages.MaxReceive), MaxSend: int(cfg.Messages.MaxSend),
	}
	return extProcListener{newListener(log, config.FlagGRPCPort, cfg.GRPC.Port, s, append(options.ServerOptions(), s.ServerOption())...)}
}

func newHealthListener(cfg *config.Config, log *zap.Logger, h *health.Server) healthListener {
	return healthListener{newListener(log, config.FlagGRPCHealthPort, cfg.GRPC.HealthPort, h)}
}

func newListener(log *zap.Logger, flag string, port int, s grpcserver.Service, options ...grpc.ServerOption) *grpcserver.Server {
	return grpcserver.New(grpcserver.Params{Log: log.Named("grpc"), Flag: flag, Port: port, Options: options, Service: s})
}

// httpParts are the parameters of newHTTPServer.
type httpParts struct {
	dig.In

	Config       *config.Config
	Log          *zap.Logger
	Registry     *prometheus.Registry
	Health       *health.Server
	Certificates *certificates
	Protection   protection
	Debug        *debugpage.Page
}

func newHTTPServer(p httpParts) *httpserver.Server {
	return httpserver.New(httpserver.Params{
		Options:  p.Config.HTTP,
		Log:      p.Log.Named("http"),
		Gatherer: newGatherer(p.Config, p.Registry),
		Handlers: p.Debug.Handlers(),
		Ready:    []httpserver.Check{{Name: "pool", Probe: func(context.Context) error { return p.Health.Ready() }}},
		Protect:  p.Protection,
		TLS:      p.Certificates.forMetrics(),
	})
}
