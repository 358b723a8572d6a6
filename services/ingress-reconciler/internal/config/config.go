// Package config holds the flags of the ingress-reconciler. ConfigMaps configure how services are exposed, and can change at run time:
// package settings parses them.
package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/pkg/configmap"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/pkg/logging"
)

// Config holds all flags.
type Config struct {
	Kube    kube.Options
	HTTP    httpserver.Options
	Logging logging.Options
	Leader  leader.Options
	Work    controller.Options
	Sources Sources
}

// Sources holds the flags that affect plans.
type Sources struct {
	ConfigMap     configmap.Name // with the configuration
	OMEConfigMap  configmap.Name
	ClusterDomain string
	Discovery     time.Duration
	Kinds         []string // resources that may be written
}

// kinds are the resources that the program can write.
var kinds = []string{"httproutes", "ingresses", "virtualservices", "middlewares", "inferencepools", "services"}

// Default returns the defaults of all flags.
func Default() *Config {
	return &Config{
		Kube: kube.DefaultOptions(), HTTP: httpserver.DefaultOptions(), Logging: logging.DefaultOptions(), Leader: leader.DefaultOptions(),
		Work: controller.DefaultOptions(),
		Sources: Sources{
			OMEConfigMap: configmap.Name{Namespace: "ome", Name: "inferenceservice-config"}, ClusterDomain: "cluster.local",
			Discovery: 30 * time.Second, Kinds: slices.Clone(kinds),
		},
	}
}

// AddFlags binds all flags.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Kube.AddFlags(fs)
	c.HTTP.AddFlags(fs)
	c.Logging.AddFlags(fs)
	c.Leader.AddFlags(fs)
	c.Sources.AddFlags(fs)
	fs.DurationVar(&c.Sources.Discovery, "discovery-interval", c.Sources.Discovery,
		"Interval for checking which kinds the API server serves. CRDs can be installed and removed at run time.")
	fs.IntVar(&c.Work.Workers, "workers", c.Work.Workers, "Number of InferenceServices to reconcile concurrently.")
	fs.DurationVar(&c.Work.LastRetry, "max-retry-delay", c.Work.LastRetry,
		"Longest delay between attempts to reconcile an InferenceService after errors.")
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
func (c *Config) Validate() error {
	errs := []error{c.Kube.Validate(), c.HTTP.Validate(), c.Logging.Validate(), c.Leader.Validate(), c.Sources.Validate()}
	if c.Work.Workers < 1 {
		errs = append(errs, fmt.Errorf("--workers %d is less than one", c.Work.Workers))
	}
	if c.Sources.Discovery < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("--discovery-interval %s is shorter than 100ms", c.Sources.Discovery))
	}
	if c.Work.LastRetry < time.Second {
		errs = append(errs, fmt.Errorf("--max-retry-delay %s is shorter than a second", c.Work.LastRetry))
	}
	return errors.Join(errs...)
}

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
