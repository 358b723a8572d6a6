package profile

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// Annotations that request addresses from load balancers of bare metal. Each of them ignores the other's.
const (
	annotationMetalLB = "metallb.io/loadBalancerIPs"
	annotationKubeVIP = "kube-vip.io/loadbalancerIPs"
)

// buildService returns the Service of a pool. It is never reachable at the nodes of other pools: with externalTrafficPolicy Local, a node
// answers only if it runs a pod of the Service, and the pod sees the address of the client.
func (b *builder) buildService() Object {
	http := corev1.ServicePort{Name: portHTTP, Port: 80, TargetPort: intstr.FromString(portHTTP), Protocol: corev1.ProtocolTCP}
	https := corev1.ServicePort{Name: portHTTPS, Port: 443, TargetPort: intstr.FromString(portHTTPS), Protocol: corev1.ProtocolTCP}
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: b.objectMeta(b.name),
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: selectorOf(b.pool)},
	}
	exposure, spec := b.pool.Exposure, &s.Spec
	switch exposure.Type {
	case v1alpha1.ExposureNodePort:
		spec.Type, spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal
		http.NodePort, https.NodePort = exposure.HTTPPort, exposure.HTTPSPort
	case v1alpha1.ExposureLoadBalancer:
		spec.Type, spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
		if exposure.LoadBalancerClass != "" {
			spec.LoadBalancerClass = &exposure.LoadBalancerClass
		}
		requestAddresses(s, b.pool.Addresses)
	case v1alpha1.ExposureExternalIPs:
		spec.ExternalIPs, spec.ExternalTrafficPolicy = b.pool.Addresses, corev1.ServiceExternalTrafficPolicyLocal
	}
	spec.Ports = []corev1.ServicePort{http, https}
	return s
}

// requestAddresses requests addresses in each form that a load balancer may know. The field holds a single one.
func requestAddresses(s *corev1.Service, addresses []string) {
	if len(addresses) == 0 {
		return
	}
	list := strings.Join(addresses, ",")
	s.Annotations = map[string]string{annotationMetalLB: list, annotationKubeVIP: list}
	if len(addresses) == 1 {
		s.Spec.LoadBalancerIP = addresses[0]
	}
	four, six := false, false
	for _, text := range addresses {
		if address, err := netip.ParseAddr(text); err == nil {
			four, six = four || address.Unmap().Is4(), six || !address.Unmap().Is4()
		}
	}
	if four && six {
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
	}
	if six && !four {
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	}
}
