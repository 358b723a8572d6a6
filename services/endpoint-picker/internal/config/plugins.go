package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/cache"
)

const (
	flagConfigFile   = "config-file"
	flagConfigText   = "config-text"
	flagConfigMap    = "config-map"
	flagConfigMapKey = "config-map-key"
)

// Plugins names the source of the configuration of the plugins; empty for the default configuration.
type Plugins struct {
	File   string
	Text   string
	Map    ObjectName
	MapKey string // empty for the only key
}

// ObjectName is the name of an object: namespace/name, or the name alone for the pool's namespace.
type ObjectName struct{ cache.ObjectName }

// Set parses a name.
func (n *ObjectName) Set(text string) error {
	name, err := cache.ParseObjectName(text)
	if err != nil || name.Name == "" || strings.HasPrefix(text, "/") {
		return fmt.Errorf("%q is not namespace/name", text)
	}
	n.ObjectName = name
	return nil
}

// Type names the value in help.
func (*ObjectName) Type() string { return "namespace/name" }

// AtStart reports whether the configuration can be read before any part is made. It may then name the source of endpoints.
func (p *Plugins) AtStart() bool { return p.File != "" || p.Text != "" }

func (p *Plugins) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.File, flagConfigFile, p.File,
		"File with the EndpointPickerConfig. Changes take effect without a restart. Without a configuration, requests go to the endpoint "+
			"with the earliest expected first token.")
	fs.StringVar(&p.Text, flagConfigText, p.Text, "EndpointPickerConfig as text.")
	fs.Var(&p.Map, flagConfigMap, "ConfigMap with the EndpointPickerConfig. Changes take effect without a restart. Without a namespace: "+
		"the namespace of the pool.")
	fs.StringVar(&p.MapKey, flagConfigMapKey, p.MapKey, "Key of the ConfigMap. Empty: its only key.")
}

func (p *Plugins) validateFlags() error {
	given := slices.DeleteFunc([]string{p.File, p.Text, p.Map.Name}, func(value string) bool { return value == "" })
	switch {
	case len(given) > 1:
		return fmt.Errorf("only one of --%s, --%s and --%s can be given: leave the others out", flagConfigFile, flagConfigText,
			flagConfigMap)
	case p.MapKey != "" && p.Map.Name == "":
		return errors.New("--" + flagConfigMapKey + " has no effect without --" + flagConfigMap + ": leave it out")
	}
	return nil
}
