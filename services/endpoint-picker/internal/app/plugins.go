package app

import (
	"os"

	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/events"
	"fairlead.dev/services/endpoint-picker/internal/informers"
	"fairlead.dev/services/endpoint-picker/internal/metrics"
	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
	"fairlead.dev/services/endpoint-picker/internal/reload"
)

// reloaderParts are what newReloader needs.
type reloaderParts struct {
	dig.In

	Config   *config.Config
	Log      *zap.Logger
	Core     *kubernetes.Clientset
	Metrics  *metrics.Config
	Reporter *events.Reporter
	Clock    clock.RealClock
}

func newReloader(p reloaderParts) *reload.Reloader {
	return reload.New(reload.Params{
		Source:   configSource(p.Config, p.Core),
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

func newReporter(core *kubernetes.Clientset, i *informers.Informers, c clock.RealClock) *events.Reporter {
	host, _ := os.Hostname() // of a pod, its name; without one Events are of nobody
	return events.NewReporter(events.Params{Client: core, Pools: i, Instance: host, Clock: c})
}
