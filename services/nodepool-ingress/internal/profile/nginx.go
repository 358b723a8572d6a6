package profile

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const nginxUser = 101

// f5NGINXController isolates pools by the name of the class: it accepts a single controller string. Its flags have one dash.
func (b *builder) f5NGINXController() controller {
	container := corev1.Container{
		Name: containerName, Image: b.controllerImage(), Env: podEnv(),
		Args: []string{
			"-nginx-configmaps=" + b.namespacedName(),
			"-ingress-class=" + b.pool.Class,
			"-leader-election-lock-name=" + b.name,
			"-report-ingress-status=true",
			"-external-service=" + b.name,
			"-enable-custom-resources=false",
			"-enable-telemetry-reporting=false",
			"-ready-status=true",
			"-ready-status-port=8082", // 8081 is the default, and usual for sidecars
		},
		Ports:           b.clientPorts(80, 443), // fixed: only the default server has flags for its ports
		Resources:       b.controllerResources("100m", "128Mi"),
		SecurityContext: containerSecurity(bindLowPorts),
		ReadinessProbe:  httpProbe("/nginx-ready", intstr.FromInt32(8082)),
	}
	return b.grantRoles(controller{
		class:    "nginx.org/ingress-controller",
		config:   map[string]string{"server-tokens": "false"},
		cacheEnv: cacheEnv(),
		meta:     b.podMeta(),
		pod: corev1.PodSpec{
			Containers: []corev1.Container{container}, SecurityContext: podSecurity(nginxUser),
			TerminationGracePeriodSeconds: pointerTo(int64(60)),
		},
		http: intstr.FromString(portHTTP), https: intstr.FromString(portHTTPS),
	}, "local")
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
	container := corev1.Container{
		Name: containerName, Image: b.controllerImage(), Env: podEnv(), Args: args,
		Ports:           b.clientPorts(podHTTP, podHTTPS),
		Resources:       b.controllerResources("100m", "128Mi"),
		SecurityContext: containerSecurity(bindLowPorts), // the program in the image does not start without it
		Lifecycle: &corev1.Lifecycle{
			PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/wait-shutdown"}}},
		},
	}
	pageProbes(&container, "/healthz", "/healthz", intstr.FromInt32(10254))
	return b.grantRoles(controller{
		class: class,
		// A snippet is code: users who may write Ingresses could read all Secrets of the cluster.
		config: map[string]string{"allow-snippet-annotations": "false", "annotations-risk-level": "High"},
		meta:   b.podMeta(),
		pod: corev1.PodSpec{
			Containers: []corev1.Container{container}, SecurityContext: podSecurity(nginxUser),
			TerminationGracePeriodSeconds: pointerTo(int64(300)),
		},
		http: intstr.FromString(portHTTP), https: intstr.FromString(portHTTPS),
	}, "local")
}
