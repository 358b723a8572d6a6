package family_test

import (
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
	"fairlead.dev/deploy/charts/internal/source"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c chart) {
		set := c.render(t, nil)
		deployment := objects.The[appsv1.Deployment](t, set)
		assert.Equal(t, int32(2), *deployment.Spec.Replicas)
		pod := deployment.Spec.Template.Spec
		var spread []string
		for _, constraint := range pod.TopologySpreadConstraints {
			spread = append(spread, constraint.TopologyKey)
			assert.Equal(t, corev1.ScheduleAnyway, constraint.WhenUnsatisfiable, "both replicas run on a single node, too")
			assert.Equal(t, deployment.Spec.Selector, constraint.LabelSelector)
			assert.Equal(t, []string{"pod-template-hash"}, constraint.MatchLabelKeys, "a rollout does not count the old pods")
		}
		assert.Equal(t, []string{corev1.LabelHostname, corev1.LabelTopologyZone}, spread)
		budget := objects.The[policyv1.PodDisruptionBudget](t, set)
		assert.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
		assert.Nil(t, budget.Spec.MinAvailable)
		assert.Equal(t, policyv1.AlwaysAllow, *budget.Spec.UnhealthyPodEvictionPolicy, "a pod that is never ready blocks no drain")
		assert.Equal(t, deployment.Spec.Selector, budget.Spec.Selector)

		container := pod.Containers[0]
		assert.Equal(t, "ghcr.io/fairlead/"+c.name+":v0.1.0", container.Image)
		assert.True(t, *pod.SecurityContext.RunAsNonRoot)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
		assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
		assert.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
		assert.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
		assert.NotZero(t, container.Resources.Limits.Memory().Value())
		assert.Zero(t, container.Resources.Limits.Cpu().Value(), "a limit of the CPU adds latency")
		assert.Empty(t, container.Env, "the program sets the memory limit of the Go runtime by itself")
		for _, o := range set {
			assert.NotContains(t, []string{"NetworkPolicy", "ServiceMonitor", "PrometheusRule"}, o.GetKind())
		}
	})
}

// TestFlagsExist compares the arguments of the container with the flags of the program, which ends at an unknown one.
func TestFlagsExist(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c chart) {
		flags, err := source.Flags(c.flagFolders()...)
		require.NoError(t, err)
		require.Contains(t, flags, "log-level")
		for name, values := range c.ciValues(t) {
			for _, arg := range objects.Container(t, objects.Render(t, c.path, values)).Args {
				flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
				assert.Contains(t, flags, flag, name)
			}
		}
	})
}

func TestImage(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	tests := []struct {
		name string
		give helm.Values
		want string // CHART stands for the name of the chart
	}{
		{name: "tag", give: helm.Values{"tag": "v2"}, want: "ghcr.io/fairlead/CHART:v2"},
		{name: "digest", give: helm.Values{"digest": digest}, want: "ghcr.io/fairlead/CHART@" + digest},
		{name: "tag and digest", give: helm.Values{"tag": "v2", "digest": digest}, want: "ghcr.io/fairlead/CHART:v2@" + digest},
		{name: "registry", give: helm.Values{"registry": "registry.example:5000"}, want: "registry.example:5000/fairlead/CHART:v0.1.0"},
		{name: "no registry", give: helm.Values{"registry": "", "repository": "mine", "tag": "dev"}, want: "mine:dev"},
	}
	forEach(t, func(t *testing.T, c chart) {
		for _, tt := range tests {
			got := objects.Container(t, c.render(t, helm.Values{"image": tt.give})).Image
			assert.Equal(t, strings.ReplaceAll(tt.want, "CHART", c.name), got, tt.name)
		}
	})
}

// TestExampleHasTheSameImageValues checks the chart of simulated model servers, which users install beside those of the services.
func TestExampleHasTheSameImageValues(t *testing.T) {
	t.Parallel()
	example := filepath.Join(helm.Repository(), "deploy", "examples", "inference", "model-servers")
	tests := []struct {
		name string
		give helm.Values
		want string
	}{
		{name: "default", give: helm.Values{}, want: "ghcr.io/fairlead/modelserver:v0.1.0"},
		{name: "digest", give: helm.Values{"digest": "sha256:0a"}, want: "ghcr.io/fairlead/modelserver@sha256:0a"},
		{name: "local store", give: helm.Values{"registry": "", "tag": "dev"}, want: "fairlead/modelserver:dev"},
	}
	for _, tt := range tests {
		set := objects.Render(t, example, helm.Values{"image": tt.give})
		assert.Equal(t, tt.want, objects.Container(t, set).Image, tt.name)
	}
}

func TestPodDisruptionBudget(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c chart) {
		budget := objects.The[policyv1.PodDisruptionBudget](t, c.render(t, helm.Values{"podDisruptionBudget": helm.Values{"minAvailable": 0}}))
		require.NotNil(t, budget.Spec.MinAvailable)
		assert.Equal(t, 0, budget.Spec.MinAvailable.IntValue())
		assert.Nil(t, budget.Spec.MaxUnavailable, "the API server refuses both")
	})
}

// TestPodIsExtensible sets what an administrator adds to the pods.
func TestPodIsExtensible(t *testing.T) {
	t.Parallel()
	var values helm.Values
	require.NoError(t, sigsyaml.UnmarshalStrict([]byte(`
podSecurityContext: {runAsUser: 1234}
securityContext: {readOnlyRootFilesystem: false, capabilities: {add: [NET_BIND_SERVICE]}}
livenessProbe: {httpGet: null, tcpSocket: {port: health}, timeoutSeconds: 3}
readinessProbe: {failureThreshold: 5}
env: [{name: GOGC, value: "50"}]
envFrom: [{secretRef: {name: proxies}}]
extraVolumes: [{name: authorities, csi: {driver: csi.example}}]
extraVolumeMounts: [{name: authorities, mountPath: /etc/authorities}]
initContainers: [{name: wait, image: "wait:1"}]
extraContainers: [{name: proxy, image: "proxy:1"}]
strategy: {type: Recreate}
revisionHistoryLimit: 3
priorityClassName: system-cluster-critical
nodeSelector: {disk: ssd}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {}}
imagePullSecrets: [{name: pull}]
deploymentAnnotations: {owner: inference}
podAnnotations: {note: "1"}
`), &values))
	forEach(t, func(t *testing.T, c chart) {
		set := c.render(t, values)
		deployment, pod, container := objects.The[appsv1.Deployment](t, set), objects.Pod(t, set), objects.Container(t, set)

		assert.Equal(t, int64(1234), *pod.Spec.SecurityContext.RunAsUser)
		assert.True(t, *pod.Spec.SecurityContext.RunAsNonRoot, "a default stays")
		assert.False(t, *container.SecurityContext.ReadOnlyRootFilesystem)
		assert.False(t, *container.SecurityContext.AllowPrivilegeEscalation, "a default stays")
		assert.Equal(t, &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}, Drop: []corev1.Capability{"ALL"}}, container.SecurityContext.Capabilities)
		assert.Nil(t, container.LivenessProbe.HTTPGet)
		assert.Equal(t, "health", container.LivenessProbe.TCPSocket.Port.String())
		assert.Equal(t, int32(10), container.LivenessProbe.PeriodSeconds, "a default stays")
		assert.Equal(t, int32(5), container.ReadinessProbe.FailureThreshold)

		assert.Equal(t, []corev1.EnvVar{{Name: "GOGC", Value: "50"}}, container.Env)
		assert.Equal(t, "proxies", container.EnvFrom[0].SecretRef.Name)
		assert.Equal(t, "csi.example", pod.Spec.Volumes[0].CSI.Driver)
		assert.Equal(t, "/etc/authorities", container.VolumeMounts[0].MountPath)
		assert.Equal(t, "wait:1", pod.Spec.InitContainers[0].Image)
		require.Len(t, pod.Spec.Containers, 2)
		assert.Equal(t, "proxy:1", pod.Spec.Containers[1].Image)

		assert.Equal(t, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, deployment.Spec.Strategy)
		assert.Equal(t, int32(3), *deployment.Spec.RevisionHistoryLimit)
		assert.Equal(t, "system-cluster-critical", pod.Spec.PriorityClassName)
		assert.Equal(t, map[string]string{"disk": "ssd"}, pod.Spec.NodeSelector)
		assert.Equal(t, corev1.TolerationOpExists, pod.Spec.Tolerations[0].Operator)
		assert.NotNil(t, pod.Spec.Affinity.NodeAffinity)
		assert.Equal(t, "pull", pod.Spec.ImagePullSecrets[0].Name)
		assert.Equal(t, map[string]string{"owner": "inference"}, deployment.Annotations)
		assert.Equal(t, map[string]string{"note": "1"}, pod.Annotations)
	})
}

// TestCommonLabels checks that every object and the pods have the common labels, and that none replaces a label of the chart.
func TestCommonLabels(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c chart) {
		set := c.render(t, helm.Values{
			"commonLabels":   helm.Values{"cost-center": "42", "app.kubernetes.io/name": "other"},
			"podLabels":      helm.Values{"cost-center": "43"},
			"serviceMonitor": helm.Values{"enabled": true, "labels": helm.Values{"cost-center": "44"}},
		})
		for _, o := range set {
			want := "42"
			if o.GetKind() == "ServiceMonitor" {
				want = "44"
			}
			assert.Equal(t, want, o.GetLabels()["cost-center"], o.GetKind())
			assert.Equal(t, c.name, o.GetLabels()["app.kubernetes.io/name"], o.GetKind())
		}
		deployment := objects.The[appsv1.Deployment](t, set)
		assert.Equal(t, "43", deployment.Spec.Template.Labels["cost-center"])
		assert.Subset(t, deployment.Spec.Template.Labels, deployment.Spec.Selector.MatchLabels)
		assert.NotContains(t, deployment.Spec.Selector.MatchLabels, "cost-center", "the selector of a Deployment cannot change")
	})
}

// TestPortsHaveTheirNames checks that what refers to a port of the container by its name finds it.
func TestPortsHaveTheirNames(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c chart) {
		set := c.render(t, helm.Values{"serviceMonitor": helm.Values{"enabled": true}, "ports": helm.Values{"metrics": 9191, "health": 8181}})
		container, service := objects.Container(t, set), objects.Service(t, set)
		ports := map[string]int32{}
		for _, p := range container.Ports {
			ports[p.Name] = p.ContainerPort
		}
		assert.Equal(t, int32(9191), ports["metrics"])
		assert.Equal(t, int32(8181), ports["health"])
		var served []string
		for _, p := range service.Spec.Ports {
			assert.Contains(t, ports, p.TargetPort.String())
			served = append(served, p.Name)
		}
		monitor := objects.The[monitoringv1.ServiceMonitor](t, set)
		assert.Contains(t, served, monitor.Spec.Endpoints[0].Port)
		assert.Equal(t, "http", string(*monitor.Spec.Endpoints[0].Scheme))
		assert.Subset(t, service.Labels, monitor.Spec.Selector.MatchLabels)
		assert.Equal(t, "health", container.ReadinessProbe.HTTPGet.Port.String())
		assert.Contains(t, container.Args, "--metrics-bind-address=:9191")
		assert.Contains(t, container.Args, "--health-probe-bind-address=:8181")
	})
}

func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	peer := helm.Values{"namespaceSelector": helm.Values{"matchLabels": helm.Values{"team": "metrics"}}}
	block := helm.Values{"ipBlock": helm.Values{"cidr": "10.0.0.1/32"}}
	forEach(t, func(t *testing.T, c chart) {
		policies := helm.Values{"enabled": true, "metrics": helm.Values{"from": []any{peer}}, "apiServer": helm.Values{"to": []any{block}, "ports": []int{6443}}}
		switch c.name {
		case "endpoint-picker":
			policies["gateways"] = helm.Values{"from": []any{peer}}
		case "backendset-syncer":
			policies["oci"] = helm.Values{"ports": []int{8443}} // not 443, the port of the API server here
		}
		set := c.render(t, helm.Values{"networkPolicy": policies})
		policy := objects.The[networkingv1.NetworkPolicy](t, set)
		assert.Equal(t, *objects.The[appsv1.Deployment](t, set).Spec.Selector, policy.Spec.PodSelector)
		assert.ElementsMatch(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
		opened := map[string]networkingv1.NetworkPolicyIngressRule{}
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				opened[port.Port.String()] = rule
			}
		}
		for _, port := range objects.Container(t, set).Ports {
			assert.Contains(t, opened, port.Name)
		}
		assert.Equal(t, map[string]string{"team": "metrics"}, opened["metrics"].From[0].NamespaceSelector.MatchLabels)
		assert.Empty(t, opened["health"].From, "the kubelet has no label")
		egress := map[string]networkingv1.NetworkPolicyEgressRule{}
		for _, rule := range policy.Spec.Egress {
			for _, port := range rule.Ports {
				if port.Port != nil {
					egress[string(*port.Protocol)+" "+port.Port.String()] = rule
				}
			}
		}
		assert.Equal(t, "10.0.0.1/32", egress["TCP 6443"].To[0].IPBlock.CIDR)
		assert.NotContains(t, egress, "TCP 443")
		assert.Contains(t, egress, "UDP 53")
		assert.Contains(t, egress, "TCP 53")
	})
}

// readers are the charts whose program reads Secrets of all namespaces, each with the value that lets it: the certificates of Gateways. None
// writes them.
var readers = map[string]string{"backendset-syncer": "gateways"}

// TestNoWildcards checks that no rule has a wildcard, and that no program may read Secrets, except for readers. The nodepool-ingress
// only hands on the roles of ingress controllers, which need the certificates of Ingresses: they have a component.
func TestNoWildcards(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c chart) {
		for name, values := range c.ciValues(t) {
			set := objects.Render(t, c.path, values)
			for _, p := range objects.Permissions(objects.Rules(t, set)) {
				assert.NotContains(t, p, "*", name)
			}
			ours := slices.DeleteFunc(set, func(o *unstructured.Unstructured) bool { return o.GetLabels()["app.kubernetes.io/component"] != "" })
			for _, p := range objects.Permissions(objects.Rules(t, ours)) {
				if _, reads := values[readers[c.name]]; reads && (p == "list /secrets" || p == "watch /secrets") {
					continue
				}
				assert.NotContains(t, p, "secrets", name)
			}
		}
	})
}

// TestSubchart installs a chart as a dependency whose condition is its value enabled.
func TestSubchart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give helm.Values
		want bool
	}{
		{name: "nothing is set", give: helm.Values{}, want: true},
		{name: "enabled", give: helm.Values{"enabled": true}, want: true},
		{name: "disabled", give: helm.Values{"enabled": false}},
	}
	forEach(t, func(t *testing.T, c chart) {
		parent := t.TempDir()
		require.NoError(t, os.CopyFS(filepath.Join(parent, "charts", c.name), os.DirFS(c.path)))
		require.NoError(t, os.WriteFile(filepath.Join(parent, "Chart.yaml"), []byte(strings.ReplaceAll(`
apiVersion: v2
name: platform
version: 1.0.0
dependencies:
- {name: CHART, version: 0.1.0, repository: "", condition: CHART.enabled}
`, "CHART", c.name)), 0o600))
		for _, tt := range tests {
			set := objects.Render(t, parent, helm.Values{c.name: c.with(tt.give), "global": helm.Values{"region": "eu"}})
			assert.Equal(t, tt.want, len(objects.All[appsv1.Deployment](t, set)) == 1, tt.name)
		}
	})
}
