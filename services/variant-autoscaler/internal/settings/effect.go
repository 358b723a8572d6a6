package settings

import (
	"maps"
	"slices"
	"strings"
)

const (
	ofCache     = "the program keeps no metrics between passes"
	ofFlags     = "a flag of the program sets it"
	ofPicker    = "the program reads the metrics of the picker from Prometheus"
	ofCapacity  = "what a replica serves is learned, and the four thresholds add replicas to the plan"
	ofLimits    = "limits are in the ConfigMap variant-autoscaler-limits"
	ofNodes     = "enableLimiter in the entry default of wva-saturation-scaling-config limits variants to the nodes that their pod templates select"
	ofZero      = "models at zero get their first replica from the plan"
	ofMode      = "there is one mode"
	ofRescale   = "models with the better priority get what limits leave"
	ofBounds    = "the program writes no bounds of autoscalers"
	ofReconcile = "a pass follows each change of a variant, and each interval"
)

// withoutEffect are the keys and fields that releases of the workload-variant-autoscaler document and this program does not read, with why
// it needs none. A * stands for any text.
var withoutEffect = map[string]string{
	"PROMETHEUS_METRICS_CACHE_*": ofCache, "EPP_METRICS_CACHE_*": ofCache,
	"EPP_METRIC_READER_BEARER_TOKEN": ofPicker, "ENABLE_EXPERIMENTAL_FLOW_CONTROL_LAYER": ofPicker,
	"SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY": ofZero, "ENABLE_SCALE_TO_ZERO": "WVA_SCALE_TO_ZERO sets it",
	"WVA_LIMITED_MODE": ofNodes, "WVA_NODE_SELECTOR": ofNodes,
	"GLOBAL_OPT_TRIGGER": ofReconcile, "GLOBAL_OPT_ENABLE": ofMode, "EXPERIMENTAL_HYBRID_OPTIMIZATION": ofMode,
	"METRICS_*": ofFlags, "HEALTH_PROBE_BIND_ADDRESS": ofFlags, "LEADER_ELECT*": ofFlags, "REST_CLIENT_TIMEOUT": ofFlags,
	"ENABLE_HTTP2": ofFlags,
	"WEBHOOK_*":    "the program has no webhook", "LOG_LEVEL": ofFlags, "V": ofFlags, "CONTROLLER_INSTANCE": ofFlags,
	"WATCH_NAMESPACE": "variants of all namespaces count; annotate the others with wva.llmd.ai/exclude: \"true\"",

	"PROMETHEUS_ALLOW_HTTP": "the flag --allow-http-prometheus permits it", "POOL_GROUP": "InferencePools of both groups count",
	"EXPERIMENTAL_COORDINATOR_ENABLED": ofBounds, "COORDINATOR_INTERVAL": ofBounds,

	"enableRescale": ofRescale, "limiters": ofLimits,
	"analyzerName": ofCapacity, "analyzers": ofCapacity, "scaleUpThreshold": ofCapacity, "scaleDownBoundary": ofCapacity,
	"priority":    "priorities are those of service classes",
	"scaleToZero": "the ConfigMap model-scale-to-zero-config sets it",
	"slo-ttw":     "slo-ttft has the wait, too", "slo-tps": "slo-tpot is the time for a token",
}

// effectOf returns why a key has no effect, or nothing if no release documents it.
func effectOf(name string) string {
	for pattern, why := range withoutEffect {
		if start, isPattern := strings.CutSuffix(pattern, "*"); pattern == name || isPattern && strings.HasPrefix(name, start) {
			return why
		}
	}
	return ""
}

// unknownName is a key or a field that the program does not read.
type unknownName struct {
	name    string
	path    string // in the entry
	problem string // for what no release documents, with the line and the nearest name
}

// addUnknown warns of names that the program does not read: one warning for all with the same reason. An empty key means that the names
// are keys.
func (w *warnings) addUnknown(key string, unknown []unknownName) {
	why := map[string][]string{}
	for _, u := range unknown {
		if reason := effectOf(u.name); reason != "" {
			why[reason] = append(why[reason], u.path)
		} else {
			w.addWarning(ReasonUnknown, key, "ignored %s", quoteText(u.problem))
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		w.addWarning(ReasonUnknown, key, "ignored %s: %s; it can be removed", quoteText(strings.Join(why[reason], ", ")), reason)
	}
}
