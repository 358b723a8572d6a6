package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	inferenceclient "sigs.k8s.io/gateway-api-inference-extension/client-go/clientset/versioned"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/discovery/endpointsfile"
	"fairlead.dev/services/endpoint-picker/internal/discovery/informers"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
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
	created := &clients{config: restConfig}
	if created.core, err = kube.NewClientset(restConfig); err != nil {
		return nil, err
	}
	if created.inference, err = inferenceclient.NewForConfig(restConfig); err != nil {
		return nil, err
	}
	if created.dynamic, err = dynamic.NewForConfig(restConfig); err != nil {
		return nil, err
	}
	return created, nil
}

// discoveryParts are the parameters of newFinder.
type discoveryParts struct {
	dig.In

	Config   *config.Config
	Log      *zap.Logger
	Clients  *clients
	Registry *prometheus.Registry
	Pools    *runningPools
	Events   *poolEvents
}

// newFinder returns the finder for the configured source of endpoints.
func newFinder(p discoveryParts) (finder, error) {
	switch from := p.Config.Pool; {
	case from.IsMultiPool():
		return newServedPools(p)
	case from.File != "":
		return newFilePool(p)
	default:
		return newOnePool(p)
	}
}

// newNamespace returns the caches of a namespace.
func (p discoveryParts) newNamespace(params informers.NamespaceParams) (*informers.Namespace, error) {
	params.Log, params.Core, params.PollInterval = p.Log.Named("informers"), p.Clients.core, kindPollInterval
	return informers.NewNamespace(params)
}

// newRules returns the caches of the rules in a namespace.
func (p discoveryParts) newRules(namespace string, observer *metrics.NamespaceRules) *informers.Rules {
	return informers.NewRules(informers.RulesParams{
		Log: p.Log.Named("rules"), Discovery: p.Clients.core.Discovery(), Dynamic: p.Clients.dynamic, Namespace: namespace,
		Observer: observer, Patience: rulePatience, PollInterval: rulePollInterval,
	})
}

// fileSource is the source of a file, which has no InferencePool.
type fileSource struct{ *endpointsfile.Source }

// Reference returns nothing.
func (fileSource) Reference() (corev1.ObjectReference, bool) { return corev1.ObjectReference{}, false }
