package plan

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of objects that pools consist of.
type Kind struct {
	Resource   schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// Resources of pools.
var (
	IngressClasses      = networkingv1.SchemeGroupVersion.WithResource("ingressclasses")
	ServiceAccounts     = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	ConfigMaps          = corev1.SchemeGroupVersion.WithResource("configmaps")
	ClusterRoleBindings = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	RoleBindings        = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
	Services            = corev1.SchemeGroupVersion.WithResource("services")
	Budgets             = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
	Deployments         = appsv1.SchemeGroupVersion.WithResource("deployments")
)

// Kinds lists the kinds that pools consist of, in the order in which a pool is created. The creation of the IngressClass claims the pool. A
// pool is removed in the reverse order, so that its class is free when nothing else of it is left. No kind here can give permissions that
// the ClusterRoles of the chart do not have.
func Kinds() []Kind {
	return []Kind{
		{Resource: IngressClasses, Kind: "IngressClass"},
		{Resource: ServiceAccounts, Kind: "ServiceAccount", Namespaced: true},
		{Resource: ConfigMaps, Kind: "ConfigMap", Namespaced: true},
		{Resource: ClusterRoleBindings, Kind: "ClusterRoleBinding"},
		{Resource: RoleBindings, Kind: "RoleBinding", Namespaced: true},
		{Resource: Services, Kind: "Service", Namespaced: true},
		{Resource: Budgets, Kind: "PodDisruptionBudget", Namespaced: true},
		{Resource: Deployments, Kind: "Deployment", Namespaced: true},
	}
}

// kindOf returns the kind of an object.
func kindOf(gvk schema.GroupVersionKind) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Kind == gvk.Kind && k.Resource.GroupVersion() == gvk.GroupVersion() {
			return k, true
		}
	}
	return Kind{}, false
}
