// Package app assembles the syncer and runs it.
package app

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	clientset "fairlead.dev/pkg/client/clientset/versioned"
	"fairlead.dev/pkg/configmap"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/httpserver"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/pkg/run"
	"fairlead.dev/pkg/service"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/bindings"
	"fairlead.dev/services/backendset-syncer/internal/config"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/gateways"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/metrics"
	"fairlead.dev/services/backendset-syncer/internal/observe"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/policy"
	"fairlead.dev/services/backendset-syncer/internal/readinessgate"
	"fairlead.dev/services/backendset-syncer/internal/responder"
)

const name = "backendset-syncer"

// parts contains the objects that Run gets from the container: all parts of the program.
type parts struct {
	dig.In

	Config        *config.Config
	Log           *zap.Logger
	Informers     *informers.Informers
	Configuration *configmap.Store[*policy.Document]
	Events        *events.Recorder
	Actors        *actor.Actors
	Reconciler    *bindings.Reconciler
	Gates         *readinessgate.Reconciler
	Gateways      *gateways.Reconciler
	Webhook       *readinessgate.Webhook
	Responder     *responder.Responder
	Metrics       *controller.Metrics
	Queues        *queues
	Elector       *leader.Elector
	HTTP          *httpserver.Server
}

// queues are the queues of the controllers.
type queues struct{ Bindings, Pods, Balancers run.Queue }

// constructors returns what creates every part of the program.
func constructors(cfg *config.Config, log *zap.Logger) []any {
	return slices.Concat(run.Constructors(name, log, &cfg.Kube, &cfg.Leader), []any{
		func() *config.Config { return cfg },

		// Metrics.
		func(r *prometheus.Registry) *metrics.Metrics { return metrics.New(r) },

		// The API server.
		func(c *rest.Config) (*clientset.Clientset, error) { return clientset.NewForConfig(c) },
		func(cfg *config.Config, log *zap.Logger, c kube.Clientset, d dynamic.Interface) *informers.Informers {
			return informers.New(kit.Params{Log: log, Client: d, Discovery: c.Discovery(), Interval: cfg.Discovery}, cfg.InformerOptions())
		},
		newConfiguration,
		newSource,

		// OCI.
		func(cfg *config.Config, m *metrics.Metrics, now clock.RealClock) *ociapi.Client {
			return ociapi.New(ociapi.Params{Options: cfg.OCI, Observer: m, Clock: now})
		},
		newActors,

		// The controllers.
		func() *queues { return &queues{} },
		func(i *informers.Informers) *observe.Observer { return observe.New(i.Caches) },
		newReconciler,
		newGateways,
		newGates,
		newWebhook,
		func(cfg *config.Config, m *metrics.Metrics, log *zap.Logger) *responder.Responder {
			return responder.New(cfg.Gateways.Addresses, m, log)
		},

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

// shared are the dependencies of several constructors.
type shared struct {
	dig.In

	Config    *config.Config
	Log       *zap.Logger
	Client    kube.Clientset
	Events    *events.Recorder
	Metrics   *metrics.Metrics
	Clock     clock.RealClock
	Informers *informers.Informers
	Observer  *observe.Observer
	Queues    *queues
}

// newConfiguration returns the administrator's ConfigMap.
func newConfiguration(p shared) *configmap.Store[*policy.Document] {
	return configmap.NewStore(configmap.Params[*policy.Document]{
		Log: p.Log, Client: p.Client, Name: cache.ObjectName(p.Config.ConfigMap), Key: policy.Key, Decode: policy.Parse, Recorder: p.Events,
		Observer: p.Metrics,
	})
}

func newSource(cfg *config.Config, s *configmap.Store[*policy.Document]) policy.Source {
	return func() (*policy.Document, string) {
		document, present, problem := s.Current()
		switch {
		case cfg.ConfigMap.Name == "":
			problem = "--config-map is empty"
		case !present && problem == "":
			problem = fmt.Sprintf("ConfigMap %s does not exist", cfg.ConfigMap.String())
		}
		return document, problem
	}
}

func newActors(p shared, client *ociapi.Client, elector *leader.Elector) *actor.Actors {
	toBalancers := func(key actor.Key) { p.Queues.Balancers.Enqueue(cache.ObjectName{Name: key.LoadBalancer}) }
	toBindings := bindings.OnReport(p.Informers, p.Queues.Bindings.Enqueue)
	toPods := readinessgate.OnReport(p.Informers, p.Queues.Pods.Enqueue)
	return actor.New(actor.Params{
		Client: client, Observer: p.Metrics, Clock: p.Clock, Log: p.Log.Named("actor"), Verify: p.Config.Verify,
		MayWrite: elector.Check, Occupants: p.Observer.FindOccupants,
		Changed: func(key actor.Key) { toBindings(key); toPods(key); toBalancers(key) }, Jitter: rand.Float64,
	})
}

func newReconciler(p shared, actors *actor.Actors, s policy.Source, client *clientset.Clientset) *bindings.Reconciler {
	return bindings.New(bindings.Params{
		Caches: p.Informers.Caches, Actors: actors, Configuration: s, Records: p.Config.RecordNamespace(),
		Client: client.FairleadV1alpha1(), Owner: service.Owner(name), Reasons: p.Metrics.Bindings, Recorder: p.Events,
		Enqueue: p.Queues.Bindings.Enqueue, Clock: p.Clock,
	})
}

func newGateways(p shared, actors *actor.Actors, s policy.Source, client dynamic.Interface) *gateways.Reconciler {
	caches, namespace := p.Informers.Caches, p.Config.RecordNamespace()
	var wake func(cache.ObjectName)
	if p.Config.Gates.Enabled {
		wake = p.Queues.Pods.Enqueue
	}
	return gateways.New(gateways.Params{
		Planner: gatewayplan.NewPlanner(caches, s, p.Config.PlannerOptions()), Caches: caches, Actors: actors,
		Records: lbrecord.NewStore(p.Client.CoreV1(), namespace, service.Owner(name)),
		Writer:  gateways.NewWriter(client, service.Owner(name)), Recorder: p.Events, Meter: p.Metrics,
		Enqueue: p.Queues.Balancers.Enqueue, Clock: p.Clock, WakePod: wake, Namespace: namespace, OKE: p.Config.Gateways.OKE,
	})
}

func newGates(p shared, actors *actor.Actors, routes *gateways.Reconciler) *readinessgate.Reconciler {
	return readinessgate.New(readinessgate.Params{
		Observer: p.Observer, SetsOf: routes.SetsOf, Report: actors.BackendSetReport, Pods: p.Client.CoreV1(),
		Timeout: p.Config.Gates.Timeout, Clock: p.Clock,
	})
}

func newWebhook(cfg *config.Config, log *zap.Logger, m *metrics.Metrics, r *prometheus.Registry) *readinessgate.Webhook {
	w := readinessgate.NewWebhook(cfg.Gates.Webhook, cfg.Gates.Certificates, m, log)
	if cfg.Gates.Webhook != "" {
		metrics.WatchCertificate(r, w.CertificateExpiry)
	}
	return w
}

func newHTTPServer(
	cfg *config.Config, log *zap.Logger, i *informers.Informers, s *configmap.Store[*policy.Document], r *prometheus.Registry,
) *httpserver.Server {
	return httpserver.New(httpserver.Params{
		Options: cfg.HTTP, Log: log, Gatherer: r,
		Ready: []httpserver.Check{{Name: "caches", Probe: run.Synced(s, i)}},
	})
}
