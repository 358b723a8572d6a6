package commands

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// sources holds the flags that select the configuration.
type sources struct {
	config.Sources

	file string // instead of the ConfigMap
}

func newSources() sources { return sources{Sources: config.Default().Sources} }

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

// configMaps returns the names of the ConfigMaps.
func (s *sources) configMaps() []cache.ObjectName {
	return []cache.ObjectName{cache.ObjectName(s.ConfigMap), cache.ObjectName(s.OMEConfigMap)}
}

// readConfig reads the configuration as the program does when it serves.
func (s *sources) readConfig(w *world, log io.Writer) (settings.Config, error) {
	c := settings.Config{ClusterDomain: s.ClusterDomain}
	text, err := s.configText(w)
	if err != nil {
		return c, err
	}
	var warnings []string
	if c.Document, warnings, err = settings.Parse([]byte(text)); err != nil {
		return c, err
	}
	for _, warning := range warnings {
		fmt.Fprintln(log, "configuration:", warning)
	}
	if text, found := w.ConfigMap(cache.ObjectName(s.OMEConfigMap), settings.KeyOME); found {
		c.Inherited, err = settings.ParseInherited([]byte(text), s.ClusterDomain)
	}
	return c, err
}

// configText returns the text of the configuration.
func (s *sources) configText(w *world) (string, error) {
	if s.file != "" {
		text, err := os.ReadFile(s.file)
		if err != nil {
			return "", fmt.Errorf("read configuration: %w", err)
		}
		return configFromValues(text)
	}
	if s.ConfigMap.Name == "" {
		return "", nil
	}
	text, found := w.ConfigMap(cache.ObjectName(s.ConfigMap), settings.Key)
	if !found {
		return "", fmt.Errorf("there is no ConfigMap %s with key %s: give --config or --config-map", s.ConfigMap.String(), settings.Key)
	}
	return text, nil
}

// configFromValues returns the value of key config, which contains the configuration in values of the Helm chart. Without this key, the
// text itself is the configuration.
func configFromValues(text []byte) (string, error) {
	var values map[string]any
	if yaml.Unmarshal(text, &values) != nil { // the parser of the configuration reports the problem
		return string(text), nil //nolint:nilerr // see above
	}
	switch below := values["config"].(type) {
	case nil:
		return string(text), nil
	case string:
		return below, nil
	case map[string]any:
		text, err := yaml.Marshal(below)
		if err != nil {
			return "", fmt.Errorf("read configuration: %w", err)
		}
		return string(text), nil
	}
	return "", errors.New("read configuration: config is neither an object nor a text")
}
