package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
)

// Flags of the llm-d router, of the pickers of the Gateway API Inference Extension, and of their charts that are not flags
// of this picker: other names of settings, flags without effect, and refused flags.

const (
	flagMetricsPort  = "metrics-port"
	flagVerbosity    = "v"
	flagZapEncoder   = "zap-encoder"
	flagZapLevel     = "zap-log-level"
	flagZapDevel     = "zap-devel"
	flagLogLevel     = "log-level"
	flagLogFormat    = "log-format"
	flagMetricsBind  = "metrics-bind-address"
	defaultVerbosity = 2
	debugVerbosity   = 4 // upstream's lowest debug verbosity
)

// An UnusedFlag was given but has no effect.
type UnusedFlag struct {
	Name string
	Why  string
}

// unusedFlags have no effect, whatever their value.
var unusedFlags = []struct {
	name, why string
	isSwitch  bool
}{
	{name: "ha-enable-leader-election", isSwitch: true, why: "all replicas are active and ready, so they elect no leader"},
	{name: "health-checking", isSwitch: true, why: "the gRPC health server always runs, on --" + FlagGRPCHealthPort},
	{name: "allow-experimental-plugins", isSwitch: true, why: "all built-in plugins are available"},
	{name: "refresh-prometheus-metrics-interval", why: "metrics are computed at each scrape"},
	{name: "plugin-state-staleness-threshold", why: "requests in flight count until their streams end"},
	{name: "fairness-id-metric-label-limit", why: "metrics have at most 1000 tenants"},
	{name: "zap-stacktrace-level", why: "logs have no stack traces, and errors name their origin"},
	{name: "refreshPodsInterval", why: "the picker watches the pods"},
	{name: "zap-time-encoding", why: "log times are RFC 3339 in JSON, and the time of day on a console"},
}

// fixedFlags were settings elsewhere. The value that this picker always has is accepted without effect.
var fixedFlags = []struct {
	name, value string
	instead     string // what to do instead of another value
}{
	{name: "feature-gates", value: "flowControl=false", instead: "use featureGates in the configuration"},
	{name: "destinationEndpointHintKey", value: destination, instead: "the picker sets " + destination + ": let the gateway read that"},
	{name: "DestinationEndpointHintMetadataNamespace", value: "envoy.lb",
		instead: "the picker sets metadata in envoy.lb: let the gateway read that"},
	{name: "targetEndpointKey", value: destination, instead: "the picker sets " + destination + ": let the gateway read that"},
}

const destination = "x-gateway-destination-endpoint"

// Flags that name metrics of model servers. Together they select one of the built-in engines.
const (
	flagWaitingMetric   = "total-queued-requests-metric"
	flagRunningMetric   = "total-running-requests-metric"
	flagKVUsageMetric   = "kv-cache-usage-percentage-metric"
	flagLoRAMetric      = "lora-info-metric"
	flagCacheInfoMetric = "cache-info-metric"
)

var metricFlags = []string{flagWaitingMetric, flagRunningMetric, flagKVUsageMetric, flagLoRAMetric, flagCacheInfoMetric}

// addUpstreamFlags adds these flags. Their values stay in fs until applyUpstreamFlags.
func addUpstreamFlags(fs *pflag.FlagSet) {
	fs.Int(flagMetricsPort, 0, "Port of /metrics on all addresses, short for --"+flagMetricsBind+"=:PORT.")
	fs.IntP(flagVerbosity, flagVerbosity, defaultVerbosity, "Log verbosity if --"+flagLogLevel+" is not set: debug from 4 on, info below.")
	fs.String(flagZapLevel, "", "Log level if --"+flagLogLevel+" is not set: a name, or a number above 0.")
	fs.String(flagZapEncoder, "", "Log format if --"+flagLogFormat+" is not set: json or console.")
	fs.Bool(flagZapDevel, false, "Log in the format console if no other flag sets a format.")
	for _, f := range unusedFlags {
		usage := "Accepted without effect: " + f.why + "."
		if f.isSwitch {
			fs.Bool(f.name, false, usage)
		} else {
			fs.String(f.name, "", usage)
		}
	}
	for _, name := range metricFlags {
		fs.String(name, "", "Selects the engine that has this metric, for model servers whose pods have no label for their engine.")
		fs.Lookup(name).Hidden = true
	}
	for _, f := range fixedFlags {
		fs.String(f.name, "", "Refused, unless it is "+f.value+".")
		fs.Lookup(f.name).Hidden = true
	}
}

// applyUpstreamFlags applies the values of these flags, and records those without effect. The picker's own flags take
// precedence.
func (c *Config) applyUpstreamFlags(fs *pflag.FlagSet) error {
	for _, f := range unusedFlags {
		if fs.Changed(f.name) {
			c.Unused = append(c.Unused, UnusedFlag{Name: "--" + f.name, Why: f.why})
		}
	}
	refused := c.applyFixed(fs)
	return errors.Join(c.applyMetricsPort(fs), c.applyLogLevel(fs), c.applyLogFormat(fs), c.applySource(fs), c.applyEngine(fs), refused)
}

// applyFixed accepts the fixedFlags, or refuses their values.
func (c *Config) applyFixed(fs *pflag.FlagSet) error {
	var errs []error
	for _, f := range fixedFlags {
		switch value := fs.Lookup(f.name).Value.String(); {
		case !fs.Changed(f.name):
		case value == f.value:
			c.Unused = append(c.Unused, UnusedFlag{Name: "--" + f.name, Why: "the picker always does this"})
		default:
			errs = append(errs, fmt.Errorf("--%s %.100q is not supported: %s", f.name, value, f.instead))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) applyMetricsPort(fs *pflag.FlagSet) error {
	if !fs.Changed(flagMetricsPort) {
		return nil
	}
	port, _ := fs.GetInt(flagMetricsPort) // addUpstreamFlags made it an int
	switch {
	case port < 0 || port > maxPort:
		return fmt.Errorf("--%s %d is not a port: give one from 1 to %d", flagMetricsPort, port, maxPort)
	case fs.Changed(flagMetricsBind):
		return fmt.Errorf("--%s and --%s set the same address: leave one of them out", flagMetricsPort, flagMetricsBind)
	}
	c.HTTP.MetricsAddress = net.JoinHostPort("", strconv.Itoa(port))
	return nil
}

func (c *Config) applyLogLevel(fs *pflag.FlagSet) error {
	if fs.Changed(flagLogLevel) {
		return nil
	}
	if fs.Changed(flagZapLevel) {
		text := fs.Lookup(flagZapLevel).Value.String()
		level, known := zapLevel(text)
		if !known {
			return fmt.Errorf("--%s %q is not one of debug, info, error, panic, or a number above 0", flagZapLevel, text)
		}
		c.Logging.Level = level
		return nil
	}
	if fs.Changed(flagVerbosity) {
		verbosity, _ := fs.GetInt(flagVerbosity)
		c.Logging.Level = levelOfVerbosity(verbosity)
	}
	return nil
}

func (c *Config) applyLogFormat(fs *pflag.FlagSet) error {
	if fs.Changed(flagLogFormat) {
		return nil
	}
	if fs.Changed(flagZapEncoder) {
		encoder := strings.ToLower(fs.Lookup(flagZapEncoder).Value.String())
		if encoder != logging.FormatJSON && encoder != logging.FormatConsole {
			return fmt.Errorf("--%s %q is not one of %s, %s", flagZapEncoder, encoder, logging.FormatJSON, logging.FormatConsole)
		}
		c.Logging.Format = encoder
		return nil
	}
	if devel, _ := fs.GetBool(flagZapDevel); devel {
		c.Logging.Format = logging.FormatConsole
	}
	return nil
}

// zapLevel returns the log level for one of controller-runtime's.
func zapLevel(text string) (string, bool) {
	switch text = strings.ToLower(text); text {
	case zap.DebugLevel.String(), zap.InfoLevel.String(), zap.ErrorLevel.String():
		return text, true
	case zap.PanicLevel.String():
		return zap.ErrorLevel.String(), true
	}
	verbosity, err := strconv.Atoi(text)
	return levelOfVerbosity(verbosity), err == nil && verbosity > 0
}

func levelOfVerbosity(v int) string {
	if v >= debugVerbosity {
		return zap.DebugLevel.String()
	}
	return zap.InfoLevel.String()
}

// applyEngine selects the engine with the metrics that flags name. Charts give the names of a chosen engine.
func (c *Config) applyEngine(fs *pflag.FlagSet) error {
	const why = "the picker reads this metric of vLLM anyway"
	given := map[string]string{}
	for _, name := range metricFlags {
		if fs.Changed(name) {
			given[name] = strings.Trim(fs.Lookup(name).Value.String(), `"`) // a chart gives quotes
		}
	}
	names := modelserver.MetricNames{
		Waiting: given[flagWaitingMetric], Running: given[flagRunningMetric], KVUsage: given[flagKVUsageMetric],
		LoRA:      given[flagLoRAMetric],
		CacheInfo: given[flagCacheInfoMetric],
	}
	engine, known := modelserver.FindEngine(names)
	if !known {
		return errors.New(unknownMetrics(given))
	}
	if engine != modelserver.EngineVLLM {
		c.DefaultEngine = engine
		return nil
	}
	for _, name := range metricFlags {
		if value, ok := given[name]; ok && value != "" {
			c.Unused = append(c.Unused, UnusedFlag{Name: "--" + name, Why: why})
		} else if ok {
			c.Unused = append(c.Unused, UnusedFlag{Name: "--" + name, Why: "the picker reads the metrics that a page has"})
		}
	}
	return nil
}

// unknownMetrics is the message for metrics that no built-in engine has, or that are those of several.
func unknownMetrics(given map[string]string) string {
	var flags []string
	for _, name := range metricFlags {
		if given[name] != "" {
			flags = append(flags, fmt.Sprintf("--%s %.100q", name, given[name]))
		}
	}
	return fmt.Sprintf("%s: no built-in engine has these metrics: leave the flags out, and label the pods of model servers %s with one of "+
		"%s; name the metrics of others in engineConfigs of the plugin core-metrics-extractor",
		strings.Join(flags, ", "), modelserver.LabelEngine, strings.Join(modelserver.EngineNames(), ", "))
}
