package v1alpha1

// Finalizer keeps a YurtIngress until all of its objects are gone. OpenYurt's operator has the same finalizer.
const Finalizer = "ingress.operator.openyurt.io"

// LabelNodePool on a node is the name of its NodePool.
const LabelNodePool = "apps.openyurt.io/nodepool"

// Labels and annotations of objects that the nodepool-ingress writes.
const (
	// LabelManagedBy has the value Manager.
	LabelManagedBy = "fairlead.dev/managed-by"
	// LabelOwner is the UID of the YurtIngress of an object.
	LabelOwner = "fairlead.dev/yurtingress-uid"
	// LabelPool is the pool of an object.
	LabelPool = "fairlead.dev/pool"
	// AnnotationRevision on a Deployment is a hash of all objects of the pool as they were applied, without the number of replicas.
	AnnotationRevision = "fairlead.dev/pool-revision"
	// AnnotationServed on an IngressClass is the group and version of the custom resources that its controller reads, such as traefik.io/v1alpha1. Without
	// it, the controller of a pool reads none. Administrators can set it on classes that no pool has: without it, nobody knows.
	AnnotationServed = "fairlead.dev/custom-resources"
	// Manager is the field manager, and the value of LabelManagedBy.
	Manager = "nodepool-ingress"
)

// LabelCustomManifest must be "true" on a ConfigMap with a custom manifest.
const LabelCustomManifest = "fairlead.dev/custom-manifest"

// DefaultManifestKey is the default of spec.customManifest.key.
const DefaultManifestKey = "manifest.yaml"

// Profiles.
const (
	ProfileTraefik        = "traefik"
	ProfileCustom         = "custom"
	ProfileHAProxyTech    = "haproxytech"
	ProfileHAProxyIngress = "haproxy-ingress"
	ProfileF5NGINX        = "nginx-f5"
	ProfileIngressNGINX   = "ingress-nginx"
)

// Profiles lists the profiles.
func Profiles() []string {
	return []string{ProfileTraefik, ProfileCustom, ProfileHAProxyTech, ProfileHAProxyIngress, ProfileF5NGINX, ProfileIngressNGINX}
}

// Types of exposure.
const (
	ExposureNodePort     = "NodePort"
	ExposureLoadBalancer = "LoadBalancer"
	ExposureHostPort     = "HostPort"
	ExposureHostNetwork  = "HostNetwork"
	ExposureClusterIP    = "ClusterIP"
	ExposureExternalIPs  = "ExternalIPs"
)

// Exposures lists the types of exposure.
func Exposures() []string {
	return []string{ExposureNodePort, ExposureLoadBalancer, ExposureHostPort, ExposureHostNetwork, ExposureClusterIP, ExposureExternalIPs}
}

// Values of spec.spread.
const (
	SpreadPreferred = "Preferred"
	SpreadRequired  = "Required"
	SpreadNone      = "None"
)

// Types of conditions. Those of a pool are in status.pools[].conditions, those of the whole object in status.objectConditions.
const (
	// ConditionAccepted is True if the spec is valid, and the pool is not another YurtIngress's.
	ConditionAccepted = "Accepted"
	// ConditionProgrammed is True while all objects of the pool are as the spec wants them.
	ConditionProgrammed = "Programmed"
	// ConditionReady is True while all replicas of the pool are up to date and available. For the whole object, while all pools are ready.
	ConditionReady = "Ready"
)

// Reasons of the condition Accepted.
const (
	// ReasonAccepted is the reason of the status True.
	ReasonAccepted = "Accepted"
	// ReasonInvalid means that a field has an invalid value.
	ReasonInvalid = "Invalid"
	// ReasonFieldConflict means that both names of a field are set, with different values.
	ReasonFieldConflict = "FieldConflict"
	// ReasonNotAllowed means that the flags of the operator do not allow a value.
	ReasonNotAllowed = "NotAllowed"
	// ReasonLimitExceeded means that the object has too many pools.
	ReasonLimitExceeded = "LimitExceeded"
	// ReasonPoolNotFound means that neither a NodePool nor a node with the label of the pool exists.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonPoolConflict means that another YurtIngress has the pool.
	ReasonPoolConflict = "PoolConflict"
	// ReasonNameConflict means that an object has a name that the pool needs, and another owner.
	ReasonNameConflict = "NameConflict"
	// ReasonInvalidManifest means that the custom manifest is missing or cannot be used.
	ReasonInvalidManifest = "InvalidManifest"
)

// Reasons of the condition Programmed, besides those of Accepted.
const (
	// ReasonProgrammed is the reason of the status True.
	ReasonProgrammed = "Programmed"
	// ReasonWaiting means that a roll-out has not come to the pool yet.
	ReasonWaiting = "Waiting"
	// ReasonPaused means that spec.updateStrategy.paused stops the roll-out.
	ReasonPaused = "Paused"
	// ReasonStopped means that the roll-out has stopped, because another pool failed.
	ReasonStopped = "RolloutStopped"
	// ReasonNotWritten means that the API server refused an object of the pool.
	ReasonNotWritten = "NotWritten"
	// ReasonAdmissionRejected means that an admission webhook refused an object.
	ReasonAdmissionRejected = "AdmissionRejected"
	// ReasonRemoving means that the objects of the pool are being deleted.
	ReasonRemoving = "Removing"
)

// Reasons of the condition Ready, besides those of Programmed.
const (
	// ReasonReady is the reason of the status True.
	ReasonReady = "Ready"
	// ReasonScaledToZero is the reason of the status True of a pool with 0 replicas.
	ReasonScaledToZero = "ScaledToZero"
	// ReasonProgressing means that not all replicas are up to date and available yet.
	ReasonProgressing = "Progressing"
	// ReasonNoReadyNodes means that the pool has no ready node.
	ReasonNoReadyNodes = "NoReadyNodes"
	// ReasonDeadlineExceeded means that the replicas have not become ready within spec.updateStrategy.progressDeadlineSeconds.
	ReasonDeadlineExceeded = "ProgressDeadlineExceeded"
	// ReasonReplicaFailure means that pods cannot be created.
	ReasonReplicaFailure = "ReplicaFailure"
	// ReasonPoolsNotReady means that at least one pool is not ready.
	ReasonPoolsNotReady = "PoolsNotReady"
)

// Reasons of Events that are no reasons of conditions.
const (
	// ReasonFieldIgnored means that a field of OpenYurt's operator has no effect.
	ReasonFieldIgnored = "FieldIgnored"
	// ReasonOutdatedCRD means that the CRD in the cluster lacks fields.
	ReasonOutdatedCRD = "OutdatedCRD"
)
