package profile

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// haproxyTechController isolates pools by the controller string, which ends with the class.
func (b *builder) haproxyTechController() controller {
	container := corev1.Container{
		Name: containerName, Image: b.controllerImage(), Env: podEnv(),
		Args: []string{
			"--configmap=" + b.namespacedName(),
			"--ingress.class=" + b.pool.Class,
			"--publish-service=" + b.namespacedName(),
			"--http-bind-port=8000",
			"--https-bind-port=8443",
			// A snippet is code that can read files of the container: users who may write Ingresses or Services could read all Secrets.
			"--disable-config-snippets=all",
			"--disable-service-external-name", // such as 127.0.0.1: ports of the controller, or of its node
		},
		Ports:           b.clientPorts(podHTTP, podHTTPS),
		Resources:       b.controllerResources("100m", "256Mi"),
		SecurityContext: containerSecurity(bindLowPorts), // the program in the image does not start without it
	}
	pageProbes(&container, "/healthz", "/healthz", intstr.FromInt32(1042))
	return b.grantRoles(controller{
		class:    "haproxy.org/ingress-controller/" + b.pool.Class,
		config:   map[string]string{"ssl-redirect-port": "443"},
		cacheEnv: cacheEnv(),
		meta:     b.podMeta(),
		pod: corev1.PodSpec{
			Containers: []corev1.Container{container}, SecurityContext: podSecurity(1000),
			TerminationGracePeriodSeconds: pointerTo(int64(60)),
		},
		http: intstr.FromString(portHTTP), https: intstr.FromString(portHTTPS),
	}, "local")
}

// haproxyIngressController isolates pools by the controller string, which ends with the controller class.
func (b *builder) haproxyIngressController() controller {
	container := corev1.Container{
		Name: containerName, Image: b.controllerImage(), Env: podEnv(),
		Args: []string{
			"--configmap=" + b.namespacedName(),
			"--controller-class=" + b.pool.Class,
			"--ingress-class=" + b.pool.Class, // of the deprecated annotation
			"--watch-ingress-without-class=false",
			"--watch-gateway=false",
			"--election-id=" + b.name + ".%s", // the program puts the class there, or at the end after a dash
			"--disable-config-keywords=*",     // snippets of annotations, as above
			"--disable-external-name",
		},
		Ports:           b.clientPorts(podHTTP, podHTTPS),
		Resources:       b.controllerResources("100m", "256Mi"),
		SecurityContext: containerSecurity(bindLowPorts), // the program in the image does not start without it
	}
	// The program ends at its start if the Service has no address outside of the cluster. Without a Service, it writes those of its nodes.
	if t := b.pool.Exposure.Type; t == v1alpha1.ExposureLoadBalancer || t == v1alpha1.ExposureExternalIPs {
		container.Args = append(container.Args, "--publish-service="+b.namespacedName())
	}
	pageProbes(&container, "/healthz", "/healthz", intstr.FromInt32(10254))
	return b.grantRoles(controller{
		class:    "haproxy-ingress.github.io/controller/" + b.pool.Class,
		config:   map[string]string{"http-port": "8000", "https-port": "8443"},
		cacheEnv: cacheEnv(),
		meta:     b.podMeta(),
		pod: corev1.PodSpec{
			Containers: []corev1.Container{container}, SecurityContext: podSecurity(99),
			TerminationGracePeriodSeconds: pointerTo(int64(60)),
		},
		http: intstr.FromString(portHTTP), https: intstr.FromString(portHTTPS),
	}, "local")
}
