package profile

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// haproxyTechController isolates pools by the controller string, which ends with the class.
func (b *builder) haproxyTechController() controller {
	container := b.newContainer("256Mi", []string{
		"--configmap=" + b.namespacedName(),
		"--ingress.class=" + b.pool.Class,
		"--publish-service=" + b.namespacedName(),
		"--http-bind-port=8000",
		"--https-bind-port=8443",
		// A snippet is code that can read files of the container: users who may write Ingresses or Services could read all Secrets.
		"--disable-config-snippets=all",
		"--disable-service-external-name", // such as 127.0.0.1: ports of the controller, or of its node
	})
	pageProbes(&container, "/healthz", "/healthz", intstr.FromInt32(1042))
	c := b.newController("haproxy.org/ingress-controller/"+b.pool.Class, container, 1000, 60)
	c.config = map[string]string{"ssl-redirect-port": "443"}
	return c
}

// haproxyIngressController isolates pools by the controller string, which ends with the controller class.
func (b *builder) haproxyIngressController() controller {
	container := b.newContainer("256Mi", []string{
		"--configmap=" + b.namespacedName(),
		"--controller-class=" + b.pool.Class,
		"--ingress-class=" + b.pool.Class, // of the deprecated annotation
		"--watch-ingress-without-class=false",
		"--watch-gateway=false",
		"--election-id=" + b.name + ".%s", // the program puts the class there, or at the end after a dash
		"--disable-config-keywords=*",     // snippets of annotations, as above
		"--disable-external-name",
	})
	// The program ends at its start if the Service has no address outside of the cluster. Without a Service, it writes those of its nodes.
	if t := b.pool.Exposure.Type; t == v1alpha1.ExposureLoadBalancer || t == v1alpha1.ExposureExternalIPs {
		container.Args = append(container.Args, "--publish-service="+b.namespacedName())
	}
	pageProbes(&container, "/healthz", "/healthz", intstr.FromInt32(10254))
	c := b.newController("haproxy-ingress.github.io/controller/"+b.pool.Class, container, 99, 60)
	c.config = map[string]string{"http-port": "8000", "https-port": "8443"}
	return c
}
