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
	KeyDuration   = "duration"
	KeyVersion    = "version" // of the running program
	KeyCommit     = "commit"  // of the running program
)
