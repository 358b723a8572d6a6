package profile

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/services/nodepool-ingress/internal/names"
)

// Build returns the objects of a pool, or the problems that keep it from having any. Equal arguments give equal objects.
func Build(install Install, pool Pool) (Built, []Problem) {
	b := builder{install: install, pool: pool, name: names.PoolObject(pool.Name), labels: labelsOf(pool)}
	if problems := b.checkPool(); len(problems) > 0 {
		return Built{}, problems
	}
	c, problems := b.buildController()
	if len(problems) > 0 {
		return Built{}, problems
	}
	if pool.Cache != nil {
		c.roles = append(c.roles, b.clusterRole("cache"))
	}
	objects := []Object{b.ingressClass(c), b.serviceAccount()}
	objects = append(objects, b.roleBindings(c)...)
	if len(c.config) > 0 {
		objects = append(objects, b.configMap(b.name, c.config))
	}
	if pool.Cache != nil && len(c.cacheEnv) > 0 {
		objects = append(objects, b.configMap(names.CacheConfigMap(pool.Name), c.cacheEnv))
	}
	objects = append(objects, b.buildService(), b.disruptionBudget(), b.buildDeployment(c))
	return Built{Objects: objects, Workload: b.name, Service: b.name, Image: c.pod.Containers[0].Image}, nil
}

// builder builds the objects of one pool.
type builder struct {
	install Install
	pool    Pool
	name    string // of all objects but the IngressClass
	labels  map[string]string
}

// controller contains the decisions of a profile.
type controller struct {
	class              string            // IngressClass.spec.controller
	servedGroupVersion string            // group and version of the custom resources that the controller reads, empty: none
	roles              []string          // ClusterRoles for the whole cluster
	local              []string          // ClusterRoles for the namespace of the pool
	config             map[string]string // the ConfigMap of the controller
	cacheEnv           map[string]string // environment that points the controller to its cache
	pod                corev1.PodSpec    // the first container is the controller
}

const (
	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelComponent = "app.kubernetes.io/component"
	labelPartOf    = "app.kubernetes.io/part-of"

	// appName is the name of the controllers of pools: the pods of the operator have another one.
	appName = "nodepool-ingress-controller"

	portHTTP, portHTTPS = "http", "https"
)

// selectorOf returns the labels that select the pods of a pool. They depend on the name of the pool alone, because a selector is immutable.
func selectorOf(pool Pool) map[string]string {
	return map[string]string{labelName: appName, labelInstance: names.PoolObject(pool.Name)}
}

func labelsOf(pool Pool) map[string]string {
	labels := selectorOf(pool)
	labels[labelComponent], labels[labelPartOf] = "ingress-controller", "fairlead"
	return labels
}

// objectMeta returns the metadata of a namespaced object.
func (b *builder) objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: b.install.Namespace, Labels: b.labels}
}

// ingressClass never has the annotation of the default class: that is a decision for the whole cluster.
func (b *builder) ingressClass(c controller) Object {
	class := &networkingv1.IngressClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"},
		ObjectMeta: metav1.ObjectMeta{Name: b.pool.Class, Labels: b.labels},
		Spec:       networkingv1.IngressClassSpec{Controller: c.class},
	}
	if c.servedGroupVersion != "" {
		class.Annotations = map[string]string{v1alpha1.AnnotationServed: c.servedGroupVersion}
	}
	return class
}

// serviceAccount mounts no token into pods that do not request one.
func (b *builder) serviceAccount() Object {
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   b.objectMeta(b.name),
		AutomountServiceAccountToken: new(bool),
	}
}

// roleBindings bind the ServiceAccount to existing ClusterRoles: the operator may not create roles.
func (b *builder) roleBindings(c controller) []Object {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: b.name, Namespace: b.install.Namespace}}
	ref := func(role string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	}
	var objects []Object
	for i, role := range c.roles {
		objects = append(objects, &rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: numberedName(names.ClusterObject(b.install.Namespace, b.pool.Name), i), Labels: b.labels},
			RoleRef:    ref(role), Subjects: subjects,
		})
	}
	for i, role := range c.local {
		objects = append(objects, &rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"},
			ObjectMeta: b.objectMeta(numberedName(b.name, i)),
			RoleRef:    ref(role), Subjects: subjects,
		})
	}
	return objects
}

// numberedName distinguishes the bindings of a pool. No name of a pool contains a colon.
func numberedName(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s:%d", name, i)
}

func (b *builder) configMap(name string, data map[string]string) Object {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: b.objectMeta(name), Data: data,
	}
}

// disruptionBudget lets a drain evict one pod at a time. Pods that are not ready can always be evicted.
func (b *builder) disruptionBudget() Object {
	maxUnavailable, always := intstr.FromInt32(1), policyv1.AlwaysAllow
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: b.objectMeta(b.name),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &maxUnavailable, UnhealthyPodEvictionPolicy: &always,
			Selector: &metav1.LabelSelector{MatchLabels: selectorOf(b.pool)},
		},
	}
}

func (b *builder) buildDeployment(c controller) Object {
	pod := c.pod
	pod.ServiceAccountName = b.name
	pod.AutomountServiceAccountToken = ptr.To(b.pool.Cache == nil)
	pod.EnableServiceLinks = new(bool)
	pod.PriorityClassName = b.install.PriorityClass
	for _, secret := range b.install.PullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	pod.NodeSelector = map[string]string{corev1.LabelOSStable: "linux", b.pool.LabelKey: b.pool.Name}
	pod.Tolerations = b.podTolerations()
	pod.TopologySpreadConstraints = b.spreadConstraints()
	if b.onNodeNetwork() {
		pod.HostNetwork, pod.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet
	}
	if b.pool.Cache != nil {
		b.addCache(&pod, c.cacheEnv)
	}
	replicas, revisions, deadline := b.pool.Replicas, int32(3), b.pool.ProgressDeadline
	spec := appsv1.DeploymentSpec{
		Replicas: &replicas, RevisionHistoryLimit: &revisions, Strategy: b.updateStrategy(),
		Selector: &metav1.LabelSelector{MatchLabels: selectorOf(b.pool)},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: b.labels}, Spec: pod},
	}
	if deadline > 0 {
		spec.ProgressDeadlineSeconds = &deadline
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: b.objectMeta(b.name), Spec: spec,
	}
}

// podTolerations keep the pods on a node that lost its connection: the site works on, and so does its ingress. Other taints stop the pods
// unless the user tolerates them.
func (b *builder) podTolerations() []corev1.Toleration {
	autonomy := []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	}
	return append(autonomy, b.pool.Tolerations...)
}

// spreadConstraints distributes the pods over the nodes of the pool. The pods of one revision count, or a roll-out could not replace them
// in place.
func (b *builder) spreadConstraints() []corev1.TopologySpreadConstraint {
	unsatisfiable := corev1.ScheduleAnyway
	switch b.pool.Spread {
	case v1alpha1.SpreadNone:
		return nil
	case v1alpha1.SpreadRequired:
		unsatisfiable = corev1.DoNotSchedule
	}
	return []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: unsatisfiable,
		LabelSelector:  &metav1.LabelSelector{MatchLabels: selectorOf(b.pool)},
		MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
	}}
}

// updateStrategy starts a new pod before it stops an old one. If the pods use ports of their nodes and no node is free, one of several pods
// stops first, and a single pod stops before its successor starts.
//
//	                               strategy
//	no ports of nodes              RollingUpdate, 1 more
//	a node of the pool is free     RollingUpdate, 1 more
//	several pods, no free node     RollingUpdate, 1 less
//	one pod, no free node          Recreate
func (b *builder) updateStrategy() appsv1.DeploymentStrategy {
	none, single := intstr.FromInt32(0), intstr.FromInt32(1)
	rolling := func(surge, unavailable intstr.IntOrString) appsv1.DeploymentStrategy {
		return appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable},
		}
	}
	switch {
	case !b.usesHostPorts() || b.pool.Nodes > int(b.pool.Replicas):
		return rolling(single, none)
	case b.pool.Replicas > 1:
		return rolling(none, single)
	}
	return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
}

// usesHostPorts reports whether the pods use ports of their nodes.
func (b *builder) usesHostPorts() bool {
	return slices.Contains([]string{v1alpha1.ExposureHostPort, v1alpha1.ExposureHostNetwork}, b.pool.Exposure.Type)
}
