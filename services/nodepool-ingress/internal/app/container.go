// Package app assembles the program and runs it.
package app

import (
	"io"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/httpserver"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/pkg/run"
	"fairlead.dev/pkg/service"
	"fairlead.dev/services/nodepool-ingress/internal/config"
	reconciler "fairlead.dev/services/nodepool-ingress/internal/controller"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/metrics"
	"fairlead.dev/services/nodepool-ingress/internal/observe"
)

const name = "nodepool-ingress"

// parts contains the objects that Run gets from the container: all parts of the program.
type parts struct {
	dig.In

	Config     *config.Config
	Log        *zap.Logger
	Informers  *informers.Informers
	Events     *events.Recorder
	Reconciler *reconciler.Reconciler
	Metrics    *controller.Metrics
	Queue      *run.Queue
	Elector    *leader.Elector
	HTTP       *httpserver.Server
}

// constructors returns what creates every part of the program.
func constructors(cfg *config.Config, log *zap.Logger) []any {
	return slices.Concat(run.Constructors(name, log, &cfg.Kube, &cfg.Leader), []any{
		func() *config.Config { return cfg },

		// Metrics.
		func(r *prometheus.Registry) *metrics.Metrics { return metrics.New(r) },

		// Informers.
		func(cfg *config.Config, log *zap.Logger, c kube.Clientset, d dynamic.Interface) *informers.Informers {
			p := kit.Params{Log: log, Client: d, Discovery: c.Discovery(), Interval: cfg.Discovery}
			return informers.New(p, cfg.Policy.InformerOptions())
		},

		// The reconciler.
		func(cfg *config.Config, i *informers.Informers) *observe.Observer {
			return observe.New(i.Caches, cfg.Policy.PlanPolicy())
		},
		func() *run.Queue { return &run.Queue{} },
		func(c dynamic.Interface) *apply.Applier { return apply.New(c, v1alpha1.Manager) },
		func(cfg *config.Config, c dynamic.Interface) *reconciler.Writer {
			return reconciler.NewWriter(c, cfg.Policy.Install.Namespace)
		},
		newReconciler,

		// The server for probes and Prometheus.
		newHTTPServer,
	})
}

// newParts creates every part, and starts none.
func newParts(cfg *config.Config, log *zap.Logger) (*parts, error) {
	return service.Assemble[parts](constructors(cfg, log))
}

// PrintGraph writes the dependency graph of the parts in the format of Graphviz.
func PrintGraph(w io.Writer) error {
	return service.PrintGraph(w, constructors(config.Default(), zap.NewNop()))
}

// reconcilerParts are the dependencies of newReconciler.
type reconcilerParts struct {
	dig.In

	Observer *observe.Observer
	Applier  *apply.Applier
	Writer   *reconciler.Writer
	Events   *events.Recorder
	Metrics  *metrics.Metrics
	Queue    *run.Queue
	Clock    clock.RealClock
}

func newReconciler(p reconcilerParts) *reconciler.Reconciler {
	return reconciler.New(reconciler.Params{
		Observer: p.Observer, Applier: p.Applier, Writer: p.Writer, Recorder: p.Events, Metrics: p.Metrics, Enqueue: p.Queue.Enqueue,
		Clock: p.Clock,
	})
}

func newHTTPServer(cfg *config.Config, log *zap.Logger, i *informers.Informers, r *prometheus.Registry) *httpserver.Server {
	return httpserver.New(httpserver.Params{
		Options: cfg.HTTP, Log: log, Gatherer: r,
		Ready: []httpserver.Check{{Name: "caches", Probe: run.Synced(i)}},
	})
}
