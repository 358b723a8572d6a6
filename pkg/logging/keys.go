package logging

// Field keys, each with one meaning in all services. Durations are in seconds.
const (
	KeyController = "controller" // the worker loop that handles the object
	KeyNamespace  = "namespace"  // of the object in hand
	KeyName       = "name"       // of the object in hand
	KeyAttempt    = "attempt"    // how often this key was tried, from 1
	KeyKind       = "kind"       // of the object in hand
	KeyResource   = "resource"   // group, version and plural of a kind
	KeyPool       = "pool"       // namespace/name of an InferencePool
	KeyPod        = "pod"        // namespace/name of a Pod
	KeyEndpoint   = "endpoint"   // ip:port of a model server
	KeyAddress    = "address"    // host:port that we listen on or dial
	KeyRequestID  = "requestID"  // x-request-id of an HTTP request
	KeyTraceID    = "traceID"    // of a request's trace, in hexadecimal
	KeyPath       = "path"       // of an HTTP request, without its query
	KeyStatus     = "status"     // of an HTTP response
	KeyModel      = "model"      // LLM that was asked for
	KeyTarget     = "target"     // LLM that the server was asked for
	KeyFairness   = "fairness"   // whose request it is
	KeyObjective  = "objective"  // name of an InferenceObjective
	KeyPriority   = "priority"   // of a request
	KeyOutcome    = "outcome"    // how far something came
	KeyReason     = "reason"     // why it did not come further
	KeyDuration   = "duration"
	KeyVersion    = "version" // of the running program
	KeyCommit     = "commit"  // of the running program
)
