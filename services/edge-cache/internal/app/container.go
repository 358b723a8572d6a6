// Package app assembles the cache and runs it.
package app

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/service"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/api"
	"fairlead.dev/services/edge-cache/internal/config"
	"fairlead.dev/services/edge-cache/internal/credentials"
	"fairlead.dev/services/edge-cache/internal/cri"
	"fairlead.dev/services/edge-cache/internal/liveaddress"
	"fairlead.dev/services/edge-cache/internal/metrics"
	"fairlead.dev/services/edge-cache/internal/nodepool"
	"fairlead.dev/services/edge-cache/internal/probe"
	"fairlead.dev/services/edge-cache/internal/references"
	"fairlead.dev/services/edge-cache/internal/responsecache"
	"fairlead.dev/services/edge-cache/internal/upstream"
)

const name = "edge-cache"

// parts contains the objects that Run gets from the container: all parts of the program.
type parts struct {
	dig.In

	Config      *config.Config
	Log         *zap.Logger
	Journal     *durableJournal
	Documents   *responsecache.Cache
	Connection  *upstream.Connection
	Pool        *nodepool.Pool
	References  *references.Index
	Adjuster    *liveaddress.Adjuster
	Caches      *caches
	Credentials *credentials.Credentials
	API         *api.Server
	HTTP        *httpserver.Server
}

// constructors returns what creates every part of the program.
func constructors(cfg *config.Config, log *zap.Logger) []any {
	return []any{
		// Configuration.
		func() (*config.Config, *zap.Logger) { return cfg, log },
		func(c *config.Config) (allowlist.List, error) {
			return allowlist.ForProfile(c.Client.Profile, c.Client.Resources)
		},
		newNamespace,

		// Metrics.
		service.NewRegistry,
		func(r *prometheus.Registry) *metrics.Metrics { return metrics.New(r) },

		// Durable state.
		openJournal,
		func(d *durableJournal) *responsecache.Cache { return responsecache.New(d) },

		// The API server.
		newRESTConfig,
		func(c *rest.Config, log *zap.Logger, m *metrics.Metrics) (*upstream.Connection, error) {
			return upstream.New(upstream.Params{Config: c, Log: log.Named("upstream"), Observer: m})
		},

		// What the controller sees.
		func(log *zap.Logger) *nodepool.Pool { return nodepool.New(log.Named("pool")) },
		newReferences,
		newAdjuster,
		newCaches,

		// The API for the controller, and the server for probes and Prometheus.
		func(cfg *config.Config) (*credentials.Credentials, error) { return credentials.Load(cfg.Data.Dir) },
		newAPI,
		newHTTPServer,
	}
}

// newParts creates every part, and starts none.
func newParts(cfg *config.Config, log *zap.Logger) (*parts, error) {
	return service.Assemble[parts](constructors(cfg, log))
}

// PrintGraph writes the dependency graph of the parts in the format of Graphviz.
func PrintGraph(w io.Writer) error {
	return service.PrintGraph(w, constructors(config.Default(), zap.NewNop()))
}

func newAdjuster(cfg *config.Config, c *upstream.Connection, log *zap.Logger) *liveaddress.Adjuster {
	p := liveaddress.Params{NodeName: cfg.Node.Name, Log: log.Named("adjust")}
	switch {
	case cfg.Node.CRISocket != "":
		p.Runtime = cri.New(cfg.Node.CRISocket)
	case cfg.Node.Probe:
		p.Prober = probe.NewProber(probe.ProberParams{Node: cfg.Node.Name, Online: c.IsOnline})
	}
	return liveaddress.New(p)
}

// namespace is the namespace of the pod.
type namespace string

func newNamespace(cfg *config.Config) (namespace, error) {
	ns, err := credentials.ReadNamespace(cfg.Client.NamespaceFile)
	return namespace(ns), err
}

func newReferences(cfg *config.Config, l allowlist.List, ns namespace, log *zap.Logger) *references.Index {
	return references.New(references.Params{
		Class: cfg.IngressClassName(), SecretFields: l.SecretFields, Namespace: string(ns), Secrets: cfg.Client.Secrets, Log: log.Named("view"),
	})
}

func newRESTConfig(cfg *config.Config) (*rest.Config, error) {
	u := cfg.Upstream
	c := &rest.Config{Host: u.Server, WrapTransport: upstream.TokenFile(u.TokenFile), TLSClientConfig: rest.TLSClientConfig{CAFile: u.CAFile}}
	if u.Kubeconfig != "" {
		var err error
		if c, err = clientcmd.BuildConfigFromFlags("", u.Kubeconfig); err != nil {
			return nil, fmt.Errorf("read --kubeconfig: %w", err)
		}
	}
	c.UserAgent = service.Owner(name) + "/" + version.String()
	return c, nil
}

// apiParts are the dependencies of newAPI.
type apiParts struct {
	dig.In

	Config      *config.Config
	Log         *zap.Logger
	Namespace   namespace
	Allow       allowlist.List
	Caches      *caches
	Credentials *credentials.Credentials
	Connection  *upstream.Connection
	Documents   *responsecache.Cache
	Metrics     *metrics.Metrics
	Pool        *nodepool.Pool
}

func newAPI(p apiParts) *api.Server {
	limits := api.DefaultLimits()
	limits.Watches = p.Config.Client.MaxWatches
	return api.New(api.Params{
		Stores: p.Caches.servedStores(), Allow: p.Allow, Namespace: string(p.Namespace), Token: p.Credentials.Token, Backend: p.Connection,
		Responses: p.Documents, Observer: p.Metrics, Log: p.Log.Named("api"), Limits: limits, CheckReady: p.Pool.CheckReady,
	})
}

func newHTTPServer(cfg *config.Config, log *zap.Logger, c *caches, d *durableJournal, r *prometheus.Registry) *httpserver.Server {
	metrics.RegisterStores(r, c.storeMetrics())
	metrics.RegisterDurability(r, d.journal.Status, c.adjuster)
	return httpserver.New(httpserver.Params{
		Options: cfg.HTTP, Log: log, Gatherer: r,
		Ready: []httpserver.Check{
			{Name: "stores", Probe: func(context.Context) error { return c.checkSynced() }},
			{Name: "pool", Probe: func(context.Context) error { return c.pool.CheckReady() }},
		},
	})
}

var _ http.Handler = (*api.Server)(nil)
