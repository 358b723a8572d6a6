package modelserver

import "slices"

// MetricNames names the metrics of one engine, as flags of the Inference Extension do. An empty name is that of no metric.
type MetricNames struct {
	Waiting, Running, KVUsage, LoRA, CacheInfo string
}

// sizesElsewhere are metrics with the size of the KV cache that charts name. The picker reads the size from gauges of these engines.
var sizesElsewhere = map[string]string{EngineSGLang: "sglang:cache_config_info", EngineTRTLLMServe: "trtllm_cache_config_info"}

// FindEngine returns the first built-in engine that has all the metrics.
func FindEngine(n MetricNames) (name string, ok bool) {
	for _, e := range builtinEngines() {
		if isOneOf(n.Waiting, e.Waiting...) && isOneOf(n.Running, e.Running...) && isOneOf(n.KVUsage, e.KVUsage...) &&
			isOneOf(n.LoRA, e.LoRA) && isOneOf(n.CacheInfo, e.CacheInfo, sizesElsewhere[e.Name]) {
			return e.Name, true
		}
	}
	return "", false
}

// isOneOf reports whether a metric is one of an engine's, or none.
func isOneOf(metric string, names ...string) bool {
	if metric == "" {
		return true
	}
	wanted, err := parseSpec(metric)
	return err == nil && slices.ContainsFunc(names, func(name string) bool {
		s, err := parseSpec(name)
		return err == nil && s.name == wanted.name && slices.Equal(s.labels, wanted.labels)
	})
}

// EngineNames returns the names of the built-in engines.
func EngineNames() []string {
	var names []string
	for _, e := range builtinEngines() {
		names = append(names, e.Name)
	}
	return names
}
