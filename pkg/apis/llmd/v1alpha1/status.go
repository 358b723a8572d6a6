package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VariantAutoscalingStatus is the last decision on a variant. It is written only when something in it changes: a change of figures alone, in
// predicted or in messages, is written after ten minutes.
type VariantAutoscalingStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// currentAlloc is what the workload has.
	// +optional
	CurrentAlloc *Allocation `json:"currentAlloc,omitempty"`

	// desiredOptimizedAlloc is what the workload should have. It is absent before the first decision.
	// +optional
	DesiredOptimizedAlloc *OptimizedAllocation `json:"desiredOptimizedAlloc,omitempty"`

	// decision is the reason of desiredOptimizedAlloc, or what excludes the variant from decisions.
	// +optional
	Decision string `json:"decision,omitempty"`

	// predicted has the figures that the model predicts for the desired replicas. It is absent without load.
	// +optional
	Predicted *Prediction `json:"predicted,omitempty"`

	// startSeconds is how long replicas took to start, as the median of the last ones: from the creation of a pod until it was ready. It is
	// absent until a start was seen. The next leader begins with it.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	StartSeconds int32 `json:"startSeconds,omitempty"`

	// actuation tells whether the decision has taken effect.
	// +optional
	Actuation *Actuation `json:"actuation,omitempty"`

	// conditions has the types Ready, Applied, TargetResolved, DeploymentTargetConflict, MetricsAvailable, OptimizationReady, CapacityLimited and
	// BoundsBinding.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Allocation is what a workload has.
type Allocation struct {
	// numReplicas is the number of replicas in the spec of the workload.
	// +kubebuilder:validation:Minimum=0
	// +optional
	NumReplicas int32 `json:"numReplicas"`

	// accelerator is deprecated: read spec.accelerator. It is not written.
	// +optional
	Accelerator string `json:"accelerator,omitempty"`
	// maxBatch is deprecated: read spec.variantProfile.maxBatchSize. It is not written.
	// +optional
	MaxBatch int32 `json:"maxBatch,omitempty"`
	// variantCost is deprecated: read spec.variantCost. It is not written.
	// +optional
	VariantCost string `json:"variantCost,omitempty"`
	// itlAverage is deprecated: read status.predicted.itl. It is not written.
	// +optional
	ITLAverage string `json:"itlAverage,omitempty"`
	// ttftAverage is deprecated: read status.predicted.ttft. It is not written.
	// +optional
	TTFTAverage string `json:"ttftAverage,omitempty"`
	// load is deprecated: read the metrics of the variant-autoscaler. It is not written.
	// +optional
	Load *LoadProfile `json:"load,omitempty"`
}

// LoadProfile is deprecated.
type LoadProfile struct {
	// arrivalRate is deprecated.
	// +optional
	ArrivalRate string `json:"arrivalRate,omitempty"`
	// avgInputTokens is deprecated.
	// +optional
	AvgInputTokens string `json:"avgInputTokens,omitempty"`
	// avgOutputTokens is deprecated.
	// +optional
	AvgOutputTokens string `json:"avgOutputTokens,omitempty"`
}

// OptimizedAllocation is what a workload should have. It is always written whole: some released schemas require all of its fields.
type OptimizedAllocation struct {
	// lastRunTime is the time of the decision that was written last. Later decisions that change nothing are not written.
	// +optional
	LastRunTime *metav1.Time `json:"lastRunTime,omitempty"`

	// accelerator is the type of the accelerators, or "unknown".
	// +optional
	Accelerator string `json:"accelerator,omitempty"`

	// numReplicas is the number of replicas.
	// +kubebuilder:validation:Minimum=0
	// +optional
	NumReplicas *int32 `json:"numReplicas,omitempty"`

	// lastUpdate is the last change of numReplicas or of its reason.
	// +optional
	LastUpdate *AllocationUpdate `json:"lastUpdate,omitempty"`
}

// AllocationUpdate is a change of a decision.
type AllocationUpdate struct {
	// updateTime is the time of the change.
	// +optional
	UpdateTime *metav1.Time `json:"updateTime,omitempty"`

	// numReplicasChanged is the difference of the replicas. A larger difference is written as the largest possible one.
	// +kubebuilder:validation:Minimum=-10000
	// +kubebuilder:validation:Maximum=10000
	// +optional
	NumReplicasChanged int32 `json:"numReplicasChanged"`

	// reason is the value of status.decision at that time.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// Prediction has the figures of one replica under its part of the load, for people: 812ms, 24ms, 73%.
type Prediction struct {
	// ttft is the time to the first token, at the percentile of the targets.
	// +optional
	TTFT string `json:"ttft,omitempty"`
	// itl is the mean time between two tokens.
	// +optional
	ITL string `json:"itl,omitempty"`
	// utilization is the part of the batch that is in use.
	// +optional
	Utilization string `json:"utilization,omitempty"`
}

// Actuation tells whether a decision has taken effect.
type Actuation struct {
	// applied is true if the desired replicas are published, as a metric or to KEDA. If the variant-autoscaler writes replicas itself
	// (--actuator=scale), it is true if the workload has them, or an autoscaler of the workload follows.
	// +optional
	Applied bool `json:"applied"`
}
