// Package variantautoscaler_test checks what only charts/variant-autoscaler has: its ConfigMaps, how it reaches Prometheus, the external
// scaler, roles, what its schema refuses, its notes, that its alerts fire, and that its documents keep up with the
// program. It also checks the examples for autoscalers. Package family_test checks what all charts have in common.
package variantautoscaler_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

const (
	program = "variant-autoscaler"
	address = "https://prometheus.monitoring.svc:9090"

	optimization = "workload-variant-autoscaler-variantautoscaling-config"
)

var (
	repository = helm.Repository()
	chart      = filepath.Join(repository, "charts", program)
)

// with returns values with an address of Prometheus, unless they have one.
func with(values helm.Values) helm.Values {
	all := helm.Values{"prometheus": helm.Values{"url": address}}
	maps.Copy(all, values)
	return all
}

// prometheus returns values of prometheus, with an address unless they have one.
func prometheus(values helm.Values) helm.Values {
	all := helm.Values{"url": address}
	maps.Copy(all, values)
	return helm.Values{"prometheus": all}
}

// flagsOf returns the arguments with a prefix.
func flagsOf(container *corev1.Container, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(container.Args), func(arg string) bool { return !strings.HasPrefix(arg, prefix) })
}

// configMaps returns the data of the ConfigMaps, by namespace and name.
func configMaps(t *testing.T, set objects.Set) map[string]map[string]string {
	t.Helper()
	found := map[string]map[string]string{}
	for _, c := range objects.All[corev1.ConfigMap](t, set) {
		found[c.Namespace+"/"+c.Name] = c.Data
	}
	return found
}

// TestConfigMaps checks which ConfigMaps the chart creates. Tests of the service read those of the files in ci as the program does.
func TestConfigMaps(t *testing.T) {
	t.Parallel()
	always := []string{"system/" + optimization, "system/accelerator-unit-costs", "system/service-classes-config"}
	entry := func(values helm.Values) helm.Values { return helm.Values{"key": values} }
	tests := []struct {
		name string
		give helm.Values
		want []string
	}{
		{name: "default", want: always},
		{name: "existing configuration", give: helm.Values{"optimization": nil}, want: always[1:]},
		{name: "existing prices", give: helm.Values{"acceleratorUnitCosts": nil}, want: []string{always[0], always[2]}},
		{name: "existing classes", give: helm.Values{"serviceClasses": nil}, want: always[:2]},
		{
			name: "all", want: append(slices.Clone(always), "system/model-scale-to-zero-config", "system/wva-saturation-scaling-config", "system/variant-autoscaler-limits"),
			give: helm.Values{
				"scaleToZero": entry(helm.Values{"modelID": "llama"}), "saturation": entry(helm.Values{"modelID": "llama"}), "limits": entry(helm.Values{"cards": 1}),
			},
		},
		{name: "named ones", give: helm.Values{"configMaps": helm.Values{"optimization": "a", "serviceClasses": "b"}}, want: always[1:2]},
		{name: "namespace", give: helm.Values{"configNamespace": "wva", "optimization": nil, "serviceClasses": nil}, want: []string{"wva/accelerator-unit-costs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := objects.Render(t, chart, with(tt.give))
			assert.ElementsMatch(t, tt.want, slices.Collect(maps.Keys(configMaps(t, set))))
			namespace, _, _ := strings.Cut(tt.want[0], "/")
			assert.Contains(t, objects.Container(t, set).Args, "--config-namespace="+namespace)
		})
	}
}

// TestNamesOfConfigMaps checks the flags for existing ConfigMaps, which plan needs too.
func TestNamesOfConfigMaps(t *testing.T) {
	t.Parallel()
	values := with(helm.Values{"configMaps": helm.Values{
		"optimization": "a", "acceleratorUnitCosts": "b", "serviceClasses": "c", "scaleToZero": "d", "saturation": "e", "limits": "f",
	}})
	set := objects.Render(t, chart, values)
	flags := flagsOf(objects.Container(t, set), "--config-map=")
	assert.ElementsMatch(t, []string{
		"--config-map=optimization=a", "--config-map=accelerators=b", "--config-map=classes=c", "--config-map=scale-to-zero=d", "--config-map=saturation=e", "--config-map=limits=f",
	}, flags)
	assert.Empty(t, configMaps(t, set))
	assert.Contains(t, objects.Container(t, set).Env, corev1.EnvVar{Name: "PROMETHEUS_BASE_URL", Value: address}, "wins over the key of the ConfigMap")
	notes, err := helm.Notes(chart, values)
	require.NoError(t, err)
	for _, flag := range flags {
		assert.Contains(t, notes, flag)
	}
}

// TestClassesJoinTheDefault checks that the default class stays until it is removed.
func TestClassesJoinTheDefault(t *testing.T) {
	t.Parallel()
	premium := helm.Values{"name": "Premium", "priority": 1, "data": []any{helm.Values{"model": "llama", "slo-ttft": 500}}}
	classes := func(values helm.Values) map[string]string {
		return configMaps(t, objects.Render(t, chart, with(helm.Values{"serviceClasses": values})))["system/service-classes-config"]
	}
	joined := classes(helm.Values{"premium.yaml": premium})
	assert.YAMLEq(t, "{name: Premium, priority: 1, data: [{model: llama, slo-ttft: 500}]}", joined["premium.yaml"])
	assert.Contains(t, joined["default.yaml"], "default/default")
	assert.NotContains(t, classes(helm.Values{"premium.yaml": premium, "default.yaml": nil}), "default.yaml")
}

// TestPrometheus checks the keys of the ConfigMap, and the mounted files. With an existing ConfigMap, variables of the same names win.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	const folder = "/etc/fairlead/prometheus/"
	tests := []struct {
		name    string
		give    helm.Values
		want    map[string]string // without the address
		volumes string
	}{
		{name: "address alone"},
		{name: "authorities in a Secret", give: helm.Values{"ca": helm.Values{"secret": "ca", "key": "ca.pem"}}, want: map[string]string{"PROMETHEUS_CA_CERT_PATH": folder + "ca/ca.crt"},
			volumes: "[{name: prometheus-ca, secret: {secretName: ca, items: [{key: ca.pem, path: ca.crt}]}}]"},
		{name: "authorities in a ConfigMap", give: helm.Values{"ca": helm.Values{"configMap": "ca"}}, want: map[string]string{"PROMETHEUS_CA_CERT_PATH": folder + "ca/ca.crt"},
			volumes: "[{name: prometheus-ca, configMap: {name: ca, items: [{key: ca.crt, path: ca.crt}]}}]"},
		{name: "token in a Secret", give: helm.Values{"token": helm.Values{"secret": "bearer", "key": "t"}}, want: map[string]string{"PROMETHEUS_TOKEN_PATH": folder + "token/token"},
			volumes: "[{name: prometheus-token, secret: {secretName: bearer, items: [{key: t, path: token}]}}]"},
		{name: "token of the ServiceAccount", give: helm.Values{"token": helm.Values{"serviceAccount": true}},
			want: map[string]string{"PROMETHEUS_TOKEN_PATH": "/var/run/secrets/kubernetes.io/serviceaccount/token"}},
		{name: "client certificate", give: helm.Values{"clientCertificateSecret": "client"}, volumes: "[{name: prometheus-client, secret: {secretName: client}}]",
			want: map[string]string{"PROMETHEUS_CLIENT_CERT_PATH": folder + "client/tls.crt", "PROMETHEUS_CLIENT_KEY_PATH": folder + "client/tls.key"}},
		{name: "names of certificates", give: helm.Values{"serverName": "thanos", "insecureSkipVerify": true},
			want: map[string]string{"PROMETHEUS_SERVER_NAME": "thanos", "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY": "true"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := map[string]string{"PROMETHEUS_BASE_URL": address}
			maps.Copy(want, tt.want)
			set := objects.Render(t, chart, prometheus(tt.give))
			data := configMaps(t, set)["system/"+optimization]
			maps.DeleteFunc(data, func(key, _ string) bool { return !strings.HasPrefix(key, "PROMETHEUS_") })
			assert.Equal(t, want, data)
			assert.Empty(t, objects.Container(t, set).Env)
			var volumes []corev1.Volume
			require.NoError(t, sigsyaml.UnmarshalStrict([]byte(tt.volumes), &volumes))
			assert.Equal(t, volumes, objects.Pod(t, set).Spec.Volumes)
			assertMounted(t, set, slices.Collect(maps.Values(tt.want)))

			values := prometheus(tt.give)
			values["optimization"] = nil
			set = objects.Render(t, chart, values)
			variables := map[string]string{}
			for _, v := range objects.Container(t, set).Env {
				variables[v.Name] = v.Value
			}
			assert.Equal(t, want, variables)
			assert.Equal(t, volumes, objects.Pod(t, set).Spec.Volumes)
			assert.NotContains(t, configMaps(t, set), "system/"+optimization)
		})
	}
}

// assertMounted checks that files are in mounted volumes, and that every volume is mounted.
func assertMounted(t *testing.T, set objects.Set, files []string) {
	t.Helper()
	container := objects.Container(t, set)
	folders := map[string]string{}
	for _, mount := range container.VolumeMounts {
		assert.True(t, mount.ReadOnly, mount.Name)
		folders[mount.MountPath] = mount.Name
	}
	for _, file := range files {
		if strings.HasPrefix(file, "/etc/") {
			assert.Contains(t, folders, filepath.Dir(file))
		}
	}
	var volumes []string
	for _, v := range objects.Pod(t, set).Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	assert.ElementsMatch(t, volumes, slices.Collect(maps.Values(folders)))
}

// TestAddressInTheEnvironment checks that the address may come from variables that the user adds.
func TestAddressInTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, values := range []helm.Values{
		{"env": []any{helm.Values{"name": "PROMETHEUS_BASE_URL", "value": address}}},
		{"envFrom": []any{helm.Values{"secretRef": helm.Values{"name": "prometheus"}}}},
		{"optimization": nil},
	} {
		for _, data := range configMaps(t, objects.Render(t, chart, values)) {
			assert.NotContains(t, data, "PROMETHEUS_BASE_URL")
		}
	}
}

// TestFlags checks the flags of values that are no configuration of a ConfigMap.
func TestFlags(t *testing.T) {
	t.Parallel()
	plan := helm.Values{"split": "equal", "headroomPercent": 25, "savingPercent": 0, "ttftPercentile": 99.5, "stabilizationWindow": "0s", "forecast": true}
	container := objects.Container(t, objects.Render(t, chart, with(helm.Values{
		"plan": plan, "controllerInstance": "blue", "decisionLog": "-", "discoveryInterval": "5s",
		"prometheus": helm.Values{"url": "http://prometheus", "allowHTTP": true, "metricsWindow": "90s"},
	})))
	assert.Subset(t, container.Args, []string{
		"--split=equal", "--headroom-percent=25", "--saving-percent=0", "--ttft-percentile=99.5", "--stabilization-window=0s", "--forecast=true",
		"--controller-instance=blue", "--decision-log=-", "--discovery-interval=5s", "--allow-http-prometheus=true", "--metrics-window=90s",
	})
	container = objects.Container(t, objects.Render(t, chart, with(nil)))
	assert.Empty(t, flagsOf(container, "--controller-instance"))
	assert.Empty(t, flagsOf(container, "--decision-log"))
	assert.Empty(t, flagsOf(container, "--scaler-"))
}

// TestHolds follows the way from the values to a picker: its authorities, the token, and the port that a NetworkPolicy opens.
func TestHolds(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, with(helm.Values{
		"holds": helm.Values{"caSecret": "ca", "token": true}, "networkPolicy": helm.Values{"enabled": true, "pickers": helm.Values{"ports": []int{9191}}},
	}))
	container := objects.Container(t, set)
	assert.Equal(t, []string{"--holds-ca-file=/etc/fairlead/holds/ca/ca.crt", "--holds-token-file=/etc/fairlead/holds/token/token"}, flagsOf(container, "--holds-"))
	assertMounted(t, set, []string{"/etc/fairlead/holds/ca/ca.crt", "/etc/fairlead/holds/token/token"})
	ports := func(set objects.Set) (all []string) {
		for _, rule := range objects.The[networkingv1.NetworkPolicy](t, set).Spec.Egress {
			for _, p := range rule.Ports {
				all = append(all, p.Port.String())
			}
		}
		return all
	}
	assert.Contains(t, ports(set), "9191")
	set = objects.Render(t, chart, with(helm.Values{
		"holds": helm.Values{"enabled": false}, "networkPolicy": helm.Values{"enabled": true, "pickers": helm.Values{"ports": []int{9191}}},
	}))
	assert.NotContains(t, ports(set), "9191")
	assert.Equal(t, []string{"--follow-holds=false"}, flagsOf(objects.Container(t, set), "--follow-holds"))
}

// TestExternalScaler follows the way from KEDA to the program: the Service of the examples, its port, the container and the flags.
func TestExternalScaler(t *testing.T) {
	t.Parallel()
	scaler := helm.Values{"enabled": true, "port": 9444, "certificateSecret": "tls", "clientCASecret": "clients", "clientNames": []string{"keda", "spiffe://a/b"}}
	peer := helm.Values{"namespaceSelector": helm.Values{"matchLabels": helm.Values{"kubernetes.io/metadata.name": "keda"}}}
	set := objects.Render(t, chart, with(helm.Values{
		"externalScaler": scaler, "networkPolicy": helm.Values{"enabled": true, "scaler": helm.Values{"from": []any{peer}}},
	}))
	container := objects.Container(t, set)
	assert.Equal(t, []string{
		"--scaler-bind-address=:9444", "--scaler-certificates=/etc/fairlead/scaler/certificate", "--scaler-client-ca-file=/etc/fairlead/scaler/client-ca/ca.crt",
		"--scaler-client-name=keda", "--scaler-client-name=spiffe://a/b",
	}, flagsOf(container, "--scaler-"))
	assert.Contains(t, container.Ports, corev1.ContainerPort{Name: "scaler", ContainerPort: 9444})
	assertMounted(t, set, []string{"/etc/fairlead/scaler/certificate/tls.crt", "/etc/fairlead/scaler/client-ca/ca.crt"})
	service := scalerService(t, set)
	assert.True(t, service.Spec.PublishNotReadyAddresses, "a leader that is not ready has the last decision")
	assert.Empty(t, service.Spec.ClusterIP, "not headless: only the leader listens")
	require.Len(t, service.Spec.Ports, 1)
	assert.Equal(t, int32(9444), service.Spec.Ports[0].Port)
	assert.Equal(t, "scaler", service.Spec.Ports[0].TargetPort.String())
	assert.Subset(t, objects.Pod(t, set).Labels, service.Spec.Selector)
	rule := objects.The[networkingv1.NetworkPolicy](t, set).Spec.Ingress[0]
	assert.Equal(t, "scaler", rule.Ports[0].Port.String())
	assert.Equal(t, map[string]string{"kubernetes.io/metadata.name": "keda"}, rule.From[0].NamespaceSelector.MatchLabels)

	assert.Len(t, objects.All[corev1.Service](t, objects.Render(t, chart, with(nil))), 1, "off by default")
}

// scalerService returns the Service of the external scaler.
func scalerService(t *testing.T, set objects.Set) *corev1.Service {
	t.Helper()
	all := objects.All[corev1.Service](t, set)
	i := slices.IndexFunc(all, func(s *corev1.Service) bool { return strings.HasSuffix(s.Name, "-scaler") })
	require.GreaterOrEqual(t, i, 0)
	return all[i]
}

// TestExamplesNameTheScaler compares the address in the examples with the Service of the release that they are for.
func TestExamplesNameTheScaler(t *testing.T) {
	t.Parallel()
	out, err := helm.Run(with(helm.Values{"externalScaler": helm.Values{"enabled": true}}), "template", "variant-autoscaler", chart, "--namespace", "fairlead")
	require.NoError(t, err)
	set, err := helm.Objects([]byte(out))
	require.NoError(t, err)
	service := scalerService(t, set)
	var compared int
	for file, so := range of[scaledObject](t, "ScaledObject") {
		if got := so.Spec.Triggers[0].Metadata["scalerAddress"]; got != "" {
			assert.Equal(t, service.Name+"."+service.Namespace+".svc:9443", got, file)
			compared++
		}
	}
	assert.Equal(t, 2, compared)
	assert.Equal(t, int32(9443), service.Spec.Ports[0].Port)
}

// TestNetworkPolicyOpensPrometheus checks the connection that the autoscaler has and other programs do not.
func TestNetworkPolicyOpensPrometheus(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		url    string
		policy helm.Values
		want   map[string]string // by port: the range of the only peer, empty for any
	}{
		{name: "port in the address", url: "https://prometheus:9090/path", want: map[string]string{"9090": ""}},
		{name: "IPv6", url: "https://[fd00::1]:9090", want: map[string]string{"9090": ""}},
		{name: "IPv6 without a port", url: "https://[fd00::1]", want: map[string]string{"443": ""}},
		{name: "port of https", url: "https://prometheus", want: map[string]string{"443": ""}},
		{name: "port of http", url: "http://prometheus", want: map[string]string{"80": ""}},
		{
			name: "ports of its pods", url: "https://prometheus:9090", want: map[string]string{"10902": "192.0.2.0/24", "10903": "192.0.2.0/24"},
			policy: helm.Values{"ports": []int{10902, 10903}, "to": []any{helm.Values{"ipBlock": helm.Values{"cidr": "192.0.2.0/24"}}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			values := prometheus(helm.Values{"url": tt.url, "allowHTTP": true})
			policy := helm.Values{"enabled": true, "apiServer": helm.Values{"ports": []int{6443}}}
			if tt.policy != nil {
				policy["prometheus"] = tt.policy
			}
			values["networkPolicy"], values["holds"] = policy, helm.Values{"enabled": false}
			opened := map[string]string{}
			for _, rule := range objects.The[networkingv1.NetworkPolicy](t, objects.Render(t, chart, values)).Spec.Egress {
				for _, port := range rule.Ports {
					opened[port.Port.String()] = ""
					for _, to := range rule.To {
						opened[port.Port.String()] = to.IPBlock.CIDR
					}
				}
			}
			delete(opened, "53")
			delete(opened, "6443")
			assert.Equal(t, tt.want, opened)
		})
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	scaler := func(values helm.Values) helm.Values { return helm.Values{"externalScaler": values} }
	tests := []struct {
		name string
		give helm.Values
		want string
		warn string // empty: no warning
	}{
		{
			name: "default", want: "plan --cluster --config-namespace=system --actuator=metrics --metrics-window=1m --allow-http-prometheus=false --split=observed " +
				"--headroom-percent=10 --saving-percent=5 --ttft-percentile=90 --trials=true\n",
		},
		{name: "who follows", want: "HorizontalPodAutoscalers and KEDA follow its metric"},
		{name: "who writes", give: helm.Values{"actuator": "scale"}, want: "Leave spec.replicas out of the manifests of targets"},
		{name: "and plan knows it", give: helm.Values{"actuator": "scale"}, want: "plan --cluster --config-namespace=system --actuator=scale "},
		{name: "several that write", give: helm.Values{"actuator": "scale", "leaderElection": helm.Values{"enabled": false}}, warn: "All of them write replicas"},
		{name: "other namespace", give: helm.Values{"configNamespace": "wva"}, want: "ConfigMaps of namespace wva"},
		{name: "existing configuration", give: helm.Values{"optimization": nil}, want: "creates no ConfigMap " + optimization},
		{name: "existing prices", give: helm.Values{"acceleratorUnitCosts": nil}, want: "creates no ConfigMap accelerator-unit-costs"},
		{name: "existing classes", give: helm.Values{"serviceClasses": nil}, want: "creates no ConfigMap service-classes-config"},
		{name: "several that decide", give: helm.Values{"leaderElection": helm.Values{"enabled": false}}, warn: "2 replicas without leader election"},
		{name: "no TLS", give: prometheus(helm.Values{"allowHTTP": true}), warn: "prometheus.allowHTTP"},
		{name: "any certificate", give: prometheus(helm.Values{"insecureSkipVerify": true}), warn: "prometheus.insecureSkipVerify"},
		{
			name: "external scaler", give: scaler(helm.Values{"enabled": true, "certificateSecret": "tls"}),
			want: "scalerAddress: release-variant-autoscaler-scaler.system.svc:9443\n  enableTLS: \"true\"",
		},
		{name: "external scaler without TLS", give: scaler(helm.Values{"enabled": true}), warn: "externalScaler.certificateSecret is not set"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			notes, err := helm.Notes(chart, with(tt.give))
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
