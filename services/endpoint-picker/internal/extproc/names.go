package extproc

// ServiceName is the gRPC service, under which its health is asked for as well.
const ServiceName = "envoy.service.ext_proc.v3.ExternalProcessor"

// Names that the protocol of the Gateway API Inference Extension fixes.
const (
	headerDestination   = "x-gateway-destination-endpoint" // also a key of lbNamespace
	headerDroppedReason = "x-llm-d-request-dropped-reason"
	lbNamespace         = "envoy.lb"
	keyServed           = "x-gateway-destination-endpoint-served"
	subsetNamespace     = "envoy.lb.subset_hint"
	keySubset           = "x-gateway-destination-endpoint-subset"
	keyScores           = "x-gateway-destination-endpoint-scores" // of lbNamespace
)

// Names of HTTP, as Envoy has them.
const (
	headerPath      = ":path"
	headerStatus    = ":status"
	headerRequestID = "x-request-id"
	headerTrace     = "traceparent"

	headerContentLength   = "content-length"
	headerContentType     = "content-type"
	headerContentEncoding = "content-encoding"
	headerRetryAfter      = "retry-after"

	contentEvents = "text/event-stream"
	encodingNone  = "identity"
)

// headerConformance names the endpoint that served, for conformance tests of gateways.
const headerConformance = "x-conformance-test-served-endpoint"

// headerPicked is ours: the picked endpoint, for clients, if that is asked for.
const headerPicked = "x-fairlead-picked-endpoint"
