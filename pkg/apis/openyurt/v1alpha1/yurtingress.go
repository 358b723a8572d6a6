package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// YurtIngress installs one ingress controller in each of a list of node pools. The controller of a pool runs on the nodes of the pool and
// serves the Ingresses whose class is the name of the pool.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=yurtingresses,singular=yurtingress,shortName=ying,categories=all,scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Replicas-Per-Pool",type=integer,JSONPath=`.status.ingress_controller_replicas_per_pool`
// +kubebuilder:printcolumn:name="ReadyNum",type=integer,JSONPath=`.status.readyNum`
// +kubebuilder:printcolumn:name="NotReadyNum",type=integer,JSONPath=`.status.unreadyNum`
// +kubebuilder:printcolumn:name="Profile",type=string,JSONPath=`.status.profile`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.objectConditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type YurtIngress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec YurtIngressSpec `json:"spec,omitempty"`
	// +optional
	Status YurtIngressStatus `json:"status,omitempty"`
}

// YurtIngressSpec declares the pools, and how their ingress controllers run. Fields of OpenYurt's operator have two names, from different
// releases. Set one of them: if both are set and differ, the object is not accepted.
type YurtIngressSpec struct {
	// ingress_controller_replicas_per_pool is the number of replicas of the ingress controller in each pool. The default is 1. With 0, a pool
	// keeps its IngressClass and its Service, but serves nothing.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Replicas *int32 `json:"ingress_controller_replicas_per_pool,omitempty"`
	// ingressControllerReplicasPerPool is another name of ingress_controller_replicas_per_pool.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	ReplicasCamel *int32 `json:"ingressControllerReplicasPerPool,omitempty"`

	// ingress_controller_image is the image of the ingress controller. The operator permits only the repositories of its flag
	// --allowed-images. The default is the image of the profile.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Image string `json:"ingress_controller_image,omitempty"`
	// ingressControllerImage is another name of ingress_controller_image.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	ImageCamel string `json:"ingressControllerImage,omitempty"`

	// ingress_webhook_certgen_image has no effect, because pools have no admission webhooks. The condition Accepted names it.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	CertGenImage string `json:"ingress_webhook_certgen_image,omitempty"`
	// ingressWebhookCertGenImage is another name of ingress_webhook_certgen_image.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	CertGenImageCamel string `json:"ingressWebhookCertGenImage,omitempty"`

	// pools lists the pools with an ingress controller. Roll-outs visit them in this order.
	// +kubebuilder:validation:MaxItems=500
	// +listType=atomic
	// +optional
	Pools []IngressPool `json:"pools,omitempty"`

	// profile selects the ingress controller. The default is that of the operator's flag --default-profile, traefik.
	// +kubebuilder:validation:Enum=traefik;custom;haproxytech;haproxy-ingress;nginx-f5;ingress-nginx
	// +optional
	Profile string `json:"profile,omitempty"`

	// customManifest names the manifest of the profile custom.
	// +optional
	CustomManifest *CustomManifest `json:"customManifest,omitempty"`

	// poolLabelKey is the key of the node label whose value is the pool. The operator permits only the keys of its flag --pool-label-keys. The
	// default is the first of them, apps.openyurt.io/nodepool.
	// +kubebuilder:validation:MaxLength=317
	// +optional
	PoolLabelKey string `json:"poolLabelKey,omitempty"`

	// exposure is how clients reach the ingress controller of a pool. The default is NodePort with random ports. A pool with addresses has
	// ExternalIPs by default.
	// +optional
	Exposure *Exposure `json:"exposure,omitempty"`

	// updateStrategy limits the pools that change at the same time.
	// +optional
	UpdateStrategy *UpdateStrategy `json:"updateStrategy,omitempty"`

	// cacheSidecar runs the edge-cache beside each ingress controller. A pool then serves only the endpoints of its own nodes, and goes on
	// serving while the API server cannot be reached.
	// +optional
	CacheSidecar *CacheSidecar `json:"cacheSidecar,omitempty"`

	// spread distributes the replicas of a pool over its nodes. The default is Preferred.
	// +kubebuilder:validation:Enum=Preferred;Required;None
	// +optional
	Spread string `json:"spread,omitempty"`

	// tolerations are added to those of the pods, which tolerate nodes that are not ready or cannot be reached.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// resources are the requests and limits of the ingress controller. The default depends on the profile.
	// +optional
	Resources *Resources `json:"resources,omitempty"`
}

// IngressPool is a pool with an ingress controller.
type IngressPool struct {
	// name is the name of a NodePool, or the value of the label of its nodes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// ingress_ips are the addresses of the pool: externalIPs of its Service, or the addresses that a LoadBalancer should have.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=45
	// +listType=atomic
	// +optional
	IngressIPs []string `json:"ingress_ips,omitempty"`
	// ingressIPs is another name of ingress_ips.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=45
	// +listType=atomic
	// +optional
	IngressIPsCamel []string `json:"ingressIPs,omitempty"`

	// replicas replaces ingress_controller_replicas_per_pool for the pool.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// image replaces ingress_controller_image for the pool.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Image string `json:"image,omitempty"`

	// exposure replaces spec.exposure for the pool.
	// +optional
	Exposure *Exposure `json:"exposure,omitempty"`
}

// CustomManifest names a manifest in a ConfigMap in the namespace of the operator. The ConfigMap must have the label
// fairlead.dev/custom-manifest: "true".
type CustomManifest struct {
	// configMap is the name of the ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigMap string `json:"configMap"`

	// key is the key in the ConfigMap. The default is manifest.yaml.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Key string `json:"key,omitempty"`
}

// Exposure is how clients reach the ingress controller of a pool.
type Exposure struct {
	// type is one of NodePort, LoadBalancer, HostPort, HostNetwork, ClusterIP and ExternalIPs. The operator permits only those of its flag
	// --allowed-exposures.
	// +kubebuilder:validation:Enum=NodePort;LoadBalancer;HostPort;HostNetwork;ClusterIP;ExternalIPs
	Type string `json:"type"`

	// httpPort is the port on the nodes for HTTP. The default is a random port for NodePort, and 80 for HostPort and HostNetwork. Other types
	// do not have it.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	HTTPPort int32 `json:"httpPort,omitempty"`

	// httpsPort is the port on the nodes for HTTPS. The default is a random port for NodePort, and 443 for HostPort and HostNetwork. Other
	// types do not have it.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	HTTPSPort int32 `json:"httpsPort,omitempty"`

	// loadBalancerClass is the class of a LoadBalancer. The default is the default load balancer of the cluster. Other types do not have it.
	// +kubebuilder:validation:MaxLength=317
	// +optional
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`
}

// UpdateStrategy limits the pools that change at the same time. A change of the pods or of other objects of several pools is rolled out pool by
// pool, and stops at the first pool that fails.
type UpdateStrategy struct {
	// maxUnavailablePools is the number of pools that may be not ready during a roll-out. The default is 1. Pools without a ready node do not
	// count, and are updated last.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	// +optional
	MaxUnavailablePools int32 `json:"maxUnavailablePools,omitempty"`

	// progressDeadlineSeconds is the time for the pods of a pool to become ready, before the pool counts as failed. The default is 600.
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	// +optional
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`

	// paused stops roll-outs. New pools, removed pools and numbers of replicas are not affected.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// CacheSidecar configures the edge-cache beside each ingress controller.
type CacheSidecar struct {
	// enabled turns the sidecar on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// image is the image of the sidecar. The operator permits only the repositories of its flag --allowed-images. The default is that of the
	// operator's flag --cache-image.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Image string `json:"image,omitempty"`
}

// Resources are requests and limits of a container.
type Resources struct {
	// +optional
	Requests *ResourceAmounts `json:"requests,omitempty"`
	// +optional
	Limits *ResourceAmounts `json:"limits,omitempty"`
}

// ResourceAmounts are amounts of CPU and memory.
type ResourceAmounts struct {
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// YurtIngressList is a list of YurtIngresses.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type YurtIngressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []YurtIngress `json:"items"`
}
