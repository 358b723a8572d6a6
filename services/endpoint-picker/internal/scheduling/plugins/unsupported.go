package plugins

const (
	usePredictedWait = "predicted-wait-scorer predicts first tokens without a sidecar"
	useApproximate   = "prefix-cache-scorer uses the picker's own index, which needs no events and no tokenizer"
	useMedia         = "prefix-cache-scorer also counts images and sounds of a prompt"
	useLabels        = "label-selector-filter restricts requests to a zone or rack"
	useOneCluster    = "one picker serves one cluster: use the type without multicluster-"
	useQueueScorer   = "queue-scorer prefers servers with short queues, and utilization-filter limits them"
	useMetrics       = "metrics-data-source with core-metrics-extractor; customMetrics accepts any metric of the page"

	// NoFlowControl and NoSplit say what to do without a feature that the picker does not have.
	NoFlowControl = "queues for full servers come with a later version; until then a saturation detector sheds requests of negative " +
		"priority"
	NoSplit = "this version does not split prefill and decode over servers: use one profile, and decode-filter to exclude prefill " +
		"servers"
	// NoReplicaPlugin says why plugins that connect replicas have no effect.
	NoReplicaPlugin = "replicas tell each other of their requests without a plugin (--replica-addresses)"
)

// replacements are types of other pickers that a configuration cannot use here, with what to use instead.
var replacements = map[string]string{
	"predicted-latency-producer": usePredictedWait, "latency-scorer": usePredictedWait, "slo-headroom-tier-filter": usePredictedWait,
	"latency-slo-admitter": usePredictedWait, "probabilistic-admitter": NoFlowControl,
	"predicted-latency-scorer": usePredictedWait, "slo-aware-routing": usePredictedWait, "slo-aware-profile-handler": usePredictedWait,

	"low-queue-filter": useQueueScorer, "least-queue-filter": useQueueScorer,
	"least-kv-cache-filter": "kv-cache-utilization-scorer prefers servers with free caches",
	"lora-affinity-filter":  "lora-affinity-scorer prefers servers with the adapter",
	"decision-tree-filter":  "list filters and weighted scorers in a profile of schedulingProfiles",
	"decode-pipeline-pressure-filter": "utilization-filter limits the queue and the cache; endpoint-attribute-filter limits any metric " +
		"of customMetrics",
	"prefill-pin-screener": NoSplit, "reserve-endpoint": NoSplit,
	"session-manager": "session-affinity-filter keeps the requests of a session on their server",

	"precise-prefix-cache-scorer": useApproximate, "precise-prefix-cache-producer": useApproximate,
	"burst-prefix-cache-producer":  "predicted-wait-scorer counts each request at once, so bursts need no window",
	"p2p-source-producer":          NoSplit,
	"context-length-aware":         "label-selector-filter selects servers by their labels",
	"header-label-affinity-scorer": "label-selector-filter or session-affinity-scorer",
	"mm-embeddings-cache-scorer":   useMedia, "mm-embeddings-cache-producer": useMedia,
	"topology-affinity-filter": useLabels, "topology-affinity-scorer": useLabels, "topology-extractor": useLabels,

	"disagg-profile-handler": NoSplit, "pd-profile-handler": NoSplit, "disagg-headers-handler": NoSplit, "prefill-header-handler": NoSplit,
	"always-disagg-pd-decider": NoSplit, "prefix-based-pd-decider": NoSplit, "always-disagg-multimodal-decider": NoSplit,
	"header-profile-handler": "use one InferencePool for each profile",

	"global-strict-fairness-policy": NoFlowControl, "round-robin-fairness-policy": NoFlowControl, "program-aware-fairness": NoFlowControl,
	"fcfs-ordering-policy": NoFlowControl, "edf-ordering-policy": NoFlowControl, "slo-deadline-ordering-policy": NoFlowControl,
	"static-usage-limit-policy": NoFlowControl, "priority-holdback-policy": NoFlowControl, "soft-reflective-ceiling-policy": NoFlowControl,
	"sheddable-eviction-filter": NoFlowControl, "priority-then-time-eviction-order-policy": NoFlowControl,
	"eviction-sheddable-filter": NoFlowControl, "eviction-priority-then-time-ordering": NoFlowControl,

	"vertexai-parser": "passthrough-parser", "agent-identity": "sessionIdConfig.sources of session-affinity-filter accepts any header",
	"disaggregatedset-rollout-screener": NoSplit, "disaggregatedset-rollout-pod-extractor": NoSplit,
	"model-server-protocol-models": useMetrics,
	"models-data-source":           useMetrics, "models-data-extractor": useMetrics, "dcgm-data-source": useMetrics,
	"dcgm-extractor": useMetrics,

	"multicluster-session-affinity-filter": useOneCluster, "multicluster-queue-scorer": useOneCluster,
	"multicluster-kv-cache-utilization-scorer": useOneCluster, "multicluster-prefix-cache-scorer": useOneCluster,
	"multicluster-approx-prefix-cache-producer": useOneCluster, "multicluster-metrics-data-source": useOneCluster,
	"multicluster-metrics-extractor": useOneCluster, "multicluster-file-discovery": useOneCluster,
}

// noHit is the reason why placement of prompts that no server has needs no plugin.
const noHit = "the other scorers place prompts that no server has, by load"

// unneeded are types of other pickers whose work this one does without a plugin, with the reason. A configuration may
// declare them and refer to them, as public manifests do, without effect.
var unneeded = map[string]string{
	"no-hit-lru-scorer":                    noHit,
	"no-hit-lru-filter":                    noHit,
	"outlen-bucket":                        "the picker learns the lengths of answers",
	"data-parallel-profile-handler":        "each target port of the InferencePool is an endpoint",
	"destination-endpoint-served-verifier": "header-based-testing-filter reports the endpoint that served a request, too",
	"request-attribute-reporter":           "the picker's metrics contain the usage of requests; the gateway does not get it",
	"endpoint-notification-source":         "the picker watches the endpoints itself",
	"k8s-notification-source":              "the picker watches its objects itself",
	"local-syncer":                         NoReplicaPlugin,
	"cross-replica-publisher":              NoReplicaPlugin,
}

// Replacement says what to use instead of a type that this picker does not have.
func Replacement(name string) (advice string, ok bool) {
	advice, ok = replacements[name]
	return advice, ok
}

// Unneeded says why this picker ignores a type.
func Unneeded(name string) (reason string, ok bool) {
	reason, ok = unneeded[name]
	return reason, ok
}
