// Package backendsetsyncer_test checks what only charts/backendset-syncer has: credentials for OCI, readiness gates and their webhook,
// roles, what its schema refuses, its notes, that its alerts fire, and that its documents keep up with the program.
// Package family_test checks what all charts have in common.
package backendsetsyncer_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

const program = "backendset-syncer"

var (
	repository = helm.Repository()
	chart      = filepath.Join(repository, "charts", program)
)

// configured is a configuration with a load balancer.
func configured() helm.Values {
	return helm.Values{"loadBalancers": []any{helm.Values{"id": "ocid1.loadbalancer.oc1.iad.aaaa"}}}
}

// TestCredentials checks the flags, the variables and the mounted Secret of each kind of authentication.
func TestCredentials(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		give   helm.Values
		args   []string
		env    []corev1.EnvVar
		secret string // empty: none
	}{
		{name: "default", give: helm.Values{}, args: []string{"--oci-auth=instance-principal", "--oci-requests-per-second=10"}},
		{
			name: "API key", give: helm.Values{"auth": "api-key", "apiKeySecret": "key"}, secret: "key",
			args: []string{"--oci-auth=api-key", "--oci-key-directory=/etc/fairlead/oci", "--oci-requests-per-second=10"},
		},
		{
			name: "configuration file", give: helm.Values{"auth": "config-file", "configSecret": "file", "profile": "LB"}, secret: "file",
			args: []string{"--oci-auth=config-file", "--oci-config-file=/etc/fairlead/oci/config", "--oci-config-profile=LB", "--oci-requests-per-second=10"},
		},
		{
			name: "workload identity", give: helm.Values{"auth": "workload-identity", "region": "us-ashburn-1"},
			args: []string{"--oci-auth=workload-identity", "--oci-region=us-ashburn-1", "--oci-requests-per-second=10"},
			env:  []corev1.EnvVar{{Name: "OCI_RESOURCE_PRINCIPAL_VERSION", Value: "2.2"}, {Name: "OCI_RESOURCE_PRINCIPAL_REGION", Value: "us-ashburn-1"}},
		},
		{
			name: "resource principal at another endpoint", give: helm.Values{"auth": "resource-principal", "endpoint": "http://emulator:8080", "requestsPerSecond": 0.5},
			args: []string{"--oci-auth=resource-principal", "--oci-endpoint=http://emulator:8080", "--oci-requests-per-second=0.5"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := objects.Render(t, chart, helm.Values{"oci": tt.give})
			pod, container := objects.Pod(t, set).Spec, objects.Container(t, set)
			assert.Equal(t, tt.args, flagsOf(container, "--oci-"))
			assert.Equal(t, tt.env, container.Env)
			assert.True(t, *pod.AutomountServiceAccountToken)
			if tt.secret == "" {
				assert.Empty(t, pod.Volumes)
				return
			}
			require.Len(t, pod.Volumes, 1)
			assert.Equal(t, tt.secret, pod.Volumes[0].Secret.SecretName)
			assert.Equal(t, []corev1.VolumeMount{{Name: pod.Volumes[0].Name, MountPath: "/etc/fairlead/oci", ReadOnly: true}}, container.VolumeMounts)
		})
	}
}

// flagsOf returns the arguments with a prefix.
func flagsOf(container *corev1.Container, prefix string) []string {
	var found []string
	for _, arg := range container.Args {
		if len(arg) > len(prefix) && arg[:len(prefix)] == prefix {
			found = append(found, arg)
		}
	}
	return found
}

// TestNetworkPolicyOpensOCI checks the connections that the syncer has and other programs do not.
func TestNetworkPolicyOpensOCI(t *testing.T) {
	t.Parallel()
	api := []any{helm.Values{"ipBlock": helm.Values{"cidr": "10.0.0.1/32"}}}
	tests := []struct {
		name   string
		give   helm.Values
		policy helm.Values
		want   map[string]string // by port: the range of the only peer, empty for any
	}{
		{name: "instance principal", want: map[string]string{"443": "", "80": "169.254.169.254/32"}},
		{name: "resource principal", give: helm.Values{"auth": "resource-principal"}, want: map[string]string{"443": ""}},
		{
			name: "workload identity", give: helm.Values{"auth": "workload-identity", "region": "us-ashburn-1"}, policy: helm.Values{"apiServer": helm.Values{"to": api, "ports": []int{6443}}},
			want: map[string]string{"443": "", "12250": "10.0.0.1/32"},
		},
		{
			name: "addresses of a service gateway", give: helm.Values{"auth": "resource-principal"},
			policy: helm.Values{"oci": helm.Values{"to": []any{helm.Values{"ipBlock": helm.Values{"cidr": "192.0.2.0/24"}}}}},
			want:   map[string]string{"443": "192.0.2.0/24"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			policy := helm.Values{"enabled": true, "apiServer": helm.Values{"ports": []int{6443}}}
			for key, value := range tt.policy {
				policy[key] = value
			}
			values := helm.Values{"networkPolicy": policy}
			if tt.give != nil {
				values["oci"] = tt.give
			}
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
	tests := []struct {
		name string
		give helm.Values
		want string
		warn string // empty: no warning
	}{
		{name: "nothing is configured", want: "ConfigMap system/release-backendset-syncer", warn: "config lists no loadBalancers"},
		{name: "load balancer", give: helm.Values{"config": configured()}, want: "plan --config-map=system/release-backendset-syncer --readiness-gates=false --gateways=false --oci-auth=instance-principal --oci-requests-per-second=10"},
		{name: "configured as a text", give: helm.Values{"config": "loadBalancers: []"}, want: "kubectl get backendsetbindings"},
		{name: "existing ConfigMap", give: helm.Values{"configMap": helm.Values{"name": "lbs", "namespace": "platform"}}, want: "--config-map=platform/lbs"},
		{name: "several that write", give: helm.Values{"config": configured(), "leaderElection": helm.Values{"enabled": false}}, want: "plan", warn: "2 replicas without leader election"},
		{name: "readiness gates", give: helm.Values{"config": configured(), "readinessGates": helm.Values{"enabled": true}}, want: "add the\ngate to their spec"},
		{
			name: "webhook", give: helm.Values{"config": configured(), "readinessGates": helm.Values{"enabled": true, "webhook": helm.Values{"enabled": true}}},
			want: "kubectl label namespace NAMESPACE fairlead.dev/oci-lb-ready-inject=enabled",
		},
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
