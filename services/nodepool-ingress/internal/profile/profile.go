// Package profile builds the objects of one pool: an ingress controller of a profile, its IngressClass, ServiceAccount, bindings, Service
// and so on. It is pure: the same input has the same output. Package plan checks and defaults the input, and adds the metadata that all
// objects share: owner, namespace, labels.
package profile

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// Install holds the settings that all pools share: flags of the operator.
type Install struct {
	Namespace string // of all namespaced objects: that of the operator
	// ClusterRolePrefix is the first part of the names of the ClusterRoles that the chart creates: <prefix>:<profile>.
	ClusterRolePrefix string
	Images            map[string]string // by profile
	CacheImage        string
	// CacheUpstream is the URL of the API server for the cache. Empty: the address that the kubelet gives to every container, which on a
	// node of OpenYurt may be that of Yurthub.
	CacheUpstream string
	// CheckImage returns an error for an image that a custom manifest may not have.
	CheckImage func(image string) error `json:"-"`
	// CustomClusterRoles are the names of the ClusterRoles that a custom manifest may bind.
	CustomClusterRoles []string
	PullSecrets        []string
	PriorityClass      string
}

// Pool is one pool, after package plan has checked and defaulted it.
type Pool struct {
	Name      string // a value of a label: at most 63 characters
	LabelKey  string // of the label of the nodes
	Class     string // name of the IngressClass
	Profile   string
	Image     string // empty: the one in Install
	Replicas  int32  // 0 is legal
	Nodes     int    // number of nodes of the pool; the pod template must not depend on it: it changes without a change of the spec
	Exposure  v1alpha1.Exposure
	Addresses []string // valid IP addresses

	Tolerations      []corev1.Toleration
	Spread           string
	Resources        *v1alpha1.Resources // nil: the default of the profile
	Cache            *Cache              // nil: no sidecar
	ProgressDeadline int32               // seconds
	Manifest         *Manifest           // of the profile custom
	CustomResources  bool                // the API server serves those of the controller
}

// Cache configures the cache sidecar.
type Cache struct {
	Image string // empty: the one in Install
}

// Manifest is a custom manifest.
type Manifest struct {
	Source string // where the text is from, for messages
	Text   string
}

// Object is an object of the API with its apiVersion and kind.
type Object interface {
	runtime.Object
	metav1.Object
}

// Problem is a reason for which a pool cannot be built.
type Problem struct {
	Reason  string
	Message string
}

// NewProblem returns a problem.
func NewProblem(reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Built holds the objects of a pool.
type Built struct {
	// Objects are in the order in which they are applied. The first is the IngressClass: its creation claims the pool. The last is the
	// Deployment.
	Objects  []Object
	Workload string // name of the Deployment
	Service  string // name of the Service whose addresses are those of the pool; empty: none
	Image    string // of the ingress controller
}
