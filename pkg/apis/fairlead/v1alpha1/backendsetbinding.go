package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// BackendSetBinding keeps the backends of one existing backend set of an OCI Load Balancer equal to the ready endpoints of a
// Service. The binding owns all backends of the set. It does not change other fields of the set, except for the health checker
// if the binding specifies one.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=backendsetbindings,singular=backendsetbinding,shortName=bsb,categories=fairlead
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Backend Set",type=string,JSONPath=`.spec.backendSetName`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.serviceRef.name`
// +kubebuilder:printcolumn:name="Synced",type=string,JSONPath=`.status.conditions[?(@.type=="Synced")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Synced")].reason`
// +kubebuilder:printcolumn:name="Backends",type=integer,JSONPath=`.status.backends.active`
// +kubebuilder:printcolumn:name="Draining",type=integer,JSONPath=`.status.backends.draining`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BackendSetBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BackendSetBindingSpec `json:"spec"`
	// +optional
	Status BackendSetBindingStatus `json:"status,omitempty"`
}

// BackendSetBindingSpec names a backend set and a Service.
type BackendSetBindingSpec struct {
	// loadBalancerId is the OCID of the load balancer. The configuration of the backendset-syncer must list it. It cannot be changed.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.startsWith('ocid1.loadbalancer.')",message="must be the OCID of a load balancer, which starts with ocid1.loadbalancer. Network load balancers are not supported"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another binding"
	LoadBalancerID string `json:"loadBalancerId"`

	// backendSetName is the name of an existing backend set of the load balancer. It cannot be changed.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another binding"
	BackendSetName string `json:"backendSetName"`

	// serviceRef names a port of a Service in the namespace of the binding.
	ServiceRef ServiceReference `json:"serviceRef"`

	// weight is the weight of each backend.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Weight int32 `json:"weight,omitempty"`

	// drain limits the time for which a backend drains before it is removed.
	// +kubebuilder:default={}
	// +optional
	Drain Drain `json:"drain,omitempty"`

	// healthChecker replaces the health checker of the backend set. If it is absent, the binding does not change the health checker.
	// +optional
	HealthChecker *HealthChecker `json:"healthChecker,omitempty"`

	// deletionPolicy is what happens to the backends when the binding is deleted: Keep leaves the set as it is, Empty removes all
	// backends first.
	// +kubebuilder:default=Keep
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// ServiceReference names a port of a Service.
type ServiceReference struct {
	// name is the name of the Service.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// port is the name or the number of a port of the Service. Backends get the port of the endpoints (targetPort).
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? size(self) >= 1 && size(self) <= 63 : self >= 1 && self <= 65535",message="must be the name of a port, or a number from 1 to 65535"
	Port intstr.IntOrString `json:"port"`
}

// Drain limits the time for which a backend drains. A draining backend gets no new requests, and finishes those in flight.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minimum) || !has(self.maximum) || duration(self.minimum) <= duration(self.maximum)",message="minimum must not exceed maximum"
type Drain struct {
	// minimum is the least time for which a terminating endpoint stays in the set, even if its pod is gone before.
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="must be a duration from 0s to 24h"
	// +optional
	Minimum *metav1.Duration `json:"minimum,omitempty"`

	// maximum is the longest time for which an endpoint stays in the set while it terminates or is not ready.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="must be a duration from 0s to 24h"
	// +optional
	Maximum *metav1.Duration `json:"maximum,omitempty"`
}

// HealthChecker is the health checker of a backend set. Absent fields get the defaults of OCI.
//
// +kubebuilder:validation:XValidation:rule="self.protocol == 'HTTP' ? has(self.urlPath) : !has(self.urlPath)",message="urlPath is required for HTTP, and not allowed for TCP"
type HealthChecker struct {
	// protocol is HTTP or TCP.
	// +kubebuilder:validation:Enum=HTTP;TCP
	Protocol string `json:"protocol"`

	// urlPath is the path of HTTP requests.
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	URLPath string `json:"urlPath,omitempty"`

	// port is the port to check. 0 is the port of each backend.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`

	// returnCode is the status code of a healthy backend.
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=599
	// +optional
	ReturnCode int32 `json:"returnCode,omitempty"`

	// retries is the number of failed checks before a backend counts as unhealthy.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Retries int32 `json:"retries,omitempty"`

	// timeoutMilliseconds is the time limit of a check.
	// +kubebuilder:default=3000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600000
	// +optional
	TimeoutMilliseconds int32 `json:"timeoutMilliseconds,omitempty"`

	// intervalMilliseconds is the time between two checks.
	// +kubebuilder:default=10000
	// +kubebuilder:validation:Minimum=1000
	// +kubebuilder:validation:Maximum=1800000
	// +optional
	IntervalMilliseconds int32 `json:"intervalMilliseconds,omitempty"`
}

// DeletionPolicy is what happens to the backends of a set when its binding is deleted.
//
// +kubebuilder:validation:Enum=Keep;Empty
type DeletionPolicy string

// Deletion policies.
const (
	KeepBackends  DeletionPolicy = "Keep"
	EmptyBackends DeletionPolicy = "Empty"
)

// BackendSetBindingStatus is the observed state of a binding.
type BackendSetBindingStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// heldSince is the time since when the binding owns its backend set. Another binding of the same set waits until this one is
	// deleted.
	// +optional
	HeldSince *metav1.Time `json:"heldSince,omitempty"`

	// backends counts the backends of the set.
	// +optional
	Backends *BackendCounts `json:"backends,omitempty"`

	// conditions has the type Synced.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BackendCounts counts the backends of a set.
type BackendCounts struct {
	// active is the number of backends that get new requests.
	Active int32 `json:"active"`
	// draining is the number of backends that finish their requests.
	Draining int32 `json:"draining"`
	// waiting is the number of ready endpoints that the set does not have yet.
	Waiting int32 `json:"waiting"`
}

// BackendSetBindingList is a list of bindings.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type BackendSetBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []BackendSetBinding `json:"items"`
}
