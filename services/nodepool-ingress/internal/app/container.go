// Package app assembles the program and runs it.
package app

import (
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/pkg/run"
	"fairlead.dev/pkg/version"
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

// newContainer returns a container that can create every part.
func newContainer(cfg *config.Config, log *zap.Logger, opts ...dig.Option) (*dig.Container, error) {
	c := dig.New(opts...)
	for _, constructor := range []any{
		// Configuration and clock.
		func() (*config.Config, *zap.Logger) { return cfg, log },
		func() clock.RealClock { return clock.RealClock{} },

		// Metrics.
		newRegistry,
		func(r *prometheus.Registry) *metrics.Metrics { return metrics.New(r) },
		func(r *prometheus.Registry) *controller.Metrics { return controller.NewMetrics(r) },

		// The API server.
		func(c *config.Config) (*rest.Config, error) {
			return c.Kube.RESTConfig("fairlead-" + name + "/" + version.String())
		},
		func(c *rest.Config) (kube.Clientset, error) { return kube.NewClientset(c) },
		func(c *rest.Config) (dynamic.Interface, error) { return dynamic.NewForConfig(c) },
		func(c kube.Clientset, log *zap.Logger, now clock.RealClock) *events.Recorder {
			return events.New(events.Params{Client: c, Controller: name, Log: log, Clock: now})
		},

		// Informers.
		func(cfg *config.Config, log *zap.Logger, c kube.Clientset, d dynamic.Interface) *informers.Informers {
			return informers.New(informers.Params{
				Options: cfg.Policy.Informers(), Log: log, Client: d, Discovery: c.Discovery(), Interval: cfg.Discovery,
			})
		},

		// The reconciler.
		func(cfg *config.Config, i *informers.Informers) *observe.Observer {
			return observe.New(i.Caches(), cfg.Policy.Plan())
		},
		func() *run.Queue { return &run.Queue{} },
		func(c dynamic.Interface) *apply.Applier { return apply.New(c, v1alpha1.Manager) },
		func(cfg *config.Config, c dynamic.Interface) *reconciler.Writer {
			return reconciler.NewWriter(c, cfg.Policy.Namespace)
		},
		newReconciler,

		// Leader election, and the server for probes and Prometheus.
		newElector,
		newHTTPServer,
	} {
		if err := c.Provide(constructor); err != nil {
			return nil, fmt.Errorf("provide to container: %w", err)
		}
	}
	return c, nil
}

// newParts creates every part, and starts none.
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

// PrintGraph writes the dependency graph of the parts in the format of Graphviz.
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

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
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
		Observer: p.Observer, Applier: p.Applier, Writer: p.Writer, Recorder: p.Events, Meter: p.Metrics, Enqueue: p.Queue.Enqueue, Clock: p.Clock,
	})
}

func newElector(cfg *config.Config, log *zap.Logger, c kube.Clientset, r *prometheus.Registry) (*leader.Elector, error) {
	return leader.New(leader.Params{Options: cfg.Leader, Name: "fairlead-" + name, Leases: c.CoordinationV1(), Log: log, Metrics: r})
}

func newHTTPServer(cfg *config.Config, log *zap.Logger, i *informers.Informers, r *prometheus.Registry) *httpserver.Server {
	return httpserver.New(httpserver.Params{
		Options: cfg.HTTP, Log: log, Gatherer: r,
		Ready: []httpserver.Check{{Name: "caches", Probe: run.Synced(i)}},
	})
}
