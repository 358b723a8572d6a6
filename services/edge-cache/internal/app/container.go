// Package app assembles the cache and runs it.
package app

import (
	"context"
	"fmt"
	"io"

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
	"fairlead.dev/services/edge-cache/internal/mirror"
	"fairlead.dev/services/edge-cache/internal/nodepool"
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
	Namespace   namespace
	State       *mirror.DurableState
	Connection  *upstream.Connection
	Mirror      *mirror.Mirror
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
		func(cfg *config.Config, log *zap.Logger) (*mirror.DurableState, error) {
			return mirror.OpenDurableState(cfg.Data.Dir, cfg.Data.KeyFile, log)
		},
		func(d *mirror.DurableState) *responsecache.Cache { return responsecache.New(d) },

		// The API server.
		newRESTConfig,
		func(c *rest.Config, log *zap.Logger, m *metrics.Metrics) (*upstream.Connection, error) {
			return upstream.New(upstream.Params{Config: c, Log: log.Named("upstream"), Metrics: m})
		},

		// What the controller sees.
		func(log *zap.Logger) *nodepool.Pool { return nodepool.New(log.Named("pool")) },
		newReferences,
		newAdjuster,
		newMirror,

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

func newAdjuster(cfg *config.Config, c *upstream.Connection, log *zap.Logger) (*mirror.Adjuster, error) {
	p := liveaddress.Params{NodeName: cfg.Node.Name, Log: log.Named("adjust")}
	switch {
	case cfg.Node.CRISocket != "":
		runtime, err := cri.New(cfg.Node.CRISocket)
		if err != nil {
			return nil, err
		}
		p.Runtime = runtime
	case cfg.Node.Probe:
		p.Prober = liveaddress.NewProber(liveaddress.ProberParams{Node: cfg.Node.Name, Online: c.IsOnline})
	}
	return mirror.NewAdjuster(liveaddress.New(p)), nil
}

// mirrorParts are the dependencies of newMirror.
type mirrorParts struct {
	dig.In

	Config     *config.Config
	Log        *zap.Logger
	Namespace  namespace
	Allow      allowlist.List
	State      *mirror.DurableState
	Responses  *responsecache.Cache
	Connection *upstream.Connection
	Metrics    *metrics.Metrics
	Pool       *nodepool.Pool
	References *references.Index
	Adjuster   *mirror.Adjuster
}

func newMirror(p mirrorParts) *mirror.Mirror {
	return mirror.New(mirror.Params{
		Resources: p.Allow.Resources, Namespaces: p.Config.Client.Namespaces, Namespace: string(p.Namespace), PoolConfig: p.Config.Pool,
		Journal: p.State, Responses: p.Responses, Connection: p.Connection, Metrics: p.Metrics, Pool: p.Pool, References: p.References,
		Adjuster: p.Adjuster, Log: p.Log,
	})
}

// namespace is the namespace of the pod.
type namespace string

func newNamespace(cfg *config.Config) (namespace, error) {
	ns, err := credentials.ReadNamespace(cfg.Client.NamespaceFile)
	return namespace(ns), err
}

func newReferences(cfg *config.Config, l allowlist.List, ns namespace, log *zap.Logger) *references.Index {
	return references.New(references.Params{
		Class: cfg.IngressClassName(), SecretFields: l.SecretFields, Namespace: string(ns), Secrets: cfg.Client.Secrets,
		Log: log.Named("view"),
	})
}

func newRESTConfig(cfg *config.Config) (*rest.Config, error) {
	u := cfg.Upstream
	c := &rest.Config{
		Host: u.Server, WrapTransport: upstream.TokenFile(u.TokenFile), TLSClientConfig: rest.TLSClientConfig{CAFile: u.CAFile},
	}
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
	Mirror      *mirror.Mirror
	Credentials *credentials.Credentials
	Connection  *upstream.Connection
	Responses   *responsecache.Cache
	Metrics     *metrics.Metrics
	Pool        *nodepool.Pool
}

func newAPI(p apiParts) *api.Server {
	limits := api.DefaultLimits()
	limits.Watches = p.Config.Client.MaxWatches
	return api.New(api.Params{
		Stores: p.Mirror.ServedStores(), Allow: p.Allow, Namespace: string(p.Namespace), Token: p.Credentials.Token, Backend: p.Connection,
		Responses: p.Responses, Observer: p.Metrics, Log: p.Log.Named("api"), Limits: limits, CheckReady: p.Pool.CheckReady,
	})
}

// httpParts are the dependencies of newHTTPServer.
type httpParts struct {
	dig.In

	Config   *config.Config
	Log      *zap.Logger
	Mirror   *mirror.Mirror
	State    *mirror.DurableState
	Adjuster *mirror.Adjuster
	Pool     *nodepool.Pool
	Registry *prometheus.Registry
}

func newHTTPServer(p httpParts) *httpserver.Server {
	metrics.RegisterStores(p.Registry, p.Mirror.AllStores())
	metrics.RegisterDurability(p.Registry, p.State.Status, p.Adjuster.HeldEndpoints, p.Adjuster.ReplacedAddresses)
	return httpserver.New(httpserver.Params{
		Options: p.Config.HTTP, Log: p.Log, Gatherer: p.Registry,
		Ready: []httpserver.Check{
			{Name: "stores", Probe: func(context.Context) error { return p.Mirror.CheckSynced() }},
			{Name: "pool", Probe: func(context.Context) error { return p.Pool.CheckReady() }},
		},
	})
}
