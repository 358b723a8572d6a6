package extproc

// ServiceName is the name of the gRPC service, also in health checks.
const ServiceName = "envoy.service.ext_proc.v3.ExternalProcessor"

// Names in the protocol of the Gateway API Inference Extension.
const (
	lbNamespace     = "envoy.lb" // request.HeaderDestination is a key, too
	keyServed       = "x-gateway-destination-endpoint-served"
	subsetNamespace = "envoy.lb.subset_hint"
	keySubset       = "x-gateway-destination-endpoint-subset"
	keyScores       = "x-gateway-destination-endpoint-scores" // of lbNamespace
)

// Names of HTTP headers in Envoy's form.
const (
	headerPath     = ":path"
	headerProtocol = ":protocol"
	headerStatus   = ":status"

	headerAccept          = "accept"
	headerConnection      = "connection"
	headerContentLength   = "content-length"
	headerContentType     = "content-type"
	headerContentEncoding = "content-encoding"
	headerTransfer        = "transfer-encoding"
	headerUpgrade         = "upgrade"

	contentGRPC  = "application/grpc"
	encodingNone = "identity"
)
