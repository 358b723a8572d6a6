package app

import (
	"context"
	"sync"

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

// configMaps watches the ConfigMaps that the flags name: the ConfigMap of this program, and OME's, which this program never writes.
type configMaps struct {
	settings.Source

	stores []interface {
		Run(ctx context.Context)
		Unsynced() []string
		OnChange(f func())
	}
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
	watched := &configMaps{Source: settings.Source{Name: sources.ConfigMap.String(), ClusterDomain: sources.ClusterDomain}}
	if sources.ConfigMap.Name != "" {
		store := configmap.NewStore(configmap.Params[*settings.Document]{
			Log: p.Log, Client: p.Client, Name: cache.ObjectName(sources.ConfigMap), Key: settings.Key,
			Decode: settings.Parse, Recorder: p.Events, Observer: p.Metrics,
		})
		watched.Document, watched.stores = store, append(watched.stores, store)
	}
	if sources.OMEConfigMap.Name != "" {
		decode := func(text []byte) (*settings.Inherited, error) {
			return settings.ParseInherited(text, sources.ClusterDomain)
		}
		store := configmap.NewStore(configmap.Params[*settings.Inherited]{
			Log: p.Log, Client: p.Client, Name: cache.ObjectName(sources.OMEConfigMap), Key: settings.KeyOME, Decode: decode,
			Recorder: p.Events, Observer: p.Metrics,
		})
		watched.Inherited, watched.stores = store, append(watched.stores, store)
	}
	return watched
}

// OnChange registers f, which the stores call after each change of a ConfigMap. Call OnChange before Run.
func (c *configMaps) OnChange(f func()) {
	for _, s := range c.stores {
		s.OnChange(f)
	}
}

// Run watches until ctx ends.
func (c *configMaps) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, s := range c.stores {
		group.Go(func() { s.Run(ctx) })
	}
	group.Wait()
}

// Unsynced returns the names of the ConfigMaps whose first read has not completed.
func (c *configMaps) Unsynced() []string {
	var names []string
	for _, s := range c.stores {
		names = append(names, s.Unsynced()...)
	}
	return names
}
