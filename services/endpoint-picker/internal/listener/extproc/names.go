package extproc

import "fairlead.dev/services/endpoint-picker/internal/request"

// ServiceName is the name of the gRPC service, also in health checks.
const ServiceName = "envoy.service.ext_proc.v3.ExternalProcessor"

// Names in the protocol of the Gateway API Inference Extension.
const (
	headerDestination   = request.HeaderDestination // also a key of lbNamespace
	headerDroppedReason = request.HeaderDropped
	lbNamespace         = "envoy.lb"
	keyServed           = "x-gateway-destination-endpoint-served"
	subsetNamespace     = "envoy.lb.subset_hint"
	keySubset           = "x-gateway-destination-endpoint-subset"
	keyScores           = "x-gateway-destination-endpoint-scores" // of lbNamespace
)

// Names of HTTP headers in Envoy's form.
const (
	headerPath      = ":path"
	headerProtocol  = ":protocol"
	headerStatus    = ":status"
	headerRequestID = request.HeaderRequestID
	headerTrace     = request.HeaderTrace

	headerAccept          = "accept"
	headerConnection      = "connection"
	headerContentLength   = "content-length"
	headerContentType     = "content-type"
	headerContentEncoding = "content-encoding"
	headerRetryAfter      = "retry-after"
	headerTransfer        = "transfer-encoding"
	headerUpgrade         = "upgrade"

	contentGRPC  = "application/grpc"
	encodingNone = "identity"
)
