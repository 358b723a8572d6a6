// Package config holds the flags of the ingress-reconciler. ConfigMaps configure how services are exposed, and can change at run time:
// package settings parses them.
package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/pkg/configmap"
	"fairlead.dev/pkg/run"
)

// Config holds all flags.
type Config struct {
	run.Options

	Sources Sources
}

// Sources holds the flags that affect plans.
type Sources struct {
	ConfigMap     configmap.Name // with the configuration
	OMEConfigMap  configmap.Name
	ClusterDomain string
	Kinds         []string // resources that may be written
}

// kinds are the resources that the program can write.
var kinds = []string{"httproutes", "ingresses", "virtualservices", "middlewares", "inferencepools", "services"}

// Default returns the defaults of all flags.
func Default() *Config {
	return &Config{
		Options: run.DefaultOptions(),
		Sources: Sources{
			OMEConfigMap: configmap.Name{Namespace: "ome", Name: "inferenceservice-config"}, ClusterDomain: "cluster.local",
			Kinds: slices.Clone(kinds),
		},
	}
}

// AddFlags binds all flags.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Options.AddFlags(fs, "Number of InferenceServices to reconcile concurrently.",
		"Longest delay between attempts to reconcile an InferenceService after errors.")
	c.Sources.AddFlags(fs)
}

// AddFlags binds the flags that affect plans.
func (s *Sources) AddFlags(fs *pflag.FlagSet) {
	fs.Var(&s.ConfigMap, "config-map",
		"ConfigMap with the configuration in key config, as namespace/name. Empty: use OME's configuration and the defaults.")
	fs.Var(&s.OMEConfigMap, "ome-config-map",
		"OME's ConfigMap, as namespace/name. The program never writes to it. Empty: inherit no settings.")
	fs.StringVar(&s.ClusterDomain, "cluster-domain", s.ClusterDomain, "DNS domain of the cluster.")
	fs.StringSliceVar(&s.Kinds, "kinds", s.Kinds,
		"Kinds of objects that the program may write. It neither reads nor writes other kinds, and needs no permissions for them.")
}

// Validate returns an error for each flag with an invalid value.
func (c *Config) Validate() error { return errors.Join(c.Options.Validate(), c.Sources.Validate()) }

// Validate returns an error for each flag with an invalid value.
func (s *Sources) Validate() error {
	if problems := validation.IsDNS1123Subdomain(s.ClusterDomain); len(problems) > 0 {
		return fmt.Errorf("--cluster-domain %q: %s", s.ClusterDomain, problems[0])
	}
	if len(s.Kinds) == 0 {
		return fmt.Errorf("--kinds is empty: name at least one of %s", strings.Join(kinds, ", "))
	}
	for _, k := range s.Kinds {
		if !slices.Contains(kinds, k) {
			return fmt.Errorf("--kinds: %q is not one of %s", k, strings.Join(kinds, ", "))
		}
	}
	return nil
}
