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
	from := &p.Config.Sources
	made := &configMaps{Source: settings.Source{Name: from.ConfigMap.String(), ClusterDomain: from.ClusterDomain}}
	if from.ConfigMap.Name != "" {
		store := configmap.NewStore(configmap.Params[*settings.Document]{
			Log: p.Log, Client: p.Client, Name: cache.ObjectName(from.ConfigMap), Key: settings.Key, Decode: settings.Parse,
			Recorder: p.Events, Observer: p.Metrics,
		})
		made.Document, made.stores = store, append(made.stores, store)
	}
	if from.OMEConfigMap.Name != "" {
		decode := func(text []byte) (*settings.Inherited, []string, error) {
			inherited, err := settings.ParseInherited(text, from.ClusterDomain)
			return inherited, nil, err
		}
		store := configmap.NewStore(configmap.Params[*settings.Inherited]{
			Log: p.Log, Client: p.Client, Name: cache.ObjectName(from.OMEConfigMap), Key: settings.KeyOME, Decode: decode,
			Recorder: p.Events, Observer: p.Metrics,
		})
		made.Inherited, made.stores = store, append(made.stores, store)
	}
	return made
}

// OnChange registers f, which the stores call after each change of a ConfigMap. Call OnChange before Run.
func (c *configMaps) OnChange(f func()) {
	for _, s := range c.stores {
		s.OnChange(f)
	}
}

// Run watches until ctx ends.
func (c *configMaps) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range c.stores {
		all.Go(func() { s.Run(ctx) })
	}
	all.Wait()
}

// Unsynced returns the names of the ConfigMaps whose first read has not completed.
func (c *configMaps) Unsynced() []string {
	var names []string
	for _, s := range c.stores {
		names = append(names, s.Unsynced()...)
	}
	return names
}
