package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VariantAutoscaling declares a variant of a model: a workload that serves the model, its cost, and the bounds of its replicas. The
// variant-autoscaler chooses the replicas of all variants together, so that the models meet their targets at the least cost.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=variantautoscalings,singular=variantautoscaling,shortName=va
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.modelID`
// +kubebuilder:printcolumn:name="VariantID",type=string,JSONPath=`.spec.variantID`
// +kubebuilder:printcolumn:name="Accelerator",type=string,JSONPath=`.spec.accelerator`
// +kubebuilder:printcolumn:name="CurrentReplicas",type=integer,JSONPath=`.status.currentAlloc.numReplicas`
// +kubebuilder:printcolumn:name="Optimized",type=integer,JSONPath=`.status.desiredOptimizedAlloc.numReplicas`
// +kubebuilder:printcolumn:name="MetricsReady",type=string,JSONPath=`.status.conditions[?(@.type=='MetricsAvailable')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.decision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VariantAutoscaling struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec VariantAutoscalingSpec `json:"spec"`
	// +optional
	Status VariantAutoscalingStatus `json:"status,omitempty"`
}

// VariantAutoscalingSpec declares a variant. Only scaleTargetRef and modelID are required. The schema sets no default, so that an absent
// field can be told from a written one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas >= self.minReplicas",message="maxReplicas must not be less than minReplicas"
type VariantAutoscalingSpec struct {
	// scaleTargetRef names the workload of the variant, in the namespace of the object.
	ScaleTargetRef ScaleTargetReference `json:"scaleTargetRef"`

	// modelID is the name of the model in requests. Variants with the same modelID and InferencePool share its load.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ModelID string `json:"modelID"`

	// variantID is {modelID}-{accelerator}-{acceleratorCount}. If it is absent, it is derived. It must agree with the other fields.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=700
	// +kubebuilder:validation:Pattern=`^.+-[A-Za-z0-9_-]+-[1-9][0-9]*$`
	// +optional
	VariantID string `json:"variantID,omitempty"`

	// accelerator is the type of the accelerators. If it is absent, the label inference.optimization/acceleratorName has it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Accelerator string `json:"accelerator,omitempty"`

	// acceleratorCount is the number of accelerators of one replica. If it is absent, the requests of the pod template have it.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +optional
	AcceleratorCount int32 `json:"acceleratorCount,omitempty"`

	// sloClassRef names a key of a ConfigMap with service classes. It has no effect: the class of a model is found by its modelID.
	// +optional
	SLOClassRef *ConfigMapKeyReference `json:"sloClassRef,omitempty"`

	// variantProfile has the service times of a replica. If it is absent, what a replica can serve is measured.
	// +optional
	VariantProfile *VariantProfile `json:"variantProfile,omitempty"`

	// variantCost is the cost of one replica, in any unit that all variants share. If it is absent, the cost is 10, or what the
	// ConfigMap accelerator-unit-costs says.
	// +kubebuilder:validation:Pattern=`^\d{1,7}(\.\d{1,20})?$`
	// +kubebuilder:validation:MaxLength=28
	// +optional
	VariantCost string `json:"variantCost,omitempty"`

	// minReplicas is the least number of replicas. 0 permits scaling to zero.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the largest number of replicas. If it is absent, there is no such number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// schedule replaces minReplicas and maxReplicas for times. The last entry that is in force counts.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Schedule []ScheduledBounds `json:"schedule,omitempty"`
}

// ScaleTargetReference names a workload.
type ScaleTargetReference struct {
	// apiVersion is the API version of the workload.
	// +kubebuilder:validation:MaxLength=317
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is the kind of the workload: Deployment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name is the name of the workload.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ConfigMapKeyReference names a key of a ConfigMap.
type ConfigMapKeyReference struct {
	// name is the name of the ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`

	// key is the key in the ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Key string `json:"key,omitempty"`
}

// VariantProfile has the service times of a replica.
type VariantProfile struct {
	// perfParms has the parameters of prefill and decode times.
	// +optional
	PerfParms PerfParms `json:"perfParms,omitempty"`

	// maxBatchSize is the number of requests that a replica serves at the same time.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	// +optional
	MaxBatchSize int32 `json:"maxBatchSize,omitempty"`
}

// PerfParms has the parameters of service times, in milliseconds, as decimal numbers.
type PerfParms struct {
	// decodeParms has alpha and beta: a token takes alpha + beta × batch.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 63)",message="names of parameters have at most 63 characters"
	// +optional
	DecodeParms map[string]Parameter `json:"decodeParms,omitempty"`

	// prefillParms has gamma and delta: a prefill takes gamma + delta × input tokens × batch.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 63)",message="names of parameters have at most 63 characters"
	// +optional
	PrefillParms map[string]Parameter `json:"prefillParms,omitempty"`
}

// Parameter is a decimal number. The schema does not check it, as released versions do not: a bad one gets the reason
// InvalidConfiguration.
//
// +kubebuilder:validation:MaxLength=64
type Parameter string

// ScheduledBounds are bounds for a time: from each time of a cron expression, for a duration.
//
// +kubebuilder:validation:XValidation:rule="has(self.minReplicas) || has(self.maxReplicas)",message="minReplicas or maxReplicas is required"
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas >= self.minReplicas",message="maxReplicas must not be less than minReplicas"
type ScheduledBounds struct {
	// cron is a cron expression with five fields: minute, hour, day of month, month, day of week.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Cron string `json:"cron"`

	// timeZone is the name of a time zone, such as Europe/Berlin. If it is absent, it is UTC.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// duration is the time for which the bounds apply, at most a week: 8h, 90m. It is real time, also if clocks are changed meanwhile.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be a duration from 1m to 168h"
	Duration string `json:"duration"`

	// minReplicas replaces spec.minReplicas.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// maxReplicas replaces spec.maxReplicas.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}

// VariantAutoscalingList is a list of variants.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type VariantAutoscalingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []VariantAutoscaling `json:"items"`
}
