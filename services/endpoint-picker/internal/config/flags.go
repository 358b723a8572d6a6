package config

import (
	"strings"

	"github.com/spf13/pflag"

	"fairlead.dev/pkg/service"
)

// camelFlags are the names of flags of the Inference Extension up to 0.5 that have a hyphenated name since then.
var camelFlags = []string{
	"certPath", "configFile", "configText", "enablePprof", "grpcHealthPort", "grpcPort", "healthChecking", "kvCacheUsagePercentageMetric",
	"loraInfoMetric", "metricsPort", "modelServerMetricsHttpsInsecureSkipVerify", "modelServerMetricsPath", "modelServerMetricsPort",
	"modelServerMetricsScheme", "poolName", "poolNamespace", "refreshMetricsInterval", "refreshPrometheusMetricsInterval", "secureServing",
	"totalQueuedRequestsMetric",
}

// acceptCamelFlags accepts the camelFlags as other names of flags.
func acceptCamelFlags(fs *pflag.FlagSet) {
	names := map[string]pflag.NormalizedName{}
	for _, camel := range camelFlags {
		names[camel] = pflag.NormalizedName(service.HyphenateFlag(camel))
	}
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if renamed, ok := names[name]; ok {
			return renamed
		}
		return pflag.NormalizedName(name)
	})
}

// DoubleDashes returns arguments in which each flag has two dashes. The pickers of the Inference Extension accepted names with one dash
// up to 1.2, and charts give them.
func DoubleDashes(fs *pflag.FlagSet, args []string) []string {
	var doubled []string
	for i, arg := range args {
		if arg == "--" {
			return append(doubled, args[i:]...)
		}
		if name, hasOneDash := strings.CutPrefix(arg, "-"); hasOneDash {
			name, _, _ = strings.Cut(name, "=")
			if len(name) > 1 && fs.Lookup(name) != nil {
				arg = "-" + arg
			}
		}
		doubled = append(doubled, arg)
	}
	return doubled
}
