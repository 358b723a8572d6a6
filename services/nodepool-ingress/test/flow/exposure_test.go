//go:build system

package flow

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/apply"
	"fairlead.dev/services/nodepool-ingress/internal/config"
)

// entrance is what an exposure sets in the Deployment and in the Service of a pool.
type entrance struct {
	HostNetwork    bool
	DNSPolicy      corev1.DNSPolicy
	Ports          []corev1.ContainerPort
	User           int64
	Capabilities   []corev1.Capability
	Strategy       appsv1.DeploymentStrategyType
	Type           corev1.ServiceType
	Policy         corev1.ServiceExternalTrafficPolicy
	Class          string
	LoadBalancerIP string
	ExternalIPs    []string
	Annotations    []string
	FixedPorts     bool // 30080 and 30443
	NodePorts      bool
}

// exposures are the exposures of a pool with one node and one pod, and what they look like.
var exposures = map[string]struct {
	pool string
	want entrance
}{
	"random node ports": {
		pool: `{"name": "hangzhou"}`,
		want: entrance{Type: corev1.ServiceTypeNodePort, Policy: corev1.ServiceExternalTrafficPolicyLocal, NodePorts: true},
	},
	"fixed node ports": {
		pool: `{"name": "hangzhou", "exposure": {"type": "NodePort", "httpPort": 30080, "httpsPort": 30443}}`,
		want: entrance{
			Type: corev1.ServiceTypeNodePort, Policy: corev1.ServiceExternalTrafficPolicyLocal, NodePorts: true, FixedPorts: true,
		},
	},
	"load balancer of the cluster": {
		pool: `{"name": "hangzhou", "exposure": {"type": "LoadBalancer"}}`,
		want: entrance{Type: corev1.ServiceTypeLoadBalancer, Policy: corev1.ServiceExternalTrafficPolicyLocal, NodePorts: true},
	},
	"load balancer with a class and an address": {
		pool: `{"name": "hangzhou", "ingress_ips": ["198.51.100.7"], "exposure": {"type": "LoadBalancer", "loadBalancerClass": ` +
			`"example.com/x"}}`,
		want: entrance{
			Type: corev1.ServiceTypeLoadBalancer, Policy: corev1.ServiceExternalTrafficPolicyLocal, NodePorts: true, Class: "example.com/x",
			LoadBalancerIP: "198.51.100.7", Annotations: []string{"kube-vip.io/loadbalancerIPs", "metallb.io/loadBalancerIPs"},
		},
	},
	"external addresses": {
		pool: `{"name": "hangzhou", "ingress_ips": ["192.0.2.7"]}`,
		want: entrance{
			Type: corev1.ServiceTypeClusterIP, Policy: corev1.ServiceExternalTrafficPolicyLocal, ExternalIPs: []string{"192.0.2.7"},
		},
	},
	"inside the cluster": {
		pool: `{"name": "hangzhou", "exposure": {"type": "ClusterIP"}}`,
		want: entrance{Type: corev1.ServiceTypeClusterIP},
	},
	"ports of nodes": {
		pool: `{"name": "hangzhou", "exposure": {"type": "HostPort"}}`,
		want: entrance{
			Type: corev1.ServiceTypeClusterIP, Strategy: appsv1.RecreateDeploymentStrategyType, Ports: ports(8000, 8443, 80, 443),
		},
	},
	"the network of nodes": {
		pool: `{"name": "hangzhou", "exposure": {"type": "HostNetwork"}}`,
		want: entrance{
			Type: corev1.ServiceTypeClusterIP, Strategy: appsv1.RecreateDeploymentStrategyType, HostNetwork: true,
			DNSPolicy: corev1.DNSClusterFirstWithHostNet, Ports: ports(80, 443, 80, 443),
			Capabilities: []corev1.Capability{"NET_BIND_SERVICE"},
		},
	},
}

func ports(http, https, hostHTTP, hostHTTPS int32) []corev1.ContainerPort {
	return []corev1.ContainerPort{
		{Name: "http", ContainerPort: http, HostPort: hostHTTP, Protocol: corev1.ProtocolTCP},
		{Name: "https", ContainerPort: https, HostPort: hostHTTPS, Protocol: corev1.ProtocolTCP},
	}
}

// TestExposures gives a pool each exposure, and from there each other one. An exposure leaves no field behind when another one replaces it:
// neither ports of nodes nor their network, no class, no address, and no port of a Service.
func TestExposures(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("hangzhou")
	r.deploy()
	r.start(func(c *config.Config) {
		c.Policy.Exposures = append(c.Policy.Exposures, v1alpha1.ExposureHostNetwork)
		c.Policy.BalancerClasses, c.Policy.BalancerIPRanges = []string{"example.com/x"}, []string{"198.51.100.0/24"}
		c.Policy.ExternalIPRanges = []string{"192.0.2.0/24"}
	})
	r.create("edge", "{pools: []}")
	names := slices.Sorted(maps.Keys(exposures))
	fixed := false // a Service keeps its node ports while its types have any
	visit := func(name string) {
		want := exposures[name].want
		fixed = want.FixedPorts || fixed && want.NodePorts
		want.FixedPorts = fixed
		if want.Ports == nil {
			want.Ports = ports(8000, 8443, 0, 0)
		}
		if want.DNSPolicy == "" {
			want.DNSPolicy = corev1.DNSClusterFirst
		}
		if want.Strategy == "" {
			want.Strategy = appsv1.RollingUpdateDeploymentStrategyType
		}
		if want.Capabilities == nil {
			want.User = 65532
		}
		r.patch("edge", `{"spec": {"pools": [`+exposures[name].pool+`]}}`)
		var got entrance
		r.eventually(func() (string, bool) {
			var found bool
			got, found = r.entrance("hangzhou")
			return name, found && assert.ObjectsAreEqual(want, got) && r.get("edge").Status.ReadyNum == 1
		}, "exposure %s: last %+v", name, &got)
	}
	for i, name := range names {
		for _, other := range names[i+1:] {
			visit(name)
			visit(other)
		}
	}
	r.settled("edge")
}

// entrance returns the entrance of a pool.
func (r *rig) entrance(pool string) (entrance, bool) {
	r.t.Helper()
	d := r.deployment(pool)
	list, err := r.kube.CoreV1().Services(namespace).List(r.t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelPool + "=" + pool})
	require.NoError(r.t, err)
	if d == nil || len(list.Items) != 1 {
		return entrance{}, false
	}
	pod, s := &d.Spec.Template.Spec, &list.Items[0]
	e := entrance{
		HostNetwork: pod.HostNetwork, DNSPolicy: pod.DNSPolicy, Ports: pod.Containers[0].Ports, User: *pod.SecurityContext.RunAsUser,
		Capabilities: pod.Containers[0].SecurityContext.Capabilities.Add, Strategy: d.Spec.Strategy.Type,
		Type: s.Spec.Type, Policy: s.Spec.ExternalTrafficPolicy, LoadBalancerIP: s.Spec.LoadBalancerIP, ExternalIPs: s.Spec.ExternalIPs,
		FixedPorts: s.Spec.Ports[0].NodePort == 30080 && s.Spec.Ports[1].NodePort == 30443,
		NodePorts:  s.Spec.Ports[0].NodePort != 0 || s.Spec.Ports[1].NodePort != 0,
	}
	if s.Spec.LoadBalancerClass != nil {
		e.Class = *s.Spec.LoadBalancerClass
	}
	for _, key := range slices.Sorted(maps.Keys(s.Annotations)) {
		if key != apply.HashAnnotation {
			e.Annotations = append(e.Annotations, key)
		}
	}
	return e, true
}
