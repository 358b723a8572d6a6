// Package app assembles the variant-autoscaler and runs it.
package app

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	clientset "fairlead.dev/pkg/client/clientset/versioned"
	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/httpserver"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/pkg/run"
	"fairlead.dev/pkg/service"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/variant-autoscaler/internal/apply"
	"fairlead.dev/services/variant-autoscaler/internal/config"
	"fairlead.dev/services/variant-autoscaler/internal/crd"
	"fairlead.dev/services/variant-autoscaler/internal/debugpage"
	"fairlead.dev/services/variant-autoscaler/internal/decisionlog"
	"fairlead.dev/services/variant-autoscaler/internal/externalscaler"
	"fairlead.dev/services/variant-autoscaler/internal/holds"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/metrics"
	"fairlead.dev/services/variant-autoscaler/internal/pass"
	"fairlead.dev/services/variant-autoscaler/internal/report"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/settings/watch"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
	"fairlead.dev/services/variant-autoscaler/internal/trigger"
)

const (
	name = "variant-autoscaler"

	// prometheusInterval is that of checks until Prometheus answers for the first time.
	prometheusInterval = 5 * time.Second
)

var errUnchecked = errors.New("not checked yet")

// parts contains the objects that Run gets from the container: all parts of the program.
type parts struct {
	dig.In

	Config    *config.Config
	Log       *zap.Logger
	Informers *informers.Informers
	Store     *watch.Store
	Events    *events.Recorder
	Passes    *pass.Passes
	Trigger   *trigger.Trigger
	Scaler    *kedaServer
	Table     *holds.Table
	Holds     *holds.Follower
	Waker     *holds.Waker
	Starter   *apply.Starter
	Queues    *holds.QueueWatcher
	Records   *decisionlog.Log
	Readiness *readiness
	Elector   *leader.Elector
	HTTP      *httpserver.Server
}

// readiness are checks that do not follow from caches.
type readiness struct{ prometheus, crd *probe }

// constructors returns what creates every part of the program.
func constructors(cfg *config.Config, log *zap.Logger) []any {
	return slices.Concat(run.Constructors(name, log, &cfg.Kube, &cfg.Leader), clusterConstructors(cfg), decisionConstructors())
}

// newParts creates every part, and starts none.
func newParts(cfg *config.Config, log *zap.Logger) (*parts, error) {
	return service.Assemble[parts](constructors(cfg, log))
}

// PrintGraph writes the dependency graph of the parts in the format of Graphviz.
func PrintGraph(w io.Writer) error {
	return service.PrintGraph(w, constructors(config.Default(os.Getenv), zap.NewNop()))
}

// clusterConstructors create the metrics, what talks to the API server, and the server for probes and scrapes.
func clusterConstructors(cfg *config.Config) []any {
	return []any{
		func() *config.Config { return cfg },

		// Metrics.
		func(r *prom.Registry, cfg *config.Config) *metrics.Metrics {
			return metrics.New(r, cfg.Instance)
		},

		// The API server.
		func(c *rest.Config) (*clientset.Clientset, error) { return clientset.NewForConfig(c) },
		func(cfg *config.Config, log *zap.Logger, c kube.Clientset, d dynamic.Interface) *informers.Informers {
			return informers.New(informers.Params{
				Params:   kit.Params{Log: log, Client: d, Discovery: c.Discovery(), Interval: cfg.Discovery},
				Instance: cfg.Instance, Endpoints: cfg.Holds.Follow,
			})
		},
		func(c kube.Clientset, now clock.RealClock) *scale.Kinds {
			return scale.NewKinds(c.Discovery(), now)
		},
		func(d dynamic.Interface, k *scale.Kinds) *scale.Reader { return scale.NewReader(d, k) },
		func(d dynamic.Interface) *informers.QueueReader { return informers.NewQueueReader(d) },
		func(d dynamic.Interface, k *scale.Kinds) *scale.Writer {
			return scale.NewWriter(d, k, service.Owner(name))
		},
		newStore,
		newReadiness,

		// The server for probes and scrapes.
		newHTTPServer,
	}
}

// decisionConstructors create what decides, and what passes decisions on.
func decisionConstructors() []any {
	return []any{
		// Decisions.
		func(cfg *config.Config, log *zap.Logger, s *watch.Store) *Prometheus {
			return NewPrometheus(cfg, log, s.Settings)
		},
		func(cfg *config.Config) (*decisionlog.Log, error) { return decisionlog.Open(cfg.Decisions, os.Stdout) },
		externalscaler.NewTable,
		func(cfg *config.Config, log *zap.Logger, now clock.RealClock) *debugpage.Page {
			return debugpage.New(debugpage.Params{Log: log, Version: version.String(),
				Lease: strings.TrimPrefix(cfg.Leader.Namespace+"/"+service.Owner(name), "/"), Clock: now})
		},
		newTargets,
		newPublisher,
		newPasses,
		newTrigger,
		newScaler,

		// Models without replicas.
		holds.NewTable,
		newFollower,
		func(log *zap.Logger, t *apply.Targets, now clock.RealClock) *apply.Starter {
			return apply.NewStarter(apply.StarterParams{Log: log.Named("wake"), Targets: t, Now: now.Now})
		},
		func(log *zap.Logger, m *metrics.Metrics, t *externalscaler.Table, h *holds.Table, passes *trigger.Trigger,
			s *apply.Starter) *holds.Waker {
			return holds.NewWaker(holds.WakerParams{
				Log: log.Named("wake"), Table: t, Waits: h, CountWakeUp: m.CountWakeUp, Enqueue: passes.Enqueue, Start: s.Start,
			})
		},
		func(log *zap.Logger, w *holds.Waker, p *Prometheus) *holds.QueueWatcher {
			return holds.NewQueueWatcher(log.Named("wake"), w, p)
		},
	}
}

func newStore(cfg *config.Config, log *zap.Logger, c kube.Clientset, e *events.Recorder, m *metrics.Metrics) *watch.Store {
	return watch.NewStore(watch.Params{
		Options: cfg.Settings(os.Getenv), Log: log, Client: c, Event: e.Event, Configured: m.Configured,
	})
}

func newReadiness(cfg *config.Config, p *Prometheus, c kube.Clientset, log *zap.Logger) *readiness {
	checker := crd.New(c.Discovery().RESTClient())
	return &readiness{
		prometheus: newProbe(p.checkAnswer, prometheusInterval, true),
		crd: newProbe(func(ctx context.Context) error {
			state, err := checker.Check(ctx)
			if err != nil || !state.Installed { // annotated objects need no CRD
				return err
			}
			if err = state.AsError(); err != nil {
				log.Error("The cluster has another version of the CRD", zap.Error(err))
			}
			return err
		}, cfg.Discovery, false),
	}
}

// publisherParts are the dependencies of newPublisher.
type publisherParts struct {
	dig.In

	Config  *config.Config
	Log     *zap.Logger
	Metrics *metrics.Metrics
	Table   *externalscaler.Table
	Page    *debugpage.Page
	Records *decisionlog.Log
	Client  *clientset.Clientset
	Events  *events.Recorder
	Targets *apply.Targets
	Starter *apply.Starter
	Clock   clock.RealClock
}

func newPublisher(p publisherParts) *report.Publisher {
	params := report.Params{
		Log: p.Log, Autoscalers: []report.Autoscaler{p.Metrics, p.Table, p.Starter}, Meter: p.Metrics, Page: p.Page,
		Record: p.Records.Write, WriteStatus: report.NewStatusWriter(p.Client.LlmdV1alpha1(), service.Owner(name)).Write,
		Event: p.Events.Event,
	}
	if p.Config.Actuator == config.ActuatorScale {
		params.Applier = apply.New(apply.Params{Log: p.Log, Targets: p.Targets, Meter: p.Metrics, Now: p.Clock.Now})
	}
	return report.New(params)
}

// passParts are the dependencies of newPasses.
type passParts struct {
	dig.In

	Config     *config.Config
	Log        *zap.Logger
	Informers  *informers.Informers
	Scales     *scale.Reader
	Queues     *informers.QueueReader
	Store      *watch.Store
	Prometheus *Prometheus
	Holds      *holds.Follower
	Publisher  *report.Publisher
	Metrics    *metrics.Metrics
	Clock      clock.RealClock
}

func newPasses(p passParts) *pass.Passes {
	return pass.New(pass.Params{
		Options: pass.Options{
			Settings: p.Config.Plan, Window: p.Config.Window, Forecast: p.Config.Forecast, Rates: p.Config.Metrics,
			Writes:  p.Config.Actuator == config.ActuatorScale,
			Limiter: p.Config.Limiter,
		}, Log: p.Log,
		World: p.Informers.Caches, Scales: p.Scales.BeginPass, LocalQueues: p.Queues.BeginPass, Waits: p.Holds,
		Configuration: p.Store.Settings, Prometheus: p.Prometheus.Collector, Publisher: p.Publisher, ObservePart: p.Metrics.ObservePart,
		Now: p.Clock.Now,
	})
}

func newTargets(cfg *config.Config, i *informers.Informers, w *scale.Writer, e *leader.Elector) *apply.Targets {
	return apply.NewTargets(apply.TargetsParams{
		WriteScale: w.Write, CheckLease: e.Check, Writes: cfg.Actuator == config.ActuatorScale, WakeIdle: cfg.WakeIdle,
		Ownership: func(namespace string, t snapshot.Target) sources.Ownership {
			return sources.OwnershipOf(i.Caches, namespace, t)
		},
	})
}

func newFollower(cfg *config.Config, log *zap.Logger, m *metrics.Metrics, t *holds.Table, i *informers.Informers) *holds.Follower {
	return holds.NewFollower(holds.Params{
		Options: holds.Options{TokenFile: cfg.Holds.TokenFile, CAFile: cfg.Holds.CAFile}, Log: log.Named("holds"), Table: t,
		Pools: []kit.Reader{i.InferencePools, i.AlphaInferencePools}, Endpoints: i.Endpoints, ObservePickers: m.ObservePickers,
	})
}

func newTrigger(log *zap.Logger, p *pass.Passes, i *informers.Informers, m *metrics.Metrics) *trigger.Trigger {
	return trigger.New(trigger.Params{
		Log: log, RunPass: p.RunPass, Observer: m,
		CountVariants: func() (total int, first string) { return informers.CountVariants(i.Caches) },
	})
}

// serverParts are the dependencies of newHTTPServer.
type serverParts struct {
	dig.In

	Config    *config.Config
	Log       *zap.Logger
	Informers *informers.Informers
	Store     *watch.Store
	Readiness *readiness
	Registry  *prom.Registry
	Page      *debugpage.Page
}

func newHTTPServer(p serverParts) *httpserver.Server {
	return httpserver.New(httpserver.Params{
		Options: p.Config.HTTP, Log: p.Log, Gatherer: p.Registry, Handlers: p.Page.Handlers(),
		Ready: []httpserver.Check{
			{Name: "caches", Probe: run.Synced(p.Store, p.Informers)}, {Name: "crd", Probe: p.Readiness.crd.lastResult},
			{Name: "prometheus", Probe: p.Readiness.prometheus.lastResult},
		},
	})
}
