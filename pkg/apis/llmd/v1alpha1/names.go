package v1alpha1

// LabelAccelerator on a VariantAutoscaling is the type of its accelerators, if spec.accelerator is absent.
const LabelAccelerator = "inference.optimization/acceleratorName"

// UnknownAccelerator replaces an accelerator that neither the spec nor the label has.
const UnknownAccelerator = "unknown"

// Types of conditions.
const (
	// ConditionReady sums the others up. It is True while the replicas of the variant follow the optimization. Otherwise, its reason is the
	// one of the condition that explains it.
	ConditionReady = "Ready"
	// ConditionApplied is True while the desired replicas have taken effect: autoscalers can follow them, or the workload has them.
	ConditionApplied = "Applied"
	// ConditionTargetResolved is True while the workload in spec.scaleTargetRef exists.
	ConditionTargetResolved = "TargetResolved"
	// ConditionDeploymentTargetConflict is True while another variant has the same workload.
	ConditionDeploymentTargetConflict = "DeploymentTargetConflict"
	// ConditionMetricsAvailable is True while the load of the model is known.
	ConditionMetricsAvailable = "MetricsAvailable"
	// ConditionOptimizationReady is True while the desired replicas come from an optimization. While it is False, the variant keeps its
	// previous replicas. Its reasons, and what excludes a variant, are reasons of Ready, too.
	ConditionOptimizationReady = "OptimizationReady"
	// ConditionCapacityLimited is True while a limit of accelerators, replicas or cost keeps the variant from replicas that the best plan
	// without it would have.
	ConditionCapacityLimited = "CapacityLimited"
	// ConditionBoundsBinding is True while minReplicas or maxReplicas keeps the variant from the replicas that its load needs.
	ConditionBoundsBinding = "BoundsBinding"
)

// Reasons of the condition TargetResolved.
const (
	// ReasonTargetFound is the reason while the workload exists.
	ReasonTargetFound = "TargetFound"
	// ReasonTargetNotFound is the reason while the workload does not exist.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonUnsupportedTarget is the reason while the workload is of a kind that the variant-autoscaler does not know, or that the cluster
	// does not have, or while OME has its replicas and the variant-autoscaler would write them.
	ReasonUnsupportedTarget = "UnsupportedTarget"
)

// Reasons of the condition DeploymentTargetConflict.
const (
	// ReasonNoConflict is the reason while no other variant has the workload.
	ReasonNoConflict = "NoConflict"
	// ReasonConflictResolvedByArbitration is the reason of the one variant that scales a workload which several variants have.
	ReasonConflictResolvedByArbitration = "ConflictResolvedByArbitration"
	// ReasonSuppressedDueToConflict is the reason of the other ones, of OptimizationReady, too.
	ReasonSuppressedDueToConflict = "SuppressedDueToConflict"
	// ReasonDeploymentTargetConflict is the reason of the condition Ready of the other ones.
	ReasonDeploymentTargetConflict = "DeploymentTargetConflict"
)

// Reasons of the condition MetricsAvailable.
const (
	// ReasonMetricsFound is the reason while the load is known.
	ReasonMetricsFound = "MetricsFound"
	// ReasonMetricsMissing is the reason while Prometheus has no series of the model.
	ReasonMetricsMissing = "MetricsMissing"
	// ReasonMetricsStale is the reason while the newest sample is too old.
	ReasonMetricsStale = "MetricsStale"
	// ReasonPrometheusError is the reason while Prometheus cannot be asked, or refuses the query.
	ReasonPrometheusError = "PrometheusError"
	// ReasonMetricsNotRead is the reason, with the status Unknown, of a variant whose load nothing has asked for, as the variant is
	// excluded.
	ReasonMetricsNotRead = "MetricsNotRead"
)

// Reasons of the condition Applied. Those of False are reasons of Ready, too.
const (
	// ReasonPublished is the reason while autoscalers can follow the desired replicas.
	ReasonPublished = "Published"
	// ReasonScaled is the reason while the workload has the desired replicas, which the variant-autoscaler writes. It is also that of an Event
	// of each write.
	ReasonScaled = "Scaled"
	// ReasonNotApplied is the reason while the desired replicas are not published yet, or not written as the variant is excluded.
	ReasonNotApplied = "NotApplied"
	// ReasonScaleConflict is the reason while the workload has other replicas than the decision was made on: somebody else has changed them. It
	// stays for a while if somebody changes them after each write.
	ReasonScaleConflict = "ScaleConflict"
	// ReasonScaleDeferred is the reason while the API server was too busy, or the pass had no time left, to write the replicas.
	ReasonScaleDeferred = "ScaleDeferred"
	// ReasonScaleForbidden is the reason while the API server does not permit the variant-autoscaler to write the replicas.
	ReasonScaleForbidden = "ScaleForbidden"
	// ReasonScaleFailed is the reason while the API server refuses to write the replicas otherwise.
	ReasonScaleFailed = "ScaleFailed"
	// ReasonTargetOwnedByAutoscaler is the reason while an autoscaler scales the workload that does not follow the variant-autoscaler. It is
	// also a reason of OptimizationReady.
	ReasonTargetOwnedByAutoscaler = "TargetOwnedByAutoscaler"
	// ReasonTargetOwnedByController is the reason while another object controls the workload, such as a DisaggregatedSet. It is also a reason
	// of OptimizationReady.
	ReasonTargetOwnedByController = "TargetOwnedByController"
)

// Reasons of the condition OptimizationReady, besides those of a target that is not resolved or not the variant's.
const (
	// ReasonOptimizationSucceeded is the reason while the replicas come from an optimization with the profile of the variant.
	ReasonOptimizationSucceeded = "OptimizationSucceeded"
	// ReasonSaturationOnlyMode is the reason, with the status True, while they come from an optimization with what replicas were seen to
	// serve, as the variant has no profile.
	ReasonSaturationOnlyMode = "SaturationOnlyMode"
	// ReasonProbing is the reason while a first replica is to show what it serves.
	ReasonProbing = "Probing"
	// ReasonOptimizationFailed is the reason while the optimization of all variants fails.
	ReasonOptimizationFailed = "OptimizationFailed"
	// ReasonMetricsUnavailable is the reason while the load is not known. The last decision stands.
	ReasonMetricsUnavailable = "MetricsUnavailable"
	// ReasonFallbackUsed is the reason while the load is not known and there is no last decision. The workload keeps the replicas that it
	// has, within the bounds.
	ReasonFallbackUsed = "FallbackUsed"
	// ReasonInvalidConfiguration is the reason while fields of the variant, or what several variants of a model say, cannot be true.
	ReasonInvalidConfiguration = "InvalidConfiguration"
	// ReasonNameConflict is the reason while an object of another kind declares a variant of the same name.
	ReasonNameConflict = "NameConflict"
	// ReasonLimitExceeded is the reason while the namespace has too many variants, or a number is larger than any that is possible.
	ReasonLimitExceeded = "LimitExceeded"
	// ReasonUnknownAccelerator is the reason while the accelerator has no price, but others of the model have one.
	ReasonUnknownAccelerator = "UnknownAccelerator"
	// ReasonUnsupportedRole is the reason while the pods have a role for which no replicas can be planned, or several roles.
	ReasonUnsupportedRole = "UnsupportedRole"
	// ReasonRoleMismatch is the reason while servers with the role prefill answer requests themselves.
	ReasonRoleMismatch = "RoleMismatch"
	// ReasonInventoryUnknown is the reason while the limiter is on, and nodes cannot be listed, or the objects of Kueue for a workload that
	// it manages, or the kinds of dynamic resource allocation for pods that claim devices.
	ReasonInventoryUnknown = "InventoryUnknown"
	// ReasonInventoryInvalid is the reason while a node that the variant could use, or a pod on it, or a quota of Kueue, has a number of cards
	// that cannot be true.
	ReasonInventoryInvalid = "InventoryInvalid"
	// ReasonQueueNotFound is the reason while the LocalQueue that the workload names, or its ClusterQueue, does not exist.
	ReasonQueueNotFound = "QueueNotFound"
	// ReasonQueueInactive is the reason while the LocalQueue or the ClusterQueue of the workload admits nothing.
	ReasonQueueInactive = "QueueInactive"
	// ReasonQuotaMissing is the reason while the ClusterQueue has no quota that the pod template can use.
	ReasonQuotaMissing = "QuotaMissing"
	// ReasonDevicesNotFound is the reason while the ResourceClaimTemplate of the pods, or its DeviceClass, does not exist.
	ReasonDevicesNotFound = "DevicesNotFound"
	// ReasonDevicesUnsupported is the reason while nobody can count the devices that the pods claim.
	ReasonDevicesUnsupported = "DevicesUnsupported"
	// ReasonNoServiceClass is the reason while no service class has the model: the plan is for a stable load.
	ReasonNoServiceClass = "NoServiceClass"
	// ReasonCapacityUnknown is the reason while nothing says what a replica serves.
	ReasonCapacityUnknown = "CapacityUnknown"
	// ReasonTargetsOutOfReach is the reason while no replica meets the targets: the plan is for a stable load.
	ReasonTargetsOutOfReach = "TargetsOutOfReach"
)

// Reasons of the condition CapacityLimited.
const (
	// ReasonCapacitySufficient is the reason while no limit matters.
	ReasonCapacitySufficient = "CapacitySufficient"
	// ReasonInsufficientAccelerators is the reason while a limit of accelerators matters.
	ReasonInsufficientAccelerators = "InsufficientAccelerators"
	// ReasonQuotaExceeded is the reason while a limit of replicas or of cost matters.
	ReasonQuotaExceeded = "QuotaExceeded"
)

// Reasons of the condition BoundsBinding.
const (
	// ReasonWithinBounds is the reason while the bounds do not matter.
	ReasonWithinBounds = "WithinBounds"
	// ReasonMinReplicasBinding is the reason while minReplicas, or the one of a schedule, demands more than the load.
	ReasonMinReplicasBinding = "MinReplicasBinding"
	// ReasonMaxReplicasBinding is the reason while maxReplicas, or the one of a schedule, permits less than the load needs.
	ReasonMaxReplicasBinding = "MaxReplicasBinding"
)

// Reasons of OptimizationReady that released versions of the workload variant autoscaler write. The variant-autoscaler does not.
const (
	// ReasonSkippedProcessing means that a pass left the variant out.
	ReasonSkippedProcessing = "SkippedProcessing"
	// ReasonSaturationSafetyOverride means that saturated replicas overruled the optimization.
	ReasonSaturationSafetyOverride = "SaturationSafetyOverride"
	// ReasonScaleFromZero means that queued requests woke the variant.
	ReasonScaleFromZero = "ScaleFromZero"
)
