// Package app puts the picker together and runs it: everything starts at once, and ends in the order in which a
// request needs it least.
package app

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	inferenceclient "sigs.k8s.io/gateway-api-inference-extension/client-go/clientset/versioned"

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
	"fairlead.dev/services/endpoint-picker/internal/informers"
	"fairlead.dev/services/endpoint-picker/internal/metrics"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/internal/tracing"
)

// kindPollInterval is how soon the kind of the pool is noticed when it is installed after the picker.
const kindPollInterval = 10 * time.Second

// prefixIndexBytes is what the index of prefixes may take.
const prefixIndexBytes = 24 << 20

// extProcListener and healthListener tell two servers of one type apart.
type (
	extProcListener struct{ *grpcserver.Server }
	healthListener  struct{ *grpcserver.Server }
)

// parts are what Run asks the container for: everything.
type parts struct {
	dig.In

	Config    *config.Config
	Log       *zap.Logger
	Informers *informers.Informers
	Store     *datastore.Store
	Scraper   *modelserver.Scraper
	ExtProc   *extproc.Server
	Health    *health.Server
	Endpoints *metrics.EndpointCollector
	Pool      *metrics.PoolCollector
	Tracer    *tracing.Tracer

	HTTP            *httpserver.Server
	ExtProcListener extProcListener
	HealthListener  healthListener
}

// newContainer returns a container that can make every part of the picker.
func newContainer(cfg *config.Config, log *zap.Logger, opts ...dig.Option) (*dig.Container, error) {
	c := dig.New(opts...)
	for _, constructor := range []any{
		// What is given.
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

		// The cluster.
		func(cfg *config.Config) (*rest.Config, error) { return cfg.Kube.RESTConfig(userAgent()) },
		kubernetes.NewForConfig,
		inferenceclient.NewForConfig,
		newInformers,
		newStore,

		// Model servers.
		newScraper,

		// The pick.
		predict.NewLearner,
		func() *prefix.Index { return prefix.NewIndex(prefixIndexBytes) },
		endpoint.NewFactory,
		newBalancer,

		// What gateways, probes and Prometheus connect to.
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

// newParts makes every part. Nothing of it runs yet.
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

// PrintGraph writes how the parts depend on each other, for Graphviz.
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

func newInformers(cfg *config.Config, log *zap.Logger, core *kubernetes.Clientset, inference *inferenceclient.Clientset) *informers.Informers {
	return informers.New(informers.Params{
		Log: log.Named("informers"), Core: core, Inference: inference, Pool: cfg.Pool.Name, PollInterval: kindPollInterval,
	})
}

// storeParts are what newStore needs.
type storeParts struct {
	dig.In

	Config    *config.Config
	Log       *zap.Logger
	Informers *informers.Informers
	Factory   *endpoint.Factory
	Scraper   *modelserver.Scraper
	Clock     clock.RealClock
}

func newStore(p storeParts) (*datastore.Store, error) {
	s := datastore.New(datastore.Params{
		Log: p.Log.Named("datastore"), Pool: p.Config.Pool.Name.String(), Source: p.Informers, Factory: p.Factory,
		Observer: p.Scraper, Clock: p.Clock,
	})
	return s, p.Informers.OnChange(s.Changed)
}

func newScraper(cfg *config.Config, log *zap.Logger, m *metrics.Metrics, c clock.RealClock) *modelserver.Scraper {
	return modelserver.NewScraper(modelserver.ScraperParams{Options: cfg.Scraping, Log: log.Named("modelserver"), Observer: m, Clock: c})
}

// balancerParts are what newBalancer needs.
type balancerParts struct {
	dig.In

	Config   *config.Config
	Store    *datastore.Store
	Learner  *predict.Learner
	Prefixes *prefix.Index
	Metrics  *metrics.Metrics
	Clock    clock.RealClock
}

func newBalancer(p balancerParts) *balancer.Balancer {
	return balancer.New(balancer.Params{
		Snapshots: p.Store,
		Learner:   p.Learner,
		Prefixes:  p.Prefixes,
		Profile:   scheduling.SoonestFirst(scheduling.StalenessFilter{After: p.Config.Scraping.StaleAfter}),
		Observer:  p.Metrics,
		Clock:     p.Clock,
		Random:    rand.Uint64,
	})
}

func newExtProc(cfg *config.Config, log *zap.Logger, b *balancer.Balancer, o *observers, c clock.RealClock) *extproc.Server {
	return extproc.NewServer(extproc.Params{
		Options: extproc.Options{
			BodyMode:       cfg.ExtProc.BodyMode,
			MaxRequestBody: int(cfg.ExtProc.MaxRequestBody),
			ReportEndpoint: cfg.ExtProc.ReportEndpoint,
			IgnoreSubset:   cfg.ExtProc.IgnoreSubset,
		},
		Log: log.Named("extproc"), Picker: b, Observer: o, Clock: c,
	})
}

func newHealth(s *datastore.Store) *health.Server { return health.NewServer(s, extproc.ServiceName) }

func newExtProcListener(cfg *config.Config, log *zap.Logger, s *extproc.Server) (extProcListener, error) {
	secured := grpcserver.Options{
		Secure: cfg.GRPC.Secure, CertPath: cfg.GRPC.CertPath, MaxRequestBody: int(cfg.ExtProc.MaxRequestBody),
	}
	options, err := secured.ServerOptions()
	if err != nil {
		return extProcListener{}, fmt.Errorf("prepare ext_proc server: %w", err)
	}
	return extProcListener{newListener(log, config.FlagGRPCPort, cfg.GRPC.Port, s, append(options, s.ServerOption())...)}, nil
}

func newHealthListener(cfg *config.Config, log *zap.Logger, h *health.Server) healthListener {
	return healthListener{newListener(log, config.FlagGRPCHealthPort, cfg.GRPC.HealthPort, h)}
}

func newListener(log *zap.Logger, flag string, port int, s grpcserver.Service, options ...grpc.ServerOption) *grpcserver.Server {
	return grpcserver.New(grpcserver.Params{Log: log.Named("grpc"), Flag: flag, Port: port, Options: options, Service: s})
}

func newHTTPServer(cfg *config.Config, log *zap.Logger, r *prometheus.Registry, h *health.Server, p *debugpage.Page) *httpserver.Server {
	return httpserver.New(httpserver.Params{
		Options:  cfg.HTTP,
		Log:      log.Named("http"),
		Gatherer: newGatherer(cfg, r),
		Handlers: p.Handlers(),
		Ready:    []httpserver.Check{{Name: "pool", Probe: func(context.Context) error { return h.Ready() }}},
	})
}
