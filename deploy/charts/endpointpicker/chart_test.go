// Package endpointpicker_test checks what only charts/endpoint-picker has: the sources of endpoints, TLS, the InferencePool, roles,
// alerts. Package family_test checks what all charts have in common.
package endpointpicker_test

import (
	"path/filepath"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

var chart = filepath.Join(helm.Repository(), "charts", "endpoint-picker")

// pool are values for an InferencePool, with further ones.
func pool(further helm.Values) helm.Values {
	values := helm.Values{"pool": helm.Values{"name": "chat"}}
	for key, value := range further {
		values[key] = value
	}
	return values
}

// TestSources checks the arguments, permissions and mounts for each source of endpoints.
func TestSources(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		give        helm.Values
		args        []string
		token       bool
		permissions []string
		volumes     []string
	}{
		{
			name: "pool", give: pool(nil), token: true,
			args: []string{"--pool-name=chat", "--pool-namespace=system"},
			permissions: []string{
				"list inference.networking.k8s.io/inferencepools", "watch inference.networking.k8s.io/inferencepools",
				"list llm-d.ai/inferenceobjectives", "watch llm-d.ai/inferenceobjectives",
				"list llm-d.ai/inferencemodelrewrites", "watch llm-d.ai/inferencemodelrewrites",
				"list inference.networking.x-k8s.io/inferenceobjectives", "watch inference.networking.x-k8s.io/inferenceobjectives",
				"list inference.networking.x-k8s.io/inferencemodelrewrites", "watch inference.networking.x-k8s.io/inferencemodelrewrites",
				"list /pods", "watch /pods", "create /events", "patch /events",
			},
		},
		{
			name: "selector", give: helm.Values{"endpoints": helm.Values{"selector": "app in (a,b)"}, "pool": helm.Values{"namespace": "models"}}, token: true,
			args:        []string{"--endpoint-selector=app in (a,b)", "--endpoint-target-ports=8000", "--pool-namespace=models"},
			permissions: []string{"list /pods", "watch /pods"},
		},
		{
			name: "file", give: helm.Values{"endpoints": helm.Values{"configMap": "list"}},
			args: []string{"--endpoints-file=/etc/endpoint-picker/endpoints/endpoints.yaml"}, volumes: []string{"endpoints"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := objects.Render(t, chart, tt.give)
			pod, container := objects.Pod(t, set).Spec, objects.Container(t, set)
			assert.Subset(t, container.Args, tt.args)
			assert.Equal(t, tt.token, *pod.AutomountServiceAccountToken)
			assert.ElementsMatch(t, tt.permissions, objects.Permissions(objects.Rules(t, set)))
			var volumes []string
			for _, mount := range container.VolumeMounts {
				assert.True(t, mount.ReadOnly)
				volumes = append(volumes, mount.Name)
			}
			assert.Equal(t, tt.volumes, volumes)
		})
	}
}

// TestContradictionsAreRefused checks values that the program, the API server or a gateway would refuse later.
func TestContradictionsAreRefused(t *testing.T) {
	t.Parallel()
	file := helm.Values{"configMap": "list"}
	tests := []struct {
		name string
		give helm.Values
		want string
	}{
		{name: "no source", give: helm.Values{}, want: "exactly one of pool.name"},
		{name: "two sources", give: pool(helm.Values{"endpoints": file}), want: "exactly one of pool.name"},
		{name: "pool without a name", give: helm.Values{"endpoints": file, "inferencePool": helm.Values{"create": true, "selector": helm.Values{"a": "b"}}}, want: "set pool.name"},
		{name: "pool without a selector", give: pool(helm.Values{"inferencePool": helm.Values{"create": true}}), want: "/inferencePool/selector"},
		{name: "pool in another namespace", give: helm.Values{"pool": helm.Values{"name": "chat", "namespace": "other"}, "inferencePool": helm.Values{"create": true, "selector": helm.Values{"a": "b"}}}, want: "leave pool.namespace empty"},
		{name: "reviews of tokens without the API server", give: helm.Values{"endpoints": file, "metrics": helm.Values{"auth": true}}, want: "does not use the API server"},
		{name: "ConfigMap without the API server", give: helm.Values{"endpoints": file, "configMap": helm.Values{"name": "plugins"}}, want: "does not use the API server"},
		{name: "two configurations", give: pool(helm.Values{"config": "{}", "configMap": helm.Values{"name": "plugins"}}), want: "set only one"},
		{name: "certificate without TLS", give: pool(helm.Values{"gateway": helm.Values{"secureServing": false, "certificateSecret": "tls"}}), want: "/gateway/certificateSecret"},
		{name: "authorities of gateways without TLS", give: pool(helm.Values{"gateway": helm.Values{"secureServing": false, "clientCASecret": "ca"}}), want: "/gateway/clientCASecret"},
		{name: "names of gateways without authorities", give: pool(helm.Values{"gateway": helm.Values{"clientNames": []string{"gateway"}}}), want: "/gateway/clientCASecret"},
		{name: "maximum of one pool", give: helm.Values{"pool": helm.Values{"name": "chat", "max": 2}}, want: "only with pool.all"},
		{name: "client certificates without TLS", give: pool(helm.Values{"metrics": helm.Values{"verifyClients": true}}), want: "/metrics/certificateSecret"},
		{name: "NetworkPolicy without gateways", give: pool(helm.Values{"networkPolicy": helm.Values{"enabled": true}}), want: "/networkPolicy/gateways/from"},
		{name: "TLS of the proxy without the proxy", give: pool(helm.Values{"proxy": helm.Values{"tls": true}}), want: "it needs proxy.enabled"},
		{name: "TLS of the proxy without a certificate", give: pool(helm.Values{
			"proxy": helm.Values{"enabled": true, "tls": true}, "gateway": helm.Values{"secureServing": false},
		}), want: "it needs proxy.enabled"},
		{name: "NetworkPolicy without clients of the proxy", give: pool(helm.Values{
			"proxy": helm.Values{"enabled": true}, "networkPolicy": helm.Values{"enabled": true, "gateways": helm.Values{"from": []any{helm.Values{}}}},
		}), want: "networkPolicy.proxy.from"},
		{
			name: "NetworkPolicy without the clients of the decision API", want: "/networkPolicy/decisionAPI",
			give: pool(helm.Values{"decisionAPI": helm.Values{"enabled": true}, "networkPolicy": helm.Values{
				"enabled": true, "gateways": helm.Values{"from": []any{helm.Values{"podSelector": helm.Values{}}}},
			}}),
		},
		{
			name: "decision API over TLS, without a certificate", want: "/gateway/secureServing",
			give: pool(helm.Values{"decisionAPI": helm.Values{"enabled": true, "tls": true}, "gateway": helm.Values{"secureServing": false}}),
		},
		{
			name: "decision API without the client certificates of gateways", want: "/decisionAPI/tls",
			give: pool(helm.Values{"decisionAPI": helm.Values{"enabled": true}, "gateway": helm.Values{"clientCASecret": "ca"}}),
		},
		{name: "duration", give: pool(helm.Values{"drain": helm.Values{"timeout": "1.5m"}}), want: "/drain/timeout"},
		{name: "alert that does not exist", give: pool(helm.Values{"prometheusRule": helm.Values{"enabled": true, "disabledAlerts": []string{"Down"}}}), want: "there is no alert Down"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := helm.Template(chart, tt.give)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestGracePeriodIsTheSumOfThePhases(t *testing.T) {
	t.Parallel()
	pod := objects.Pod(t, objects.Render(t, chart, pool(helm.Values{"drain": helm.Values{"delay": "10s", "timeout": "1h5m", "margin": "20s"}})))
	assert.Equal(t, int64(10+3600+300+20), *pod.Spec.TerminationGracePeriodSeconds)
}

// TestMetricsOverTLS checks that the Service and the ServiceMonitor follow the metrics port.
func TestMetricsOverTLS(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, pool(helm.Values{
		"metrics": helm.Values{"certificateSecret": "tls", "auth": true},
		"serviceMonitor": helm.Values{
			"enabled": true, "tlsConfig": helm.Values{"insecureSkipVerify": true},
			"authorization": helm.Values{"credentials": helm.Values{"name": "reader", "key": "token"}},
		},
	}))
	endpoint := objects.The[monitoringv1.ServiceMonitor](t, set).Spec.Endpoints[0]
	assert.Equal(t, "https", string(*endpoint.Scheme))
	assert.True(t, *endpoint.TLSConfig.InsecureSkipVerify)
	assert.Equal(t, "reader", endpoint.Authorization.Credentials.Name)
	for _, port := range objects.Service(t, set).Spec.Ports {
		assert.Equal(t, "https", *port.AppProtocol, port.Name)
	}
	permissions := objects.Permissions(objects.Rules(t, set))
	assert.Subset(t, permissions, []string{"create authentication.k8s.io/tokenreviews", "create authorization.k8s.io/subjectaccessreviews", "get /metrics"})
}

// TestNetworkPolicyOpensExtProcToGateways checks the connections that the picker has and other programs do not.
func TestNetworkPolicyOpensExtProcToGateways(t *testing.T) {
	t.Parallel()
	peer := func(name string) []any {
		return []any{helm.Values{"podSelector": helm.Values{"matchLabels": helm.Values{"app": name}}}}
	}
	set := objects.Render(t, chart, pool(helm.Values{"networkPolicy": helm.Values{
		"enabled": true, "gateways": helm.Values{"from": peer("gateway")}, "modelServers": helm.Values{"to": peer("model"), "ports": []int{8000}},
	}}))
	spec := objects.The[networkingv1.NetworkPolicy](t, set).Spec
	for _, rule := range spec.Ingress {
		for _, port := range rule.Ports {
			if port.Port.String() == "grpc-ext-proc" {
				require.Len(t, rule.Ports, 1, "no other port is open to gateways")
				assert.Equal(t, "gateway", rule.From[0].PodSelector.MatchLabels["app"])
				continue
			}
			if port.Port.String() == "replicas" {
				assert.Equal(t, "endpoint-picker", rule.From[0].PodSelector.MatchLabels["app.kubernetes.io/name"], "the replicas only")
				continue
			}
			assert.Empty(t, rule.From, port.Port)
		}
	}
	require.NotEmpty(t, spec.Egress)
	assert.Equal(t, "8000", spec.Egress[0].Ports[0].Port.String())
	assert.Equal(t, "model", spec.Egress[0].To[0].PodSelector.MatchLabels["app"])
	unnamed := objects.Render(t, chart, pool(helm.Values{"networkPolicy": helm.Values{"enabled": true, "gateways": helm.Values{"from": peer("gateway")}}}))
	models := objects.The[networkingv1.NetworkPolicy](t, unnamed).Spec.Egress[0]
	assert.Empty(t, models.To, "any address")
	require.Len(t, models.Ports, 1)
	assert.Nil(t, models.Ports[0].Port, "any port")
}

// TestProxy checks the port of the proxy listener in each object: whoever looks for a picker that forwards requests finds it by its
// appProtocol.
func TestProxy(t *testing.T) {
	t.Parallel()
	ports := func(values helm.Values) (inPod []string, inService map[string]corev1.ServicePort) {
		set := objects.Render(t, chart, pool(values))
		for _, p := range objects.The[appsv1.Deployment](t, set).Spec.Template.Spec.Containers[0].Ports {
			inPod = append(inPod, p.Name)
		}
		inService = map[string]corev1.ServicePort{}
		for _, p := range objects.Service(t, set).Spec.Ports {
			inService[p.Name] = p
		}
		return inPod, inService
	}
	inPod, inService := ports(nil)
	assert.NotContains(t, inPod, "http-proxy")
	assert.NotContains(t, inService, "http-proxy")

	inPod, inService = ports(helm.Values{"proxy": helm.Values{"enabled": true}})
	assert.Contains(t, inPod, "http-proxy")
	assert.Equal(t, int32(80), inService["http-proxy"].Port)
	assert.Equal(t, "http-proxy", inService["http-proxy"].TargetPort.StrVal)
	assert.Equal(t, "fairlead.dev/http-proxy", *inService["http-proxy"].AppProtocol)

	_, inService = ports(helm.Values{"proxy": helm.Values{"enabled": true, "tls": true}})
	assert.Equal(t, "https", *inService["http-proxy"].AppProtocol)

	set := objects.Render(t, chart, pool(helm.Values{"proxy": helm.Values{"enabled": true}, "networkPolicy": helm.Values{
		"enabled": true, "gateways": helm.Values{"from": []any{helm.Values{}}},
		"proxy": helm.Values{"from": []any{helm.Values{"podSelector": helm.Values{"matchLabels": helm.Values{"app": "ingress"}}}}},
	}}))
	found := false
	for _, rule := range objects.The[networkingv1.NetworkPolicy](t, set).Spec.Ingress {
		if rule.Ports[0].Port.String() == "http-proxy" {
			found = true
			assert.Equal(t, "ingress", rule.From[0].PodSelector.MatchLabels["app"])
		}
	}
	assert.True(t, found)
}

// TestDecisionAPI checks that nothing of it is there by default, and who reaches it.
func TestDecisionAPI(t *testing.T) {
	t.Parallel()
	named := func(set objects.Set) (ports []string) {
		for _, port := range objects.Service(t, set).Spec.Ports {
			ports = append(ports, port.Name)
		}
		return ports
	}
	assert.NotContains(t, named(objects.Render(t, chart, pool(helm.Values{}))), "decision")
	peer := func(name string) helm.Values {
		return helm.Values{"from": []any{helm.Values{"podSelector": helm.Values{"matchLabels": helm.Values{"app": name}}}}}
	}
	set := objects.Render(t, chart, pool(helm.Values{
		"decisionAPI":   helm.Values{"enabled": true},
		"networkPolicy": helm.Values{"enabled": true, "gateways": peer("gateway"), "decisionAPI": peer("haproxy")},
	}))
	assert.Contains(t, named(set), "decision")
	for _, rule := range objects.The[networkingv1.NetworkPolicy](t, set).Spec.Ingress {
		if rule.Ports[0].Port.String() == "decision" {
			require.Len(t, rule.Ports, 1)
			assert.Equal(t, "haproxy", rule.From[0].PodSelector.MatchLabels["app"])
			return
		}
	}
	assert.Fail(t, "no rule for the decision API")
}

// TestInferencePool checks that the pool names the Service of the release.
func TestInferencePool(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, pool(helm.Values{
		"inferencePool": helm.Values{"create": true, "selector": helm.Values{"app": "vllm"}, "failureMode": "FailOpen"}, "service": helm.Values{"port": 443},
	}))
	service := objects.Service(t, set)
	var found bool
	for _, o := range set {
		if o.GetKind() != "InferencePool" {
			continue
		}
		found = true
		spec := o.Object["spec"].(map[string]any)
		assert.Equal(t, map[string]any{
			"kind": "Service", "name": service.Name, "port": map[string]any{"number": float64(service.Spec.Ports[0].Port)}, "failureMode": "FailOpen",
		}, spec["endpointPickerRef"])
		assert.Equal(t, map[string]any{"matchLabels": map[string]any{"app": "vllm"}}, spec["selector"])
	}
	assert.True(t, found)
}

// TestMemoryLimitLeavesRoomForBodies compares the limit with what the picker may buffer.
func TestMemoryLimitLeavesRoomForBodies(t *testing.T) {
	t.Parallel()
	deployment := objects.The[appsv1.Deployment](t, objects.Render(t, chart, pool(nil)))
	limit := deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
	assert.Contains(t, deployment.Spec.Template.Spec.Containers[0].Args, "--max-buffered-bytes=256Mi")
	assert.GreaterOrEqual(t, limit*9/10, int64(2*256+80)<<20, "the soft limit of the Go runtime, in bytes")
}

func TestNotes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give helm.Values
		want string
		warn string // empty: no warning
	}{
		{name: "pool", give: pool(nil), want: "endpointPickerRef:\n    name: release-endpoint-picker\n    port: {number: 9002}"},
		{name: "own pool", give: pool(helm.Values{"inferencePool": helm.Values{"create": true, "selector": helm.Values{"a": "b"}}}), want: "kind: InferencePool, name: chat"},
		{name: "selector", give: helm.Values{"endpoints": helm.Values{"selector": "app=vllm"}}, want: "pods in namespace system that match app=vllm"},
		{name: "file", give: helm.Values{"endpoints": helm.Values{"configMap": "list"}}, want: "key endpoints.yaml of ConfigMap system/list"},
		{name: "plaintext", give: pool(helm.Values{"gateway": helm.Values{"secureServing": false}}), want: "in plaintext"},
		{name: "metrics with tokens", give: pool(helm.Values{"metrics": helm.Values{"auth": true}}), want: "--clusterrole=system:release-endpoint-picker:metrics-reader"},
		{name: "another namespace", give: helm.Values{"pool": helm.Values{"name": "chat", "namespace": "other"}}, want: "other/chat", warn: "another namespace"},
		{name: "one replica", give: pool(helm.Values{"replicas": 1}), want: "rollout status", warn: "with one replica"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			notes, err := helm.Notes(chart, tt.give)
			require.NoError(t, err)
			assert.Contains(t, notes, tt.want)
			if tt.warn == "" {
				assert.NotContains(t, notes, "WARNING")
				return
			}
			assert.Contains(t, notes, "WARNING: ")
			assert.Contains(t, notes, tt.warn)
		})
	}
}
