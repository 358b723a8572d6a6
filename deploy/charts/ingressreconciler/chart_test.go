// Package ingressreconciler_test checks charts/ingress-reconciler: what it renders from which values, what its schema refuses,
// that its alerts fire, and that its dashboard and its documents keep up with the program.
package ingressreconciler_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/source"
)

var (
	repository = helm.Repository()
	chart      = filepath.Join(repository, "charts", "ingress-reconciler")
)

// types are those of the objects that the chart renders.
var types = map[string]func() any{
	"v1/ConfigMap":                                    func() any { return &corev1.ConfigMap{} },
	"v1/Service":                                      func() any { return &corev1.Service{} },
	"v1/ServiceAccount":                               func() any { return &corev1.ServiceAccount{} },
	"apps/v1/Deployment":                              func() any { return &appsv1.Deployment{} },
	"policy/v1/PodDisruptionBudget":                   func() any { return &policyv1.PodDisruptionBudget{} },
	"networking.k8s.io/v1/NetworkPolicy":              func() any { return &networkingv1.NetworkPolicy{} },
	"monitoring.coreos.com/v1/ServiceMonitor":         func() any { return &monitoringv1.ServiceMonitor{} },
	"monitoring.coreos.com/v1/PrometheusRule":         func() any { return &monitoringv1.PrometheusRule{} },
	"rbac.authorization.k8s.io/v1/ClusterRole":        func() any { return &rbacv1.ClusterRole{} },
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding": func() any { return &rbacv1.ClusterRoleBinding{} },
	"rbac.authorization.k8s.io/v1/Role":               func() any { return &rbacv1.Role{} },
	"rbac.authorization.k8s.io/v1/RoleBinding":        func() any { return &rbacv1.RoleBinding{} },
}

// TestFieldsAreKnown decodes the objects of every file of values strictly: the API server drops fields that it does not know.
func TestFieldsAreKnown(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(chart, "ci", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	seen := map[string]bool{}
	for _, file := range files {
		values, err := helm.ReadValues(file)
		require.NoError(t, err)
		objects, err := helm.Template(chart, values)
		require.NoError(t, err)
		for _, o := range objects {
			kind := o.GetAPIVersion() + "/" + o.GetKind()
			seen[kind] = true
			require.Contains(t, types, kind)
			raw, err := yaml.Marshal(o.Object)
			require.NoError(t, err)
			require.NoError(t, yaml.UnmarshalStrict(raw, types[kind]()), "%s: %s %s", filepath.Base(file), kind, o.GetName())
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(types)), slices.Collect(maps.Keys(seen)), "kinds that some file of values renders")
}

// render renders the chart.
func render(t *testing.T, values helm.Values) []*unstructured.Unstructured {
	t.Helper()
	objects, err := helm.Template(chart, values)
	require.NoError(t, err)
	return objects
}

// of returns the only object of a type among others.
func of[T any](t *testing.T, objects []*unstructured.Unstructured) *T {
	t.Helper()
	found := all[T](t, objects)
	require.Len(t, found, 1)
	return found[0]
}

// all returns the objects of a type among others.
func all[T any](t *testing.T, objects []*unstructured.Unstructured) []*T {
	t.Helper()
	var found []*T
	for _, o := range objects {
		kind := o.GetAPIVersion() + "/" + o.GetKind()
		if _, is := types[kind]().(*T); !is {
			continue
		}
		typed := new(T)
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed))
		found = append(found, typed)
	}
	return found
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	objects := render(t, nil)
	deployment := of[appsv1.Deployment](t, objects)
	assert.Equal(t, int32(2), *deployment.Spec.Replicas)
	pod := deployment.Spec.Template.Spec
	require.Len(t, pod.TopologySpreadConstraints, 2)
	for _, c := range pod.TopologySpreadConstraints {
		assert.Equal(t, corev1.ScheduleAnyway, c.WhenUnsatisfiable, "both replicas run on a single node, too")
		assert.Equal(t, deployment.Spec.Selector, c.LabelSelector)
		assert.Equal(t, []string{"pod-template-hash"}, c.MatchLabelKeys, "a rollout does not count the old pods")
	}
	budget := of[policyv1.PodDisruptionBudget](t, objects)
	assert.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
	assert.Nil(t, budget.Spec.MinAvailable)
	container := pod.Containers[0]
	assert.Equal(t, "fairlead/ingress-reconciler:0.1.0", container.Image)
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
	assert.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
	assert.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
	assert.Empty(t, container.Env, "the program sets the memory limit of the Go runtime by itself")
	assert.Empty(t, all[networkingv1.NetworkPolicy](t, objects))
	assert.Empty(t, all[monitoringv1.ServiceMonitor](t, objects))
	assert.Empty(t, all[monitoringv1.PrometheusRule](t, objects))
	assert.Len(t, all[corev1.ConfigMap](t, objects), 1, "no dashboard")
}

// TestFlagsExist compares the arguments of the container with the flags of the program, which ends at an unknown one.
func TestFlagsExist(t *testing.T) {
	t.Parallel()
	flags, err := source.Flags(filepath.Join(service, "internal", "config"), filepath.Join(repository, "pkg"))
	require.NoError(t, err)
	require.Contains(t, flags, "config-map")
	require.Contains(t, flags, "leader-elect")
	for _, arg := range of[appsv1.Deployment](t, render(t, nil)).Spec.Template.Spec.Containers[0].Args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		assert.Contains(t, flags, name)
	}
}

func TestImage(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	for _, tt := range []struct {
		name string
		give helm.Values
		want string
	}{
		{name: "tag", give: helm.Values{"tag": "v2"}, want: "fairlead/ingress-reconciler:v2"},
		{name: "digest", give: helm.Values{"digest": digest}, want: "fairlead/ingress-reconciler@" + digest},
		{name: "both", give: helm.Values{"tag": "v2", "digest": digest}, want: "fairlead/ingress-reconciler:v2@" + digest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			deployment := of[appsv1.Deployment](t, render(t, helm.Values{"image": tt.give}))
			assert.Equal(t, tt.want, deployment.Spec.Template.Spec.Containers[0].Image)
		})
	}
}

func TestPodDisruptionBudget(t *testing.T) {
	t.Parallel()
	budget := of[policyv1.PodDisruptionBudget](t, render(t, helm.Values{"podDisruptionBudget": helm.Values{"minAvailable": 0}}))
	require.NotNil(t, budget.Spec.MinAvailable)
	assert.Equal(t, 0, budget.Spec.MinAvailable.IntValue())
	assert.Nil(t, budget.Spec.MaxUnavailable, "the API server refuses both")
}

func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	peer := helm.Values{"namespaceSelector": helm.Values{"matchLabels": helm.Values{"team": "metrics"}}}
	block := helm.Values{"ipBlock": helm.Values{"cidr": "10.0.0.1/32"}}
	objects := render(t, helm.Values{"networkPolicy": helm.Values{
		"enabled": true, "metrics": helm.Values{"from": []any{peer}}, "apiServer": helm.Values{"to": []any{block}, "ports": []int{6443}},
	}})
	policy := of[networkingv1.NetworkPolicy](t, objects)
	assert.Equal(t, *of[appsv1.Deployment](t, objects).Spec.Selector, policy.Spec.PodSelector)
	assert.ElementsMatch(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
	require.Len(t, policy.Spec.Ingress, 2)
	assert.Equal(t, "metrics", policy.Spec.Ingress[0].Ports[0].Port.String())
	assert.Equal(t, map[string]string{"team": "metrics"}, policy.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels)
	assert.Equal(t, "health", policy.Spec.Ingress[1].Ports[0].Port.String())
	assert.Empty(t, policy.Spec.Ingress[1].From, "the kubelet has no label")
	require.Len(t, policy.Spec.Egress, 2)
	assert.Equal(t, "6443", policy.Spec.Egress[0].Ports[0].Port.String())
	assert.Equal(t, "10.0.0.1/32", policy.Spec.Egress[0].To[0].IPBlock.CIDR)
	assert.Equal(t, corev1.ProtocolUDP, *policy.Spec.Egress[1].Ports[0].Protocol)
	assert.Equal(t, "53", policy.Spec.Egress[1].Ports[0].Port.String())
}

// TestPortsHaveTheirNames checks that what refers to a port of the container by its name finds it.
func TestPortsHaveTheirNames(t *testing.T) {
	t.Parallel()
	objects := render(t, helm.Values{"serviceMonitor": helm.Values{"enabled": true}, "ports": helm.Values{"metrics": 9191, "health": 8181}})
	ports := map[string]int32{}
	container := of[appsv1.Deployment](t, objects).Spec.Template.Spec.Containers[0]
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	assert.Equal(t, map[string]int32{"metrics": 9191, "health": 8181}, ports)
	service := of[corev1.Service](t, objects)
	assert.Equal(t, "metrics", service.Spec.Ports[0].TargetPort.String())
	monitor := of[monitoringv1.ServiceMonitor](t, objects)
	assert.Equal(t, service.Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)
	for key, value := range monitor.Spec.Selector.MatchLabels {
		assert.Equal(t, value, service.Labels[key])
	}
	assert.Equal(t, "health", container.ReadinessProbe.HTTPGet.Port.String())
	assert.Contains(t, container.Args, "--metrics-bind-address=:9191")
	assert.Contains(t, container.Args, "--health-probe-bind-address=:8181")
}

func TestNotes(t *testing.T) {
	t.Parallel()
	domain := helm.Values{"ingressDomain": "llm.example.com"}
	with := func(key string, value any) helm.Values {
		config := maps.Clone(domain)
		config[key] = value
		return config
	}
	for _, tt := range []struct {
		name string
		give helm.Values
		want string // of the warning; empty: none
	}{
		{name: "nothing is configured", want: "sets no ingressDomain"},
		{name: "domain", give: helm.Values{"config": domain}},
		{name: "configured as a text", give: helm.Values{"config": "ingressDomain: llm.example.com"}},
		{name: "existing ConfigMap", give: helm.Values{"configMap": helm.Values{"name": "routes"}}},
		{name: "fallback without the kind", give: helm.Values{"config": with("fallbackService", helm.Values{"enabled": true})}, want: "kinds does not contain services"},
		{name: "fallback", give: helm.Values{"config": with("fallbackService", helm.Values{"enabled": true}), "kinds": []string{"httproutes", "services"}}},
		{name: "strategy without the kind", give: helm.Values{"config": with("strategy", "ingress"), "kinds": []string{"httproutes"}}, want: "kinds does not contain ingresses"},
		{name: "several that write", give: helm.Values{"config": domain, "leaderElection": helm.Values{"enabled": false}}, want: "2 replicas without leader election"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			notes, err := helm.Notes(chart, tt.give)
			require.NoError(t, err)
			assert.Contains(t, notes, "kubectl get inferenceservices -A")
			if tt.want == "" {
				assert.NotContains(t, notes, "WARNING")
				return
			}
			assert.Contains(t, notes, tt.want)
		})
	}
}

// TestSubchart installs the chart as a dependency whose condition is its value enabled.
func TestSubchart(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(parent, "charts", "ingress-reconciler"), os.DirFS(chart)))
	require.NoError(t, os.WriteFile(filepath.Join(parent, "Chart.yaml"), []byte(`
apiVersion: v2
name: platform
version: 1.0.0
dependencies:
- {name: ingress-reconciler, version: 0.1.0, repository: "", condition: ingress-reconciler.enabled}
`), 0o600))
	for _, tt := range []struct {
		name string
		give helm.Values
		want bool
	}{
		{name: "nothing is set", give: helm.Values{}, want: true},
		{name: "enabled", give: helm.Values{"enabled": true}, want: true},
		{name: "disabled", give: helm.Values{"enabled": false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			objects, err := helm.Template(parent, helm.Values{"ingress-reconciler": tt.give, "global": helm.Values{"region": "eu"}})
			require.NoError(t, err)
			assert.Equal(t, tt.want, len(all[appsv1.Deployment](t, objects)) == 1)
		})
	}
}
