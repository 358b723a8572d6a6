package run

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/pkg/service"
	"fairlead.dev/pkg/version"
)

// Constructors returns constructors of what every service with an elected replica has: clock, metrics, clients of the API server, a
// recorder of Events, and the election. name is that of the service.
func Constructors(name string, log *zap.Logger, k *kube.Options, l *leader.Options) []any {
	return []any{
		func() (*zap.Logger, clock.RealClock) { return log, clock.RealClock{} },

		// Metrics.
		service.NewRegistry,
		func(r *prometheus.Registry) *controller.Metrics { return controller.NewMetrics(r) },

		// The API server.
		func() (*rest.Config, error) { return k.RESTConfig(service.Owner(name) + "/" + version.String()) },
		func(c *rest.Config) (kube.Clientset, error) { return kube.NewClientset(c) },
		func(c *rest.Config) (dynamic.Interface, error) { return dynamic.NewForConfig(c) },
		func(c kube.Clientset, now clock.RealClock) *events.Recorder {
			return events.New(events.Params{Client: c, Controller: name, Log: log, Clock: now})
		},

		// Leader election.
		func(c kube.Clientset, r *prometheus.Registry) (*leader.Elector, error) {
			return leader.New(leader.Params{Options: *l, Name: service.Owner(name), Leases: c.CoordinationV1(), Log: log, Metrics: r})
		},
	}
}
