package profile

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const nginxUser = 101

// f5NGINXController isolates pools by the name of the class: it accepts a single controller string. Its flags have one dash.
func (b *builder) f5NGINXController() controller {
	container := b.newContainer("128Mi", []string{
		"-nginx-configmaps=" + b.namespacedName(),
		"-ingress-class=" + b.pool.Class,
		"-leader-election-lock-name=" + b.name,
		"-report-ingress-status=true",
		"-external-service=" + b.name,
		"-enable-custom-resources=false",
		"-enable-telemetry-reporting=false",
		"-ready-status=true",
		"-ready-status-port=8082", // 8081 is the default, and usual for sidecars
	})
	container.Ports = b.clientPorts(80, 443) // fixed: only the default server has flags for its ports
	container.ReadinessProbe = httpProbe("/nginx-ready", intstr.FromInt32(8082))
	c := b.newController("nginx.org/ingress-controller", container, nginxUser, 60)
	c.config = map[string]string{"server-tokens": "false"}
	return c
}

// ingressNGINXController isolates pools by the controller string and by the election id: all controllers with the same id elect one leader,
// and only that one writes the status of its Ingresses. There is no admission webhook.
func (b *builder) ingressNGINXController() controller {
	class := "k8s.io/ingress-nginx-" + b.pool.Class
	args := []string{
		"/nginx-ingress-controller",
		"--controller-class=" + class,
		"--ingress-class=" + b.pool.Class, // of the deprecated annotation
		"--watch-ingress-without-class=false",
		"--election-id=" + b.name,
		"--configmap=" + b.namespacedName(),
		"--publish-service=" + b.namespacedName(),
		"--http-port=8000",
		"--https-port=8443",
		"--healthz-port=10254",
		"--enable-annotation-validation=true",
		"--disable-svc-external-name=true", // a name of 127.0.0.1: its port for Lua gives the keys of all certificates
	}
	if b.pool.Cache != nil {
		args = append(args, "--apiserver-host="+cacheURL, "--certificate-authority="+accountFolder+"/ca.crt")
	}
	container := b.newContainer("128Mi", args)
	container.Lifecycle = &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/wait-shutdown"}}},
	}
	pageProbes(&container, "/healthz", "/healthz", intstr.FromInt32(10254))
	c := b.newController(class, container, nginxUser, 300)
	c.cacheEnv = nil // it has flags for the API server
	// A snippet is code: users who may write Ingresses could read all Secrets of the cluster.
	c.config = map[string]string{"allow-snippet-annotations": "false", "annotations-risk-level": "High"}
	return c
}
