package profile

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// haproxyTech isolates pools by the controller string, which ends with the class.
func (b *builder) haproxyTech() controller {
	container := corev1.Container{
		Name: containerName, Image: b.image(), Env: podEnv(),
		Args: []string{
			"--configmap=" + b.self(),
			"--ingress.class=" + b.pool.Class,
			"--publish-service=" + b.self(),
			"--http-bind-port=8000",
			"--https-bind-port=8443",
			// A snippet is code: it reads files of the container, so who may write Ingresses or Services would read all Secrets of the cluster.
			"--disable-config-snippets=all",
			"--disable-service-external-name", // such as 127.0.0.1: ports of the controller, or of its node
		},
		Ports:           b.ports(podHTTP, podHTTPS),
		Resources:       b.resources("100m", "256Mi"),
		SecurityContext: containerSecurity(bindLowPorts), // the program in the image does not start without it
	}
	pageProbes(&container, "/healthz", "/healthz", intstr.FromInt32(1042))
	return b.grant(controller{
		class:    "haproxy.org/ingress-controller/" + b.pool.Class,
		config:   map[string]string{"ssl-redirect-port": "443"},
		cacheEnv: cacheEnv(),
		meta:     b.podMeta(),
		pod: corev1.PodSpec{
			Containers: []corev1.Container{container}, SecurityContext: podSecurity(1000), TerminationGracePeriodSeconds: ptr(int64(60)),
		},
		http: intstr.FromString(portHTTP), https: intstr.FromString(portHTTPS),
	}, "local")
}

// haproxyIngress isolates pools by the controller string, which ends with the controller class.
func (b *builder) haproxyIngress() controller {
	container := corev1.Container{
		Name: containerName, Image: b.image(), Env: podEnv(),
		Args: []string{
			"--configmap=" + b.self(),
			"--controller-class=" + b.pool.Class,
			"--ingress-class=" + b.pool.Class, // of the deprecated annotation
			"--watch-ingress-without-class=false",
			"--watch-gateway=false",
			"--election-id=" + b.name + ".%s", // the program puts the class there, or at the end after a dash
			"--disable-config-keywords=*",     // snippets of annotations, as above
			"--disable-external-name",
		},
		Ports:           b.ports(podHTTP, podHTTPS),
		Resources:       b.resources("100m", "256Mi"),
		SecurityContext: containerSecurity(bindLowPorts), // the program in the image does not start without it
	}
	// The program ends at its start if the Service has no address outside of the cluster. Without a Service, it writes those of its nodes.
	if t := b.pool.Exposure.Type; t == v1alpha1.ExposureLoadBalancer || t == v1alpha1.ExposureExternalIPs {
		container.Args = append(container.Args, "--publish-service="+b.self())
	}
	pageProbes(&container, "/healthz", "/healthz", intstr.FromInt32(10254))
	return b.grant(controller{
		class:    "haproxy-ingress.github.io/controller/" + b.pool.Class,
		config:   map[string]string{"http-port": "8000", "https-port": "8443"},
		cacheEnv: cacheEnv(),
		meta:     b.podMeta(),
		pod: corev1.PodSpec{
			Containers: []corev1.Container{container}, SecurityContext: podSecurity(99), TerminationGracePeriodSeconds: ptr(int64(60)),
		},
		http: intstr.FromString(portHTTP), https: intstr.FromString(portHTTPS),
	}, "local")
}
