package logging

// Field keys. Each key has the same meaning in all services. Durations are in seconds.
const (
	KeyController = "controller" // name of the reconcile loop
	KeyNamespace  = "namespace"  // of the object
	KeyName       = "name"       // of the object
	KeyAttempt    = "attempt"    // number of the attempt for this object, starting at 1
	KeyKind       = "kind"       // of the object
	KeyResource   = "resource"   // group, version and plural name of a kind
	KeyPool       = "pool"       // namespace/name of an InferencePool
	KeyPod        = "pod"        // namespace/name of a Pod
	KeyEndpoint   = "endpoint"   // ip:port of a model server
	KeyAddress    = "address"    // host:port to listen on or to dial
	KeyRequestID  = "requestID"  // x-request-id of an HTTP request
	KeyTraceID    = "traceID"    // of a request's trace, in hexadecimal
	KeyPath       = "path"       // of an HTTP request, without its query
	KeyStatus     = "status"     // of an HTTP response
	KeyModel      = "model"      // LLM that the client requested
	KeyTarget     = "target"     // LLM that is requested from the model server
	KeyFairness   = "fairness"   // fairness ID of the request
	KeyObjective  = "objective"  // name of an InferenceObjective
	KeyPriority   = "priority"   // of a request
	KeyOutcome    = "outcome"    // result of an operation
	KeyReason     = "reason"     // reason for the outcome
	KeyDuration   = "duration"

	KeyLoadBalancer = "loadBalancer" // OCID
	KeyOperation    = "operation"    // of an API
	KeyWorkRequest  = "workRequest"  // OCID

	KeyVersion = "version" // of the running program
)
