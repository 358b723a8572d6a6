package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// YurtIngressStatus is the observed state of a YurtIngress.
type YurtIngressStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ingress_controller_replicas_per_pool is the number of replicas that each pool should have, unless its entry in spec.pools replaces it.
	// +optional
	Replicas int32 `json:"ingress_controller_replicas_per_pool"`

	// conditions lists the ready pools and those that are not. It is an object, not a list, in all releases of OpenYurt's operator. Lists of
	// conditions are in objectConditions and in pools[].conditions.
	// +optional
	Conditions YurtIngressCondition `json:"conditions,omitempty"`

	// ingress_controller_image is the image of the ingress controllers, unless the entry of a pool in spec.pools replaces it.
	// +optional
	Image string `json:"ingress_controller_image"`

	// ingress_webhook_certgen_image is always empty: pools have no admission webhooks.
	// +optional
	CertGenImage string `json:"ingress_webhook_certgen_image"`

	// readyNum is the number of ready pools.
	// +optional
	ReadyNum int32 `json:"readyNum"`

	// unreadyNum is the number of pools that are not ready.
	// +optional
	UnreadyNum int32 `json:"unreadyNum"`

	// profile is the profile of the ingress controllers.
	// +optional
	Profile string `json:"profile,omitempty"`

	// objectConditions has the types Accepted and Ready, for the whole object.
	// +listType=map
	// +listMapKey=type
	// +optional
	ObjectConditions []metav1.Condition `json:"objectConditions,omitempty"`

	// pools has the state of each pool in spec.pools, and of pools that are being removed.
	// +listType=map
	// +listMapKey=name
	// +optional
	Pools []PoolStatus `json:"pools,omitempty"`
}

// YurtIngressCondition lists pools by their state, as the status of OpenYurt's operator does.
type YurtIngressCondition struct {
	// readypools has the names of the ready pools.
	// +listType=atomic
	// +optional
	ReadyPools []string `json:"readypools,omitempty"`

	// unreadypools has the pools that are not ready.
	// +listType=atomic
	// +optional
	UnreadyPools []IngressNotReadyPool `json:"unreadypools,omitempty"`
}

// IngressNotReadyPool is a pool that is not ready.
type IngressNotReadyPool struct {
	// pool names the pool, with its addresses.
	Pool NotReadyPoolReference `json:"pool"`

	// unreadyinfo tells why the pool is not ready.
	// +optional
	Info *IngressNotReadyInfo `json:"unreadyinfo,omitempty"`
}

// NotReadyPoolReference names a pool, with its addresses.
type NotReadyPoolReference struct {
	// name is the name of the pool.
	Name string `json:"name"`
	// ingress_ips are the addresses of the pool.
	// +listType=atomic
	// +optional
	IngressIPs []string `json:"ingress_ips,omitempty"`
}

// Types of IngressNotReadyInfo.
const (
	// NotReadyPending is the type of a pool that is expected to become ready.
	NotReadyPending = "Pending"
	// NotReadyFailure is the type of a pool that needs help.
	NotReadyFailure = "Failure"
)

// IngressNotReadyInfo tells why a pool is not ready.
type IngressNotReadyInfo struct {
	// type is Pending or Failure.
	// +optional
	Type string `json:"type,omitempty"`
	// lastTransitionTime is the time of the last change of type.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// reason is the reason of the condition Ready of the pool.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is the message of the condition Ready of the pool.
	// +optional
	Message string `json:"message,omitempty"`
}

// PoolStatus is the state of a pool.
type PoolStatus struct {
	// name is the name of the pool.
	Name string `json:"name"`

	// ingressClassName is the class of the Ingresses that the pool serves. It is absent while another YurtIngress has the pool.
	// +optional
	IngressClassName string `json:"ingressClassName,omitempty"`

	// image is the image of the ingress controller in the pool.
	// +optional
	Image string `json:"image,omitempty"`

	// nodes is the number of nodes of the pool.
	// +optional
	Nodes int32 `json:"nodes"`

	// readyNodes is the number of ready nodes of the pool.
	// +optional
	ReadyNodes int32 `json:"readyNodes"`

	// replicas is the number of replicas that the pool should have.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of ready replicas.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// addresses are the addresses at which the pool is reached, if its Service has any.
	// +listType=atomic
	// +optional
	Addresses []string `json:"addresses,omitempty"`

	// conditions has the types Accepted, Programmed and Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
