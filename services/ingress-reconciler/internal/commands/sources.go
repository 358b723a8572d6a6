package commands

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// sources holds the flags that select the configuration.
type sources struct {
	config.Sources

	file string // instead of the ConfigMap
}

func (s *sources) addFlags(fs *pflag.FlagSet) {
	s.AddFlags(fs)
	fs.StringVar(&s.file, "config", "",
		"File with the configuration instead of --config-map, or with values of the Helm chart, which have the configuration below config.")
}

func (s *sources) validate() error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	return nil
}

// readCluster lists all objects that plans depend on, and the ConfigMaps.
func (s *sources) readCluster(ctx context.Context, client dynamic.Interface) (*dryrun.World, error) {
	kinds := informers.Declare(s.Kinds).EnabledKinds()
	return dryrun.ReadCluster(ctx, client, kinds, cache.ObjectName(s.ConfigMap), cache.ObjectName(s.OMEConfigMap))
}

// readConfig reads the configuration as the program does when it serves.
func (s *sources) readConfig(w *dryrun.World) (settings.Config, error) {
	c := settings.Config{ClusterDomain: s.ClusterDomain}
	var err error
	if c.Document, err = s.readDocument(w); err != nil {
		return c, err
	}
	if text, found := w.ConfigMap(cache.ObjectName(s.OMEConfigMap), settings.KeyOME); found {
		c.Inherited, err = settings.ParseInherited([]byte(text), s.ClusterDomain)
	}
	return c, err
}

// readDocument reads the file or the ConfigMap with the configuration.
func (s *sources) readDocument(w *dryrun.World) (*settings.Document, error) {
	if s.file != "" {
		text, err := os.ReadFile(s.file)
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		return settings.ParseFile(text)
	}
	if s.ConfigMap.Name == "" {
		return &settings.Document{}, nil
	}
	text, found := w.ConfigMap(cache.ObjectName(s.ConfigMap), settings.Key)
	if !found {
		return nil, fmt.Errorf("there is no ConfigMap %s with key %s: give --config or --config-map", s.ConfigMap.String(), settings.Key)
	}
	return settings.Parse([]byte(text))
}
