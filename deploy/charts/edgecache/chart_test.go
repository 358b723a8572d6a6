// Package edgecache_test checks the chart of the edge-cache, which is a sidecar: its Deployments run other programs.
package edgecache_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
	"fairlead.dev/deploy/charts/internal/source"
)

const serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

func chartPath() string { return filepath.Join(helm.Repository(), "charts", "edge-cache") }

func values(more helm.Values) helm.Values {
	v := helm.Values{"upstreamServer": "https://203.0.113.10:6443", "pools": []any{helm.Values{"name": "east"}, helm.Values{"name": "west.site-1"}}}
	for key, value := range more {
		v[key] = value
	}
	return v
}

func ciValues(t *testing.T) map[string]helm.Values {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartPath(), "ci", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	found := map[string]helm.Values{}
	for _, file := range files {
		found[filepath.Base(file)], err = helm.ReadValues(file)
		require.NoError(t, err)
	}
	return found
}

// TestOnlyTheCacheHasAToken checks what keeps the controller from the API server.
func TestOnlyTheCacheHasAToken(t *testing.T) {
	t.Parallel()
	for name, v := range ciValues(t) {
		for _, d := range objects.All[appsv1.Deployment](t, objects.Render(t, chartPath(), v)) {
			pod := d.Spec.Template.Spec
			assert.False(t, *pod.AutomountServiceAccountToken, name)
			require.Len(t, pod.InitContainers, 1)
			require.Len(t, pod.Containers, 1)
			cache, controller := pod.InitContainers[0], pod.Containers[0]
			assert.Equal(t, corev1.ContainerRestartPolicyAlways, *cache.RestartPolicy)
			assert.NotNil(t, cache.StartupProbe, "the controller starts when the cache is ready")
			mounts := mountsOf(controller)
			assert.Equal(t, map[string]string{"edge-cache-credentials": serviceAccountPath}, mounts)
			assert.Equal(t, "/var/run/secrets/fairlead.dev/upstream", mountsOf(cache)["edge-cache-upstream"])
			for _, env := range controller.Env {
				assert.NotContains(t, env.Name, "KUBERNETES_SERVICE", "Yurthub overwrites it")
			}
			assert.Equal(t, corev1.StorageMediumMemory, volume(t, pod, "edge-cache-credentials").EmptyDir.Medium)
		}
	}
}

func mountsOf(c corev1.Container) map[string]string {
	found := map[string]string{}
	for _, m := range c.VolumeMounts {
		found[m.Name] = m.MountPath
	}
	return found
}

func volume(t *testing.T, pod corev1.PodSpec, name string) corev1.Volume {
	t.Helper()
	at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	require.GreaterOrEqual(t, at, 0, name)
	return pod.Volumes[at]
}

func TestEachPoolHasADeploymentAndAClass(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chartPath(), values(nil))
	deployments := objects.All[appsv1.Deployment](t, set)
	require.Len(t, deployments, 2)
	names := map[string]bool{}
	for _, d := range deployments {
		pool := d.Spec.Template.Spec.NodeSelector["apps.openyurt.io/nodepool"]
		names[d.Name] = true
		assert.Contains(t, d.Spec.Template.Spec.InitContainers[0].Args, "--pool="+pool)
		assert.Contains(t, d.Spec.Template.Spec.Containers[0].Args, "--providers.kubernetesingress.ingressclass="+pool)
		assert.Contains(t, d.Spec.Template.Spec.Containers[0].Args, "--providers.kubernetesingress.endpoint=https://127.0.0.1:16443")
		assert.Equal(t, pool, d.Spec.Selector.MatchLabels["fairlead.dev/node-pool"], "pools do not share pods")
	}
	assert.Len(t, names, 2)
	classes := objects.All[networkingv1.IngressClass](t, set)
	require.Len(t, classes, 2)
	for _, c := range classes {
		assert.Equal(t, "traefik.io/ingress-controller", c.Spec.Controller)
		assert.Empty(t, c.Annotations, "never the default class")
	}
}

// TestPoolsWithSimilarNames checks names that differ only in characters that the name of a Deployment cannot have.
func TestPoolsWithSimilarNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 60)
	pools := []any{helm.Values{"name": "a.b"}, helm.Values{"name": "a-b"}, helm.Values{"name": long + "-1"}, helm.Values{"name": long + "-2"}}
	names := map[string]bool{}
	for _, d := range objects.All[appsv1.Deployment](t, objects.Render(t, chartPath(), values(helm.Values{"pools": pools}))) {
		names[d.Name] = true
		assert.LessOrEqual(t, len(d.Name), 52)
	}
	assert.Len(t, names, 4)
	_, err := helm.Template(chartPath(), values(helm.Values{"pools": []any{helm.Values{"name": "a"}, helm.Values{"name": "a"}}}))
	assert.ErrorContains(t, err, "twice")
}

func TestFlagsExist(t *testing.T) {
	t.Parallel()
	flags, err := source.Flags(filepath.Join(helm.Repository(), "pkg"), filepath.Join(helm.Repository(), "services", "edge-cache", "internal", "config"))
	require.NoError(t, err)
	for name, v := range ciValues(t) {
		for _, d := range objects.All[appsv1.Deployment](t, objects.Render(t, chartPath(), v)) {
			for _, arg := range d.Spec.Template.Spec.InitContainers[0].Args {
				flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
				assert.Contains(t, flags, flag, name)
			}
		}
	}
}

// TestRoles lists what each profile may do. A verb that is missing here is refused by the API server, one too many is a risk.
func TestRoles(t *testing.T) {
	t.Parallel()
	writes := map[string][]string{
		"traefik":         {"networking.k8s.io/ingresses/status"},
		"traefik-crd":     {"networking.k8s.io/ingresses/status"},
		"haproxytech":     {"networking.k8s.io/ingresses/status", "/events", "events.k8s.io/events"},
		"haproxy-ingress": {"networking.k8s.io/ingresses/status", "/events", "events.k8s.io/events", "coordination.k8s.io/leases"},
		"nginx-f5":        {"networking.k8s.io/ingresses/status", "/events", "events.k8s.io/events", "coordination.k8s.io/leases"},
		"ingress-nginx":   {"networking.k8s.io/ingresses/status", "/events", "events.k8s.io/events", "coordination.k8s.io/leases"},
	}
	for profile, want := range writes {
		set := objects.Render(t, chartPath(), values(helm.Values{"profile": profile}))
		rules := objects.The[rbacv1.ClusterRole](t, set).Rules
		for _, r := range objects.All[rbacv1.Role](t, set) {
			rules = append(rules, r.Rules...)
		}
		var got []string
		for _, r := range rules {
			assert.NotContains(t, r.Verbs, "*")
			assert.NotContains(t, r.Resources, "*")
			if !slices.ContainsFunc(r.Verbs, func(v string) bool { return v == "create" || v == "update" || v == "patch" || v == "delete" }) {
				continue
			}
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					got = append(got, group+"/"+resource)
				}
			}
		}
		assert.ElementsMatch(t, want, got, profile)
	}
	assert.Empty(t, objects.All[rbacv1.ClusterRole](t, objects.Render(t, chartPath(), values(helm.Values{"rbac": helm.Values{"create": false}}))))
}

// resourcesOf returns what rules cover.
func resourcesOf(rules []rbacv1.PolicyRule) []string {
	var found []string
	for _, r := range rules {
		found = append(found, r.Resources...)
	}
	return found
}

// TestNamespacesLimitTheRoles checks that a cache for some namespaces can read no Secret of another one.
func TestNamespacesLimitTheRoles(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"traefik", "traefik-crd", "haproxytech", "haproxy-ingress", "nginx-f5", "ingress-nginx"} {
		set := objects.Render(t, chartPath(), values(helm.Values{"profile": profile, "membership": "nodepool", "namespaces": []any{"a", "b"}}))
		cluster := resourcesOf(objects.The[rbacv1.ClusterRole](t, set).Rules)
		assert.Subset(t, []string{"namespaces", "nodes", "ingressclasses", "nodepools"}, cluster, profile)
		found := map[string]*rbacv1.Role{}
		for _, r := range objects.All[rbacv1.Role](t, set) {
			found[r.Namespace+"/"+r.Name] = r
		}
		bound := map[string]bool{}
		for _, b := range objects.All[rbacv1.RoleBinding](t, set) {
			require.Contains(t, found, b.Namespace+"/"+b.RoleRef.Name)
			require.Equal(t, objects.The[corev1.ServiceAccount](t, set).Name, b.Subjects[0].Name)
			bound[b.Namespace+"/"+b.RoleRef.Name] = true
		}
		assert.Len(t, bound, len(found))
		in := map[string]int{}
		for _, r := range found {
			in[r.Namespace]++
			if r.Namespace == "a" || r.Namespace == "b" {
				assert.Subset(t, resourcesOf(r.Rules), []string{"services", "secrets", "endpointslices", "ingresses", "ingresses/status"}, profile)
			} else {
				assert.NotContains(t, resourcesOf(r.Rules), "secrets", profile)
			}
		}
		assert.Equal(t, 1, in["a"])
		assert.Equal(t, 1, in["b"])
	}
}

// TestOwnObjectsAreInARole checks that ConfigMaps and pods of the controller's own namespace need no ClusterRole.
func TestOwnObjectsAreInARole(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"haproxytech", "haproxy-ingress", "ingress-nginx"} {
		set := objects.Render(t, chartPath(), values(helm.Values{"profile": profile}))
		cluster := resourcesOf(objects.The[rbacv1.ClusterRole](t, set).Rules)
		assert.NotContains(t, cluster, "configmaps", profile)
		assert.NotContains(t, cluster, "pods", profile)
		assert.Subset(t, resourcesOf(objects.The[rbacv1.Role](t, set).Rules), []string{"configmaps", "pods"}, profile)
	}
}

func TestEnvironmentIsAConfigMap(t *testing.T) {
	t.Parallel()
	v := values(helm.Values{"controller": helm.Values{"environment": true}, "listenAddress": "127.0.0.1:7000"})
	set := objects.Render(t, chartPath(), v)
	cm := objects.The[corev1.ConfigMap](t, set)
	assert.Equal(t, map[string]string{"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "7000", "KUBERNETES_SERVICE_PORT_HTTPS": "7000"}, cm.Data)
	for _, d := range objects.All[appsv1.Deployment](t, set) {
		assert.Equal(t, cm.Name, d.Spec.Template.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name)
	}
}

// TestSocketOfTheRuntime gives the cache, and not the controller, the folder of the socket and its group.
func TestSocketOfTheRuntime(t *testing.T) {
	t.Parallel()
	for _, d := range objects.All[appsv1.Deployment](t, objects.Render(t, chartPath(), values(helm.Values{"criSocket": "/run/containerd/containerd.sock"}))) {
		pod := d.Spec.Template.Spec
		cache, controller := pod.InitContainers[0], pod.Containers[0]
		assert.Contains(t, cache.Args, "--cri-socket=/run/containerd/containerd.sock")
		assert.Contains(t, cache.Args, "--node-name=$(NODE_NAME)")
		assert.Equal(t, "spec.nodeName", cache.Env[0].ValueFrom.FieldRef.FieldPath)
		assert.Equal(t, "/run/containerd", mountsOf(cache)["container-runtime"])
		assert.Zero(t, *cache.SecurityContext.RunAsGroup)
		assert.NotContains(t, mountsOf(controller), "container-runtime")
		assert.Nil(t, controller.SecurityContext.RunAsGroup)
		assert.Equal(t, "/run/containerd", volume(t, pod, "container-runtime").HostPath.Path)
	}
	for _, d := range objects.All[appsv1.Deployment](t, objects.Render(t, chartPath(), values(nil))) {
		for _, v := range d.Spec.Template.Spec.Volumes {
			assert.Nil(t, v.HostPath, "nothing of the node by default")
		}
		assert.Nil(t, d.Spec.Template.Spec.InitContainers[0].SecurityContext.RunAsGroup)
	}
}

// TestProbing needs the name of the node and nothing else of it, and excludes the socket.
func TestProbing(t *testing.T) {
	t.Parallel()
	for _, d := range objects.All[appsv1.Deployment](t, objects.Render(t, chartPath(), values(helm.Values{"probeAddresses": true}))) {
		cache := d.Spec.Template.Spec.InitContainers[0]
		assert.Contains(t, cache.Args, "--probe-addresses")
		assert.Contains(t, cache.Args, "--node-name=$(NODE_NAME)")
		assert.Equal(t, "spec.nodeName", cache.Env[0].ValueFrom.FieldRef.FieldPath)
		for _, v := range d.Spec.Template.Spec.Volumes {
			assert.Nil(t, v.HostPath)
		}
	}
	_, err := helm.Template(chartPath(), values(helm.Values{"probeAddresses": true, "criSocket": "/run/containerd/containerd.sock"}))
	assert.ErrorContains(t, err, "probeAddresses has no effect with criSocket")
}

func TestSchemaRefusesMistakes(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]helm.Values{
		"no pools":            values(helm.Values{"pools": []any{}}),
		"no API server":       {"pools": []any{helm.Values{"name": "a"}}},
		"Yurthub":             values(helm.Values{"upstreamServer": "http://127.0.0.1:10261"}),
		"routable address":    values(helm.Values{"listenAddress": "0.0.0.0:16443"}),
		"relative socket":     values(helm.Values{"criSocket": "containerd.sock"}),
		"unknown profile":     values(helm.Values{"profile": "nginx"}),
		"malformed pool name": values(helm.Values{"pools": []any{helm.Values{"name": "a b"}}}),
	} {
		_, err := helm.Template(chartPath(), give)
		assert.Error(t, err, name)
	}
}
