package app

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	inferenceclient "sigs.k8s.io/gateway-api-inference-extension/client-go/clientset/versioned"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/datastore"
	"fairlead.dev/services/endpoint-picker/internal/endpointsfile"
	"fairlead.dev/services/endpoint-picker/internal/informers"
	"fairlead.dev/services/endpoint-picker/internal/metrics"
	"fairlead.dev/services/endpoint-picker/internal/podset"
	"fairlead.dev/services/endpoint-picker/internal/rules"
)

const (
	// kindPollInterval is the interval of checks for the kind of the pool, which may be installed after the picker starts.
	kindPollInterval = 10 * time.Second
	// rulePollInterval is the same for objectives and rewrites, which most clusters do not have.
	rulePollInterval = 30 * time.Second
	// rulePatience is the maximum time that objectives and rewrites keep the picker unready.
	rulePatience = 10 * time.Second
)

// clients are the clients of the cluster. All are nil without a cluster.
type clients struct {
	config    *rest.Config
	core      kube.Clientset
	inference inferenceclient.Interface
	dynamic   dynamic.Interface
}

// newClients creates no client, and reads no kubeconfig, when a file contains the endpoints.
func newClients(cfg *config.Config) (*clients, error) {
	if cfg.Pool.File != "" {
		return &clients{}, nil
	}
	restConfig, err := cfg.Kube.RESTConfig(userAgent())
	if err != nil {
		return nil, err
	}
	made := &clients{config: restConfig}
	if made.core, err = kube.NewClientset(restConfig); err != nil {
		return nil, err
	}
	if made.inference, err = inferenceclient.NewForConfig(restConfig); err != nil {
		return nil, err
	}
	if made.dynamic, err = dynamic.NewForConfig(restConfig); err != nil {
		return nil, err
	}
	return made, nil
}

// endpointSource provides the endpoints: informers or a file.
type endpointSource interface {
	Pool() (*datastore.Pool, error)
	WaitForSync(ctx context.Context) bool
	OnChange(changed func()) error
	Run(ctx context.Context)
}

// discoveryParts are the parameters of newEndpointSource and newRuleWatch.
type discoveryParts struct {
	dig.In

	Config   *config.Config
	Log      *zap.Logger
	Clients  *clients
	Registry *prometheus.Registry
	Metrics  *metrics.Metrics
}

// newEndpointSource returns the configured source.
func newEndpointSource(p discoveryParts) (endpointSource, error) {
	pool := p.Config.Pool
	if pool.File != "" {
		return endpointsfile.New(endpointsfile.Params{
			Log: p.Log.Named("endpointsfile"), Path: pool.File, Once: pool.Once, Observer: metrics.NewEndpointsFile(p.Registry),
		})
	}
	log := p.Log.Named("informers")
	pods := informers.NewPods(p.Clients.core, pool.Name.Namespace)
	if pool.Selector.Selector != nil {
		selection := podset.Selection{Selector: pool.Selector.Selector, Ports: pool.TargetPorts}
		return &clusterSource{Informers: informers.NewFixed(log, pods, selection), pods: pods}, nil
	}
	return &clusterSource{pods: pods, Informers: informers.NewPool(informers.PoolParams{
		Log: log, Pods: pods, Discovery: p.Clients.core.Discovery(), Inference: p.Clients.inference, Pool: pool.Name,
		PollInterval: kindPollInterval,
	})}, nil
}

// clusterSource is a pool with its own cache of pods.
type clusterSource struct {
	*informers.Informers

	pods *informers.Pods
}

// Run watches until ctx ends.
func (c *clusterSource) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.pods.Run(ctx) })
	c.Informers.Run(ctx)
	running.Wait()
}

// ruleWatch maintains the rules of the pool.
type ruleWatch interface {
	Ready() error
	Run(ctx context.Context)
}

// newRuleWatch watches nothing without an InferencePool, because objectives and rewrites refer to one.
func newRuleWatch(p discoveryParts, r *rules.Rules) ruleWatch {
	if p.Config.Pool.Name.Name == "" {
		return noRules{}
	}
	return informers.NewRules(informers.RulesParams{
		Log: p.Log.Named("rules"), Discovery: p.Clients.core.Discovery(), Dynamic: p.Clients.dynamic, Pool: p.Config.Pool.Name,
		Rules: r, Observer: metrics.NewRules(p.Registry), Models: p.Metrics.Pin, Patience: rulePatience, PollInterval: rulePollInterval,
	})
}

// noRules watches nothing.
type noRules struct{}

func (noRules) Ready() error { return nil }

func (noRules) Run(context.Context) {}

// readiness combines the readiness of all parts that a request needs.
type readiness struct {
	store *datastore.Store
	rules ruleWatch
}

// Ready returns an error for the parts that are not ready.
func (r readiness) Ready() error {
	if err := r.store.Ready(); err != nil {
		return err
	}
	return r.rules.Ready()
}
