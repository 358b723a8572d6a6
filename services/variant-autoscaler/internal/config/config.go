// Package config holds the flags of the variant-autoscaler. Settings that administrators change at run time are in ConfigMaps: package
// settings decodes them.
package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Config holds all flags.
type Config struct {
	Kube    kube.Options
	HTTP    httpserver.Options
	Logging logging.Options
	Leader  leader.Options

	Actuator  string
	Plan      snapshot.Settings
	Window    time.Duration // of stabilization
	Forecast  bool
	Metrics   time.Duration // window of rates
	AllowHTTP bool
	Limiter   bool // limits variants to what nodes have free, whatever the ConfigMaps say

	Namespace  string            // of the ConfigMaps
	ConfigMaps map[string]string // names by kind
	Instance   string
	Discovery  time.Duration
	Decisions  string // file of the decision log
	Scaler     Scaler
	Holds      Holds
	// WakeIdle permits to write the first replica of targets whose HorizontalPodAutoscaler does nothing at zero.
	WakeIdle bool
}

// Holds configures how endpoint pickers are followed.
type Holds struct {
	Follow    bool
	TokenFile string // empty: no token
	CAFile    string // empty: any certificate
}

// Values of --actuator.
const (
	ActuatorMetrics = "metrics"
	ActuatorScale   = "scale"
)

// Scaler configures the external scaler for KEDA.
type Scaler struct {
	Address      string // empty: off
	Certificates string // directory of tls.crt and tls.key; empty: plaintext
	ClientCAFile string
	ClientNames  []string
}

// Default returns the defaults of all flags.
func Default(environment func(name string) string) *Config {
	return &Config{
		Kube: kube.DefaultOptions(), HTTP: httpserver.DefaultOptions(), Logging: logging.DefaultOptions(), Leader: leader.DefaultOptions(),
		Actuator: ActuatorMetrics,
		Plan: snapshot.Settings{
			Split: string(optimizer.SplitObserved), HeadroomPercent: 10, SavingPercent: 5, Percentile: 90, Trials: true,
		},
		Window: 5 * time.Minute, Metrics: time.Minute, Namespace: settings.DefaultNamespace(environment),
		Instance: environment("CONTROLLER_INSTANCE"), Discovery: 30 * time.Second, Holds: Holds{Follow: true},
	}
}

// AddFlags binds all flags.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Kube.AddFlags(fs)
	c.HTTP.AddFlags(fs)
	c.Logging.AddFlags(fs)
	c.Leader.AddFlags(fs)
	c.AddDecisionFlags(fs)
	fs.DurationVar(&c.Window, "stabilization-window", c.Window, "Time for which replicas stay after they were wanted. Once the start-up time of a variant is known, only a quarter more than was wanted in that time stays.")
	fs.BoolVar(&c.Forecast, "forecast", c.Forecast, "Raise the demand to what the trend of the load says for the time that a replica takes to start.")
	fs.DurationVar(&c.Discovery, "discovery-interval", c.Discovery, "Interval for checking which kinds the API server serves. CRDs can be installed and removed at run time.")
	fs.StringVar(&c.Scaler.Address, "scaler-bind-address", c.Scaler.Address, "Listen address of the external scaler for KEDA. Empty: off.")
	fs.StringVar(&c.Scaler.Certificates, "scaler-certificates", c.Scaler.Certificates,
		"Directory with the certificate of the external scaler: tls.crt and tls.key. It is read again every minute. Empty: no TLS.")
	fs.StringVar(&c.Scaler.ClientCAFile, "scaler-client-ca-file", c.Scaler.ClientCAFile, "Authorities of required client certificates, in PEM. Empty: clients need none.")
	fs.StringSliceVar(&c.Scaler.ClientNames, "scaler-client-name", c.Scaler.ClientNames, "Names of which a client certificate needs one. Empty: all certificates of the authorities.")
	fs.BoolVar(&c.WakeIdle, "wake-hpa-targets", c.WakeIdle,
		"Write the first replica of a target without replicas, for which requests wait, and whose HorizontalPodAutoscaler follows this program and does nothing: with minReplicas above 0, or if it has not scaled the target to zero itself (Kubernetes 1.37).")
	fs.BoolVar(&c.Holds.Follow, "follow-holds", c.Holds.Follow, "Follow the requests that wait in endpoint pickers while a model has no replicas. Otherwise Prometheus alone shows them.")
	fs.StringVar(&c.Holds.TokenFile, "holds-token-file", c.Holds.TokenFile,
		"Bearer token for endpoint pickers. Every picker that an InferencePool names gets it, if its certificate is valid: use one that may get /v1/holds and /metrics, and nothing else. Empty: none.")
	fs.StringVar(&c.Holds.CAFile, "holds-ca-file", c.Holds.CAFile,
		"Authorities of the certificates of endpoint pickers, in PEM. The names of a certificate must contain SERVICE.NAMESPACE.svc. Empty: any certificate is accepted, and no token is sent.")
	fs.StringVar(&c.Decisions, "decision-log", c.Decisions, "File to append a line of JSON to for each pass: what it decided, and all that it decided on. Empty: none. - is standard output.")
}

// AddDecisionFlags binds the flags that one decision depends on.
func (c *Config) AddDecisionFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Actuator, "actuator", c.Actuator,
		"Who writes the replicas of targets: metrics, for autoscalers that follow wva_desired_replicas or the external scaler; scale, for this program, except where an autoscaler or a controller does.")
	fs.StringVar(&c.Plan.Split, "split", c.Plan.Split, "How the picker divides the load of a model between its variants: observed, capacity or equal.")
	fs.Int64Var(&c.Plan.HeadroomPercent, "headroom-percent", c.Plan.HeadroomPercent, "Percent of the load to plan for in addition.")
	fs.Int64Var(&c.Plan.SavingPercent, "saving-percent", c.Plan.SavingPercent, "Least saving, in percent of the present cost, for which a plan replaces replicas that serve as much.")
	fs.Float64Var(&c.Plan.Percentile, "ttft-percentile", c.Plan.Percentile, "Percentile of the time to first token that targets are for. 0: the mean.")
	fs.BoolVar(&c.Plan.Trials, "trials", c.Plan.Trials, "Give a replica, once and for at most 30 minutes, to a variant at zero that is cheaper than others and of which nothing says what a replica serves.")
	fs.DurationVar(&c.Metrics, "metrics-window", c.Metrics, "Window of rates and means in Prometheus. It must contain at least two scrapes.")
	fs.BoolVar(&c.Limiter, "limiter", c.Limiter,
		"Limit variants to the accelerators that nodes have free. It needs the permission to list and watch nodes. The key enableLimiter of the saturation config turns the limiter on, too.")
	fs.BoolVar(&c.AllowHTTP, "allow-http-prometheus", c.AllowHTTP, "Accept a Prometheus without TLS: others on the network can read queries, answers and the token.")
	fs.StringVar(&c.Namespace, "config-namespace", c.Namespace, "Namespace of the ConfigMaps.")
	fs.StringToStringVar(&c.ConfigMaps, "config-map", c.ConfigMaps,
		"Names of ConfigMaps, as KIND=NAME. KIND is "+kindNames()+". Kinds without a name have the usual names, also after the name of a release.")
	fs.StringVar(&c.Instance, "controller-instance", c.Instance,
		"Value of the label wva.llmd.ai/controller-instance of the objects that this installation reads, and of a label of its metrics. Empty: objects without the label.")
}

// failFunc reports an invalid value, with the arguments of fmt.Errorf.
type failFunc func(format string, args ...any)

// Validate returns an error for each flag with an invalid value.
func (c *Config) Validate() error {
	errs := []error{c.Kube.Validate(), c.HTTP.Validate(), c.Logging.Validate(), c.Leader.Validate()}
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Actuator != ActuatorMetrics && c.Actuator != ActuatorScale {
		fail("--actuator %q is not one of %s, %s: give %s to let this program write replicas", c.Actuator, ActuatorMetrics, ActuatorScale, ActuatorScale)
	}
	if splits := []string{"observed", "capacity", "equal"}; !slices.Contains(splits, c.Plan.Split) {
		fail("--split %q is not one of %s", c.Plan.Split, strings.Join(splits, ", "))
	}
	if c.Plan.HeadroomPercent < 0 || c.Plan.HeadroomPercent > optimizer.MaxHeadroom {
		fail("--headroom-percent %d is out of range: give 0 to %d", c.Plan.HeadroomPercent, optimizer.MaxHeadroom)
	}
	if c.Plan.SavingPercent < 0 || c.Plan.SavingPercent > 100 {
		fail("--saving-percent %d is out of range: give 0 to 100", c.Plan.SavingPercent)
	}
	if !(c.Plan.Percentile >= 0 && c.Plan.Percentile < 100) { // NaN is not in the range either
		fail("--ttft-percentile %g is out of range: give 0 for the mean, or up to 99.9", c.Plan.Percentile)
	}
	c.validateDurations(fail)
	c.validateConfigMaps(fail)
	c.Scaler.validateScaler(fail)
	c.Holds.validateHolds(fail)
	if len(content.IsDNS1123Label(c.Namespace)) > 0 {
		fail("--config-namespace %q is not the name of a namespace", c.Namespace)
	}
	if len(content.IsLabelValue(c.Instance)) > 0 {
		fail("--controller-instance %q is not the value of a label", c.Instance)
	}
	return errors.Join(errs...)
}

// Settings returns the options of the ConfigMaps.
func (c *Config) Settings(environment func(name string) string) settings.Options {
	names := map[settings.Kind]string{}
	for kind, name := range c.ConfigMaps {
		names[settings.Kind(kind)] = name
	}
	return settings.Options{Namespace: c.Namespace, Names: names, Environment: environment, AllowHTTP: c.AllowHTTP}
}

func kindNames() string {
	var names []string
	for _, kind := range settings.Kinds() {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}

func (c *Config) validateConfigMaps(fail failFunc) {
	for kind, name := range c.ConfigMaps {
		if !slices.Contains(settings.Kinds(), settings.Kind(kind)) {
			fail("--config-map: %q is not one of %s", kind, kindNames())
		}
		if len(content.IsDNS1123Subdomain(name)) > 0 {
			fail("--config-map: %q is not the name of a ConfigMap", name)
		}
	}
}

func (c *Config) validateDurations(fail failFunc) {
	for _, d := range []struct {
		flag        string
		value       time.Duration
		least, most time.Duration
	}{
		{"stabilization-window", c.Window, 0, 24 * time.Hour},
		{"metrics-window", c.Metrics, 10 * time.Second, time.Hour},
		{"discovery-interval", c.Discovery, 100 * time.Millisecond, 24 * time.Hour},
	} {
		if d.value < d.least || d.value > d.most {
			fail("--%s %s is out of range: give %s to %s", d.flag, d.value, d.least, d.most)
		}
	}
}

func (h *Holds) validateHolds(fail failFunc) {
	if h.TokenFile != "" && h.CAFile == "" {
		fail("--holds-token-file requires --holds-ca-file: without it, anybody who may write a Service could get the token")
	}
	if !h.Follow && h.CAFile != "" {
		fail("--holds-ca-file and --holds-token-file require --follow-holds")
	}
}

func (s *Scaler) validateScaler(fail failFunc) {
	if s.Address != "" {
		if _, err := net.ResolveTCPAddr("tcp", s.Address); err != nil {
			fail("--scaler-bind-address %q is not host:port: %w", s.Address, err)
		}
	}
	if s.Address == "" && (s.Certificates != "" || s.ClientCAFile != "") {
		fail("--scaler-certificates and --scaler-client-ca-file require --scaler-bind-address")
	}
	if s.ClientCAFile != "" && s.Certificates == "" {
		fail("--scaler-client-ca-file requires --scaler-certificates")
	}
	if len(s.ClientNames) > 0 && s.ClientCAFile == "" {
		fail("--scaler-client-name requires --scaler-client-ca-file")
	}
}
