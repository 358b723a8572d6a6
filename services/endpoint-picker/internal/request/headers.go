package request

// Headers that steer a pick. Of a pair the second is the older name of the first.
const (
	HeaderFairness     = "x-llm-d-inference-fairness-id" // whose request it is
	HeaderFairnessOld  = "x-gateway-inference-fairness-id"
	HeaderObjective    = "x-llm-d-inference-objective" // name of an InferenceObjective
	HeaderObjectiveOld = "x-gateway-inference-objective"
	HeaderModel        = "x-llm-d-model-name-rewrite" // the model to ask the server for
	HeaderModelOld     = "x-gateway-model-name-rewrite"
	HeaderSelection    = "test-epp-endpoint-selection" // endpoints among which to pick, for tests of gateways
)

// Headers that only say where a request was meant to go, for gateways that do not show :path.
const (
	headerOriginalPath  = "x-original-path"
	headerForwardedPath = "x-forwarded-path"
)

// A Control is a header that is wanted of every request.
type Control struct {
	Name string
	// Private headers are for pickers, or from them to the proxies beside model servers. A client's own must not get
	// through: those proxies would connect wherever it says.
	Private bool
}

// Controls returns all of them.
func Controls() []Control {
	return []Control{
		{HeaderFairness, true},
		{HeaderFairnessOld, true},
		{HeaderObjective, true},
		{HeaderObjectiveOld, true},
		{HeaderModel, true},
		{HeaderModelOld, true},
		{"x-llm-d-slo-ttft-ms", true},
		{"x-slo-ttft-ms", true},
		{"x-llm-d-slo-tpot-ms", true},
		{"x-slo-tpot-ms", true},
		{"x-prefiller-host-port", true},
		{"x-encoder-hosts-ports", true},
		{"x-data-parallel-host-port", true},
		{"x-kv-cache-source-host-port", true},
		{"x-gateway-destination-endpoint-served", true},
		{"x-gateway-destination-endpoint-subset", true},
		{HeaderSelection, false},
		{headerOriginalPath, false},
		{headerForwardedPath, false},
	}
}

// First returns the first value under one of several names; empty if there is none.
func (h Headers) First(names ...string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}
