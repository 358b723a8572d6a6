package api

// A Header is one header field. Its name is in lower case.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Headers are header fields in their original order.
type Headers []Header

// ValueOf returns the first value of a name in lower case, or an empty value.
func (h Headers) ValueOf(name string) string {
	for i := range h {
		if h[i].Name == name {
			return h[i].Value
		}
	}
	return ""
}

// FirstOf returns the first value of several names, or an empty value.
func (h Headers) FirstOf(names ...string) string {
	for _, name := range names {
		if v := h.ValueOf(name); v != "" {
			return v
		}
	}
	return ""
}

// Headers that control a pick. The second of a pair is the older name of the first.
const (
	HeaderFairness     = "x-llm-d-inference-fairness-id" // flow of the request
	HeaderFairnessOld  = "x-gateway-inference-fairness-id"
	HeaderObjective    = "x-llm-d-inference-objective" // name of an InferenceObjective
	HeaderObjectiveOld = "x-gateway-inference-objective"
	HeaderModel        = "x-llm-d-model-name-rewrite" // the model to request from the server
	HeaderModelOld     = "x-gateway-model-name-rewrite"
	HeaderTimeout      = "x-envoy-expected-rq-timeout-ms" // time that an Envoy in front waits for the answer
	HeaderSelection    = "test-epp-endpoint-selection"    // endpoints to pick from, for tests of gateways
)

// Headers with the original destination of a request, for gateways that do not send :path.
const (
	headerOriginalPath  = "x-original-path"
	headerForwardedPath = "x-forwarded-path"
)

// Headers that describe a body.
const (
	headerContentType     = "content-type"
	headerContentEncoding = "content-encoding"
)

// A Control is a header that every pick reads.
type Control struct {
	Name string
	// Private headers are for pickers, or from them to the proxies beside model servers. A client's own must be removed:
	// those proxies would connect to any address in it.
	Private bool
}

// Controls returns all control headers.
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
		{HeaderTimeout, false},
		{HeaderSelection, false},
		{headerOriginalPath, false},
		{headerForwardedPath, false},
		{headerContentType, false},
		{headerContentEncoding, false},
	}
}
