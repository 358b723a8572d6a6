package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	inferenceclient "sigs.k8s.io/gateway-api-inference-extension/client-go/clientset/versioned"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
	"fairlead.dev/services/endpoint-picker/internal/pools"
	"fairlead.dev/services/endpoint-picker/internal/replicas"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/tracing"
)

// clients are the clients of the cluster. All are nil without a cluster.
type clients struct {
	pools.Clients

	config *rest.Config
}

// newClients creates no client, and reads no kubeconfig, when the endpoints come from a file or from URLs.
func newClients(cfg *config.Config) (*clients, error) {
	if cfg.Pool.IsLocal() {
		return &clients{}, nil
	}
	restConfig, err := cfg.Kube.RESTConfig(userAgent())
	if err != nil {
		return nil, err
	}
	created := &clients{config: restConfig}
	if created.Core, err = kube.NewClientset(restConfig); err != nil {
		return nil, err
	}
	if created.Inference, err = inferenceclient.NewForConfig(restConfig); err != nil {
		return nil, err
	}
	if created.Dynamic, err = dynamic.NewForConfig(restConfig); err != nil {
		return nil, err
	}
	return created, nil
}

// poolParts are the parameters of newPools.
type poolParts struct {
	dig.In

	Config   *config.Config
	Log      *zap.Logger
	Clock    clock.RealClock
	Registry *prometheus.Registry
	Clients  *clients
	Events   *pools.Events
	Reloader *reload.Reloader
	Tracer   *tracing.Tracer
	Recorder *recorder.Recorder  // nil without a recording
	Replicas *replicas.Node      // nil if replicas tell each other nothing
	State    *replicas.StateFile // nil if the next process knows nothing
}

func newPools(p poolParts) (*pools.Registry, error) {
	return pools.New(pools.Params{
		Config: p.Config, Log: p.Log, Clock: p.Clock, Registry: p.Registry, Clients: p.Clients.Clients, Events: p.Events,
		Plugins: p.Reloader.Current,
		Tracer:  p.Tracer, Recorder: p.Recorder, Replicas: p.Replicas, State: p.State,
	})
}
