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
	{name: "zap-time-encoding", why: "log times are RFC 3339 in JSON, and the time of day on a console"},
}

// refusedFlags named metrics of model servers, which the configuration names now. A value that equals the built-in behavior
// (as in KServe's charts) has no effect and is accepted.
var refusedFlags = []struct {
	name, harmless, instead string
	isSwitch                bool
}{
	{name: "total-queued-requests-metric", harmless: "vllm:num_requests_waiting", instead: insteadOfMetric},
	{name: "total-running-requests-metric", harmless: "vllm:num_requests_running", instead: insteadOfMetric},
	{name: "kv-cache-usage-percentage-metric", harmless: "vllm:kv_cache_usage_perc", instead: insteadOfMetric},
	{name: "lora-info-metric", harmless: "vllm:lora_requests_info", instead: insteadOfMetric},
	{name: "cache-info-metric", harmless: "vllm:cache_config_info", instead: insteadOfMetric},
	{name: "feature-gates", harmless: "flowControl=false", instead: "featureGates"},
}

const insteadOfMetric = "engineConfigs of the plugin core-metrics-extractor"

// addUpstreamFlags adds these flags. Their values stay in fs until applyUpstreamFlags.
func addUpstreamFlags(fs *pflag.FlagSet) {
	fs.Int(flagMetricsPort, 0, "Port of /metrics on all addresses, short for --"+flagMetricsBind+"=:PORT.")
	fs.IntP(flagVerbosity, flagVerbosity, defaultVerbosity, "Log verbosity if --"+flagLogLevel+" is not set: debug from 4 on, info below.")
	fs.String(flagZapLevel, "", "Log level if --"+flagLogLevel+" is not set: a name, or a number above 0.")
	fs.String(flagZapEncoder, "", "Log format if --"+flagLogFormat+" is not set: json or console.")
	fs.Bool(flagZapDevel, false, "Log in the format console if no other flag sets a format.")
	for _, f := range unusedFlags {
		addByKind(fs, f.name, "Accepted without effect: "+f.why+".", f.isSwitch)
	}
	for _, f := range refusedFlags {
		addByKind(fs, f.name, "Refused: use "+f.instead+".", f.isSwitch)
		fs.Lookup(f.name).Hidden = true
	}
}

// addByKind adds a flag whose value is not stored.
func addByKind(fs *pflag.FlagSet, name, usage string, isSwitch bool) { //nolint:revive // flag-parameter: it is data, from the tables above
	if isSwitch {
		fs.Bool(name, false, usage)
		return
	}
	fs.String(name, "", usage)
}

// applyUpstreamFlags applies the values of these flags, and records those without effect. The picker's own flags take
// precedence.
func (c *Config) applyUpstreamFlags(fs *pflag.FlagSet) error {
	c.Unused = findUnused(fs)
	return errors.Join(c.applyMetricsPort(fs), c.applyLogLevel(fs), c.applyLogFormat(fs), c.applySource(fs), findRefused(fs))
}

func (c *Config) applyMetricsPort(fs *pflag.FlagSet) error {
	if !fs.Changed(flagMetricsPort) {
		return nil
	}
	port, err := fs.GetInt(flagMetricsPort)
	switch {
	case err != nil:
		return err
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
		verbosity, err := fs.GetInt(flagVerbosity)
		if err != nil {
			return err
		}
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
	if devel, err := fs.GetBool(flagZapDevel); err != nil {
		return err
	} else if devel {
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

func findUnused(fs *pflag.FlagSet) []UnusedFlag {
	var found []UnusedFlag
	for _, f := range unusedFlags {
		if fs.Changed(f.name) {
			found = append(found, UnusedFlag{Name: "--" + f.name, Why: f.why})
		}
	}
	for _, f := range refusedFlags {
		if fs.Changed(f.name) && fs.Lookup(f.name).Value.String() == f.harmless {
			found = append(found, UnusedFlag{Name: "--" + f.name, Why: "the picker already does this; to change it, use " + f.instead})
		}
	}
	return found
}

func findRefused(fs *pflag.FlagSet) error {
	var errs []error
	for _, f := range refusedFlags {
		if fs.Changed(f.name) && fs.Lookup(f.name).Value.String() != f.harmless {
			errs = append(errs, fmt.Errorf("--%s has no effect here: use %s in the configuration", f.name, f.instead))
		}
	}
	return errors.Join(errs...)
}
