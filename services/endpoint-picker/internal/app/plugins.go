package app

import (
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
	"fairlead.dev/services/endpoint-picker/internal/pools"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
)

// reloaderParts are the parameters of newReloader.
type reloaderParts struct {
	dig.In

	Config  *config.Config
	Log     *zap.Logger
	Clients *clients
	Metrics *metrics.Config
	Events  *pools.Events
}

func newReloader(p reloaderParts) *reload.Reloader {
	servers := p.Config.Pool.Servers.TLS()
	return reload.New(reload.Params{
		Source:   configSource(p.Config, p.Clients.Core),
		Files:    servers.Files(),
		Options:  configOptions(p.Config),
		Log:      p.Log.Named("reload"),
		Observer: p.Metrics,
		Reporter: p.Events,
	})
}

// configSource returns the source of the configuration that the flags name, or nil.
func configSource(cfg *config.Config, core kube.Clientset) reload.Source {
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
