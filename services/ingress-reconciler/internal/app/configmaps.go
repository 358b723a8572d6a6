package app

import (
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/configmap"
	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/metrics"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// configMaps are the ConfigMaps that the flags name: the ConfigMap of this program, and OME's, which this program never writes.
type configMaps struct {
	settings.Source

	own *configmap.Store[*settings.Document]
	ome *configmap.Store[*settings.Inherited]
}

// configMapParts are the dependencies of newConfigMaps.
type configMapParts struct {
	dig.In

	Config  *config.Config
	Log     *zap.Logger
	Client  kube.Clientset
	Events  *events.Recorder
	Metrics *metrics.Metrics
}

func newConfigMaps(p configMapParts) *configMaps {
	sources := &p.Config.Sources
	own := configmap.NewStore(configmap.Params[*settings.Document]{
		Log: p.Log, Client: p.Client, Name: cache.ObjectName(sources.ConfigMap), Key: settings.Key, Decode: settings.Parse,
		Recorder: p.Events, Observer: p.Metrics,
	})
	ome := configmap.NewStore(configmap.Params[*settings.Inherited]{
		Log: p.Log, Client: p.Client, Name: cache.ObjectName(sources.OMEConfigMap), Key: settings.KeyOME,
		Decode: func(text []byte) (*settings.Inherited, error) {
			return settings.ParseInherited(text, sources.ClusterDomain)
		},
		Recorder: p.Events, Observer: p.Metrics,
	})
	return &configMaps{own: own, ome: ome, Source: settings.Source{
		Document: own, Name: sources.ConfigMap.String(), Inherited: ome, ClusterDomain: sources.ClusterDomain,
	}}
}
