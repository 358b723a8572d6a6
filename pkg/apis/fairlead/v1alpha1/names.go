package v1alpha1

// Names of the backendset-syncer.
const (
	// ConditionSynced is True while the backend set has all ready endpoints of the Service, and no others.
	ConditionSynced = "Synced"
	// FinalizerEmpty delays the deletion of a binding with the policy Empty until its backend set is empty.
	FinalizerEmpty = "fairlead.dev/empty-backend-set"
	// ReadinessGate is a readiness gate of pods: the condition of this type is True once load balancers send requests to the pod.
	ReadinessGate = "fairlead.dev/oci-lb-ready"
	// LabelInjectGate on a Namespace or a Pod, with the value "enabled", adds the readiness gate to new pods.
	LabelInjectGate = "fairlead.dev/oci-lb-ready-inject"
)

// Reasons of the condition Synced.
const (
	ReasonSynced              = "Synced"
	ReasonPending             = "Pending"
	ReasonConflict            = "Conflict"
	ReasonRateLimited         = "RateLimited"
	ReasonCapacityExceeded    = "CapacityExceeded"
	ReasonWorkRequestFailed   = "WorkRequestFailed"
	ReasonAuthFailed          = "AuthFailed"
	ReasonBackendsUnreachable = "BackendsUnreachable"

	ReasonNotAllowed              = "NotAllowed"
	ReasonServiceInvalid          = "ServiceInvalid"
	ReasonAddressesRefused        = "AddressesRefused"
	ReasonBackendSetNotFound      = "BackendSetNotFound"
	ReasonLoadBalancerUnavailable = "LoadBalancerUnavailable"
	ReasonRequestRefused          = "RequestRefused"
	ReasonDrifting                = "Drifting"
)
