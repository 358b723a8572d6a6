package pickerconfig

import (
	"fmt"
	"maps"
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Types of plugins that other parts of a configuration refer to, or that exist without a declaration.
const (
	maxScorePicker       = "max-score-picker"
	singleProfileHandler = "single-profile-handler"
	predictedWaitScorer  = "predicted-wait-scorer"
	metricsDataSource    = "metrics-data-source"
	coreMetricsExtractor = "core-metrics-extractor"
	utilizationDetector  = "utilization-detector"
	approxPrefixProducer = "approx-prefix-cache-producer"
	inflightProducer     = "inflight-load-producer"
	sessionIDProducer    = "session-id-producer"
	tokenProducer        = "token-producer"
)

// parameters are the parameters of one plugin, with defaults until they are read.
type parameters interface {
	check(c checker)
}

// The roles of a plugin in a profile or a saturation detector.
type (
	filterer interface{ filter() scheduling.Filter }
	scorer   interface{ scorer() scheduling.Scorer }
	picker   interface{ picker() scheduling.Picker }
	detector interface{ detector() scheduling.Detector }
)

// user is notified that a profile uses the plugin.
type user interface{ use(c checker) }

// none is for plugins without parameters.
type none struct{}

func (none) check(checker) {}

// kinds returns the supported types of plugins. Each call of a function creates separate parameters.
func kinds(o Options) map[string]func() parameters {
	return map[string]func() parameters{
		"label-selector-filter":        func() parameters { return &selectorParameters{} },
		"decode-filter":                func() parameters { return &roleParameters{role: scheduling.DecodeFilter()} },
		"prefill-filter":               func() parameters { return &roleParameters{role: scheduling.PrefillFilter()} },
		"encode-filter":                func() parameters { return &roleParameters{role: scheduling.EncodeFilter()} },
		"prefix-cache-affinity-filter": func() parameters { return defaultPrefixAffinity() },
		"session-affinity-filter":      func() parameters { p := sessionFilterParameters(defaultSession()); return &p },
		"endpoint-attribute-filter":    func() parameters { return &attributeFilterParameters{OnMissing: missingPass} },
		"utilization-filter":           func() parameters { return &utilizationParameters{} },
		"header-based-testing-filter":  func() parameters { return &testingParameters{} },

		"queue-scorer":                 func() parameters { return &plainScorer{scheduling.QueueScorer{}} },
		"running-requests-size-scorer": func() parameters { return &plainScorer{scheduling.RunningScorer{}} },
		"kv-cache-utilization-scorer":  func() parameters { return &plainScorer{scheduling.KVCacheScorer{}} },
		"lora-affinity-scorer":         func() parameters { return &plainScorer{scheduling.AdapterScorer{}} },
		predictedWaitScorer:            func() parameters { return &plainScorer{scheduling.PredictedWaitScorer{}} },
		"prefix-cache-scorer":          func() parameters { return &prefixScorerParameters{MatchLengthScaleTokens: 8192} },
		"token-load-scorer":            func() parameters { return &tokenLoadParameters{QueueThresholdTokens: 4 << 20} },
		"load-aware-scorer":            func() parameters { return &loadAwareParameters{Threshold: 128} },
		"active-request-scorer":        func() parameters { return &activeParameters{MaxBusyScore: 1} },
		"session-affinity-scorer":      func() parameters { p := sessionScorerParameters(defaultSession()); return &p },
		"endpoint-attribute-scorer":    func() parameters { return &attributeScorerParameters{} },
		"consistent-hash-scorer":       func() parameters { return &consistentHashParameters{LoadFactor: 1.25} },

		maxScorePicker:           func() parameters { return &pickerParameters{1, maxScore} },
		"random-picker":          func() parameters { return &pickerParameters{1, random} },
		"weighted-random-picker": func() parameters { return &pickerParameters{1, weightedRandom} },
		singleProfileHandler:     func() parameters { return &none{} },

		utilizationDetector: func() parameters {
			return &utilizationDetectorParameters{QueueDepthThreshold: 5, KVCacheUtilThreshold: 0.8, MetricsStalenessThreshold: duration(o.StaleAfter)}
		},
		"concurrency-detector": func() parameters {
			return &concurrencyParameters{ConcurrencyMode: concurrencyRequests, MaxConcurrency: 100, MaxTokenConcurrency: 1_000_000}
		},

		approxPrefixProducer: func() parameters { return defaultPrefixProducer() },
		tokenProducer:        func() parameters { return &tokenProducerParameters{} },
		inflightProducer:     func() parameters { return &inflightParameters{OutputRatio: 1.5} },
		sessionIDProducer:    func() parameters { return &sessionIDParameters{} },

		metricsDataSource: func() parameters {
			return &sourceParameters{Scheme: "http", Path: "/metrics", InsecureSkipVerify: true}
		},
		coreMetricsExtractor: func() parameters {
			return &extractorParameters{EngineLabelKey: engineLabel, DefaultEngine: defaultEngine}
		},
		"file-discovery": func() parameters { return &fileDiscoveryParameters{} },

		api.ParserOpenAI:      func() parameters { return &none{} },
		api.ParserAnthropic:   func() parameters { return &none{} },
		api.ParserVLLM:        func() parameters { return &none{} },
		api.ParserVLLMGRPC:    func() parameters { return &none{} },
		api.ParserSGLang:      func() parameters { return &none{} },
		api.ParserPassthrough: func() parameters { return &none{} },

		byLabel: func() parameters { return &byLabelParameters{} },
	}
}

// byLabel is the only old type whose parameters differ from those of the new one.
const byLabel = "by-label"

// aliases maps old names of types to current ones.
var aliases = map[string]string{
	"by-label-selector": "label-selector-filter",
	"tokenizer":         tokenProducer,
}

const (
	insteadPredicted   = "predicted-wait-scorer predicts first tokens without a sidecar"
	insteadApproximate = "prefix-cache-scorer uses the picker's own index, which needs no events and no tokenizer"
	insteadSplit       = "this version does not split prefill and decode over servers: use one profile, and decode-filter to exclude prefill servers"
	insteadFlow        = "flow control comes with a later version; until then a saturation detector sheds requests of negative priority"
	insteadTopology    = "label-selector-filter restricts requests to a zone or rack"
	insteadCluster     = "one picker serves one cluster: use the type without multicluster-"
	insteadMetrics     = "metrics-data-source with core-metrics-extractor; customMetrics accepts any metric of the page"
	insteadUnneeded    = "the picker does this without the plugin: leave it out"
	insteadMedia       = "prefix-cache-scorer also counts images and sounds of a prompt"
)

// rejected maps types of other pickers that this one does not have to their replacements.
var rejected = map[string]string{
	"predicted-latency-producer": insteadPredicted, "latency-scorer": insteadPredicted, "slo-headroom-tier-filter": insteadPredicted,
	"latency-slo-admitter": insteadPredicted, "probabilistic-admitter": insteadFlow,

	"precise-prefix-cache-scorer": insteadApproximate, "precise-prefix-cache-producer": insteadApproximate,
	"burst-prefix-cache-producer": "predicted-wait-scorer counts each request at once, so bursts need no window", "p2p-source-producer": insteadSplit,
	"no-hit-lru-scorer":            "predicted-wait-scorer or consistent-hash-scorer place prompts that no server has",
	"context-length-aware":         "label-selector-filter selects servers by their labels",
	"header-label-affinity-scorer": "label-selector-filter or session-affinity-scorer",
	"mm-embeddings-cache-scorer":   insteadMedia, "mm-embeddings-cache-producer": insteadMedia,
	"topology-affinity-filter": insteadTopology, "topology-affinity-scorer": insteadTopology, "topology-extractor": insteadTopology,

	"disagg-profile-handler": insteadSplit, "pd-profile-handler": insteadSplit, "disagg-headers-handler": insteadSplit, "prefill-header-handler": insteadSplit,
	"always-disagg-pd-decider": insteadSplit, "prefix-based-pd-decider": insteadSplit, "always-disagg-multimodal-decider": insteadSplit,
	"data-parallel-profile-handler": "each target port of the InferencePool is an endpoint: leave it out",
	"header-profile-handler":        "use one InferencePool for each profile",

	"global-strict-fairness-policy": insteadFlow, "round-robin-fairness-policy": insteadFlow, "program-aware-fairness": insteadFlow,
	"fcfs-ordering-policy": insteadFlow, "edf-ordering-policy": insteadFlow, "slo-deadline-ordering-policy": insteadFlow,
	"static-usage-limit-policy": insteadFlow, "priority-holdback-policy": insteadFlow, "soft-reflective-ceiling-policy": insteadFlow,
	"sheddable-eviction-filter": insteadFlow, "priority-then-time-eviction-order-policy": insteadFlow,
	"eviction-sheddable-filter": insteadFlow, "eviction-priority-then-time-ordering": insteadFlow,

	"vertexai-parser": "passthrough-parser", "agent-identity": "sessionIdConfig.sources of session-affinity-filter accepts any header",
	"request-attribute-reporter": insteadUnneeded, "destination-endpoint-served-verifier": insteadUnneeded,
	"disaggregatedset-rollout-screener": insteadSplit, "disaggregatedset-rollout-pod-extractor": insteadSplit,
	"models-data-source": insteadMetrics, "models-data-extractor": insteadMetrics, "dcgm-data-source": insteadMetrics, "dcgm-extractor": insteadMetrics,
	"endpoint-notification-source": insteadUnneeded, "k8s-notification-source": insteadUnneeded,
	"local-syncer": insteadUnneeded, "cross-replica-publisher": insteadUnneeded,

	"multicluster-session-affinity-filter": insteadCluster, "multicluster-queue-scorer": insteadCluster,
	"multicluster-kv-cache-utilization-scorer": insteadCluster, "multicluster-prefix-cache-scorer": insteadCluster,
	"multicluster-approx-prefix-cache-producer": insteadCluster, "multicluster-metrics-data-source": insteadCluster,
	"multicluster-metrics-extractor": insteadCluster, "multicluster-file-discovery": insteadCluster,
}

// kind returns the current name of a type, or nothing after a problem.
func (c *compiler) kind(path, name string) string {
	if instead, ok := rejected[name]; ok {
		c.errorf(path, "this picker has no %s: %s", name, instead)
		return ""
	}
	if now, ok := aliases[name]; ok {
		c.warnf(path, "%s is an old name: use %s", name, now)
		return now
	}
	if _, ok := c.kinds[name]; !ok {
		c.errorf(path, "%.100q is not a type of plugin: %s", name, meantType(name, c.kinds))
		return ""
	}
	if name == byLabel {
		c.warnf(path, "%s is old: use label-selector-filter", byLabel)
	}
	return name
}

// meantType returns a hint at a type, including unsupported ones.
func meantType(name string, known map[string]func() parameters) string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(known)), maps.Keys(rejected))
	slices.Sort(names)
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "see the documentation for those that there are"
}
