// Package config holds the flags of the backendset-syncer. A ConfigMap has what an administrator permits, and can change at run time:
// package policy parses it.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/configmap"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/pkg/run"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/responder"
)

// Config holds all flags.
type Config struct {
	run.Options

	OCI       ociapi.Options
	Gates     Gates
	Gateways  Gateways
	ConfigMap configmap.Name
	Verify    time.Duration
}

// Gates are the flags of readiness gates.
type Gates struct {
	Enabled bool
	Timeout time.Duration
	// Webhook is the address of the webhook that adds gates to pods. Empty: no webhook.
	Webhook      string
	Certificates string // directory of tls.crt and tls.key
}

// Gateways are the flags of the Gateway API.
type Gateways struct {
	Enabled bool
	// OKE accepts GatewayClasses of oke-gateway-api, too.
	OKE bool
	// Namespace is that of the records. Empty: the namespace of the Lease.
	Namespace string
	// Responder is the Service of the responder. Empty: load balancers get no backends for requests without one.
	Responder configmap.Name
	// Addresses are those at which this process serves the responder.
	Addresses responder.Options
}

// Default returns the defaults of all flags.
func Default() *Config {
	return &Config{
		Options: run.DefaultOptions(), OCI: ociapi.DefaultOptions(),
		Gates:    Gates{Timeout: 5 * time.Minute, Certificates: "/etc/fairlead/webhook"},
		Gateways: Gateways{Enabled: true}, Verify: 5 * time.Minute,
	}
}

// AddFlags binds all flags.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Options.AddFlags(fs,
		"Number of BackendSetBindings to reconcile concurrently. Each load balancer has a worker of its own for writes.",
		"Longest delay between attempts to reconcile a BackendSetBinding after errors of the API server.")
	c.OCI.AddFlags(fs)
	c.AddSourceFlags(fs)
	fs.StringVar(&c.Gateways.Addresses.NotFound, "not-found-bind-address", c.Gateways.Addresses.NotFound,
		"Address at which the program answers requests of load balancers that no rule matches with 404, such as :8404. Empty: none.")
	fs.StringVar(&c.Gateways.Addresses.NoBackends, "no-backends-bind-address", c.Gateways.Addresses.NoBackends,
		"Address at which the program answers requests of load balancers whose rule has no backend with 500, such as :8500. Empty: none.")
	fs.DurationVar(&c.Verify, "verify-interval", c.Verify,
		"Interval for reading a load balancer that does not change, to repair what others changed. One request reads all backend sets of "+
			"a load balancer.")
	fs.DurationVar(&c.Gates.Timeout, "readiness-gate-timeout", c.Gates.Timeout,
		"Time after which a pod with ready containers becomes ready although load balancers do not send it requests.")
	fs.StringVar(&c.Gates.Webhook, "webhook-address", c.Gates.Webhook,
		"Address of the webhook that adds readiness gates to pods, such as :9443. Empty: no webhook.")
	fs.StringVar(&c.Gates.Certificates, "webhook-certificates", c.Gates.Certificates,
		"Directory with the certificate of the webhook: tls.crt and tls.key. It is read again every minute.")
}

// AddSourceFlags binds the flags that affect plans.
func (c *Config) AddSourceFlags(fs *pflag.FlagSet) {
	fs.Var(&c.ConfigMap, "config-map",
		"ConfigMap with the configuration in key config, as namespace/name. Without it, no binding may use a load balancer.")
	fs.BoolVar(&c.Gateways.Enabled, "gateways", c.Gateways.Enabled,
		"Program listeners and routing policies from Gateways and HTTPRoutes, if the API server serves them. It needs permissions to list "+
			"and watch them, Secrets, ConfigMaps and pods.")
	fs.Var(&c.Gateways.Responder, "responder-service",
		"Service of the programs' responders, as namespace/name. Its ports 404 and 500 become the backends of requests that no rule "+
			"matches, and whose rule has no backend. Empty: load balancers answer 502.")
	fs.StringVar(&c.Gateways.Namespace, "gateway-namespace", c.Gateways.Namespace,
		"Namespace of the ConfigMaps that record which objects of a load balancer belong to Gateways. Defaults to "+
			"--leader-election-namespace, then the namespace of the pod, then that of --config-map.")
	fs.BoolVar(&c.Gateways.OKE, "oke-gateway-api-alias", c.Gateways.OKE,
		"Also accept GatewayClasses of oke-gateway-api for application load balancers. Remove that controller first, and take its load "+
			"balancers over with the subcommand adopt.")
	fs.BoolVar(&c.Gates.Enabled, "readiness-gates", c.Gates.Enabled,
		"Serve the readiness gate fairlead.dev/oci-lb-ready. It needs permissions to list pods and to patch their status.")
}

// RecordNamespace returns the namespace of the records, empty if it is not known.
func (c *Config) RecordNamespace() string {
	return cmp.Or(c.Gateways.Namespace, c.Leader.Namespace, leader.PodNamespace(), c.ConfigMap.Namespace)
}

// PlannerOptions returns the options of the planner of Gateways.
func (c *Config) PlannerOptions() gatewayplan.Options {
	return gatewayplan.Options{OKE: c.Gateways.OKE, Responder: cache.ObjectName(c.Gateways.Responder)}
}

// InformerOptions returns which kinds are read.
func (c *Config) InformerOptions() informers.Options {
	return informers.Options{Gates: c.Gates.Enabled, Gateways: c.Gateways.Enabled}
}

// Validate returns an error for each flag with an invalid value.
func (c *Config) Validate() error {
	errs := []error{c.Options.Validate(), c.OCI.Validate()}
	if c.Verify < 10*time.Second {
		errs = append(errs, fmt.Errorf("--verify-interval %s is shorter than 10s", c.Verify))
	}
	if c.Gates.Timeout < time.Second {
		errs = append(errs, fmt.Errorf("--readiness-gate-timeout %s is shorter than a second", c.Gates.Timeout))
	}
	if c.Gates.Webhook != "" && !c.Gates.Enabled {
		errs = append(errs, errors.New("--webhook-address has an effect only with --readiness-gates"))
	}
	return errors.Join(errs...)
}
