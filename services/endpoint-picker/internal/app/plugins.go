package app

import (
	"context"
	"os"

	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/events"
	"fairlead.dev/services/endpoint-picker/internal/metrics"
	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
	"fairlead.dev/services/endpoint-picker/internal/reload"
)

// reloaderParts are what newReloader needs.
type reloaderParts struct {
	dig.In

	Config   *config.Config
	Log      *zap.Logger
	Clients  *clients
	Metrics  *metrics.Config
	Reporter eventReporter
	Clock    clock.RealClock
}

func newReloader(p reloaderParts) *reload.Reloader {
	return reload.New(reload.Params{
		Source:   configSource(p.Config, p.Clients.core),
		Options:  pickerconfig.Options{StaleAfter: p.Config.Scraping.StaleAfter},
		Log:      p.Log.Named("reload"),
		Observer: p.Metrics,
		Reporter: p.Reporter,
		Clock:    p.Clock,
	})
}

// configSource is where the flags say that the configuration is; nil if they do not.
func configSource(cfg *config.Config, core kubernetes.Interface) reload.Source {
	switch from := cfg.Plugins; {
	case from.File != "":
		return reload.File(from.File)
	case from.Text != "":
		return reload.Text(from.Text)
	case from.Map.Name != "":
		name := from.Map.ObjectName
		if name.Namespace == "" {
			name = cache.NewObjectName(cfg.Pool.Name.Namespace, name.Name)
		}
		return reload.NewConfigMap(core, name, from.MapKey)
	}
	return nil
}

// eventReporter makes Events.
type eventReporter interface {
	Report(ctx context.Context, kind, reason, message string) error
}

// newReporter makes Events of the InferencePool; where there is none it makes none.
func newReporter(made *clients, source endpointSource, c clock.RealClock) eventReporter {
	pools, ok := source.(*clusterSource)
	if !ok || !pools.HasPool() {
		return noEvents{}
	}
	host, _ := os.Hostname() // of a pod, its name; without one Events are of nobody
	return events.NewReporter(events.Params{Client: made.core, Pools: pools, Instance: host, Clock: c})
}

// noEvents is for where there is nothing that Events could refer to.
type noEvents struct{}

func (noEvents) Report(context.Context, string, string, string) error { return nil }
