// Package objects reads the objects that a chart renders, for tests.
package objects

import (
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/deploy/charts/internal/helm"
)

// Set are the objects that a chart renders.
type Set []*unstructured.Unstructured

// Render renders a chart with values.
func Render(t *testing.T, chart string, values helm.Values) Set {
	t.Helper()
	set, err := helm.Template(chart, values)
	require.NoError(t, err)
	return set
}

// All returns the objects of a type.
func All[T any](t *testing.T, set Set) []*T {
	t.Helper()
	var found []*T
	for _, o := range set {
		if _, is := newObject(o.GetAPIVersion() + "/" + o.GetKind()).(*T); !is {
			continue
		}
		typed := new(T)
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed))
		found = append(found, typed)
	}
	return found
}

// The returns the only object of a type.
func The[T any](t *testing.T, set Set) *T {
	t.Helper()
	found := All[T](t, set)
	require.Len(t, found, 1)
	return found[0]
}

// Service returns the only Service with an address of its own: what clients use.
func Service(t *testing.T, set Set) *corev1.Service {
	t.Helper()
	services := All[corev1.Service](t, set)
	services = slices.DeleteFunc(services, func(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone })
	require.Len(t, services, 1)
	return services[0]
}

// Pod returns the pod that the only Deployment makes.
func Pod(t *testing.T, set Set) *corev1.PodTemplateSpec {
	t.Helper()
	return &The[appsv1.Deployment](t, set).Spec.Template
}

// Container returns the program's container of that pod.
func Container(t *testing.T, set Set) *corev1.Container {
	t.Helper()
	return &Pod(t, set).Spec.Containers[0]
}

// Rules returns the rules of all roles.
func Rules(t *testing.T, set Set) []rbacv1.PolicyRule {
	t.Helper()
	var rules []rbacv1.PolicyRule
	for _, role := range All[rbacv1.ClusterRole](t, set) {
		rules = append(rules, role.Rules...)
	}
	for _, role := range All[rbacv1.Role](t, set) {
		rules = append(rules, role.Rules...)
	}
	return rules
}

// Permissions returns what rules allow, as verb group/resource. A URL that is no resource stands for itself.
func Permissions(rules []rbacv1.PolicyRule) []string {
	var granted []string
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, url := range rule.NonResourceURLs {
				granted = append(granted, verb+" "+url)
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted = append(granted, verb+" "+group+"/"+resource)
				}
			}
		}
	}
	return granted
}

// newObject returns an object of a kind, nil for one that tests do not read.
func newObject(kind string) any {
	return map[string]any{
		"v1/ConfigMap":                                                 &corev1.ConfigMap{},
		"v1/Secret":                                                    &corev1.Secret{},
		"v1/Service":                                                   &corev1.Service{},
		"v1/ServiceAccount":                                            &corev1.ServiceAccount{},
		"apps/v1/Deployment":                                           &appsv1.Deployment{},
		"policy/v1/PodDisruptionBudget":                                &policyv1.PodDisruptionBudget{},
		"networking.k8s.io/v1/IngressClass":                            &networkingv1.IngressClass{},
		"networking.k8s.io/v1/NetworkPolicy":                           &networkingv1.NetworkPolicy{},
		"monitoring.coreos.com/v1/PodMonitor":                          &monitoringv1.PodMonitor{},
		"monitoring.coreos.com/v1/ServiceMonitor":                      &monitoringv1.ServiceMonitor{},
		"monitoring.coreos.com/v1/PrometheusRule":                      &monitoringv1.PrometheusRule{},
		"rbac.authorization.k8s.io/v1/ClusterRole":                     &rbacv1.ClusterRole{},
		"rbac.authorization.k8s.io/v1/Role":                            &rbacv1.Role{},
		"rbac.authorization.k8s.io/v1/RoleBinding":                     &rbacv1.RoleBinding{},
		"admissionregistration.k8s.io/v1/MutatingWebhookConfiguration": &admissionregistrationv1.MutatingWebhookConfiguration{},
	}[kind]
}
