package profile

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	traefik "fairlead.dev/pkg/apis/traefik/v1alpha1"
)

const (
	traefikClass    = "traefik.io/ingress-controller" // of every Traefik
	traefikUser     = 65532
	traefikInternal = 8080 // pings and metrics

	traefikFolder = "/etc/traefik"
	traefikFile   = "dynamic.yaml"
	// traefikDynamic contains the settings of all routes of a pool.
	traefikDynamic = "tls:\n  options:\n    default:\n      minVersion: VersionTLS12\n"

	// traefikAccept is the time in which a stopping Traefik accepts connections: until kube-proxies and load balancers know.
	traefikAccept = 10
	// traefikDrain is the time that requests have to end after that.
	traefikDrain = 30
)

// traefikController isolates pools by the name of the class: all Traefiks have the same controller string. It elects no leader.
func (b *builder) traefikController() controller {
	http, https := b.listenPorts()
	internal, host := ":"+strconv.Itoa(traefikInternal), ""
	if b.pool.Exposure.Type == v1alpha1.ExposureHostNetwork {
		host = "127.0.0.1" // the metrics are not reachable from outside the node
		internal = host + internal
	}
	container := b.newContainer("128Mi", b.traefikArgs(http, https, internal))
	container.Env, container.SecurityContext = nil, containerSecurity()
	container.VolumeMounts = []corev1.VolumeMount{
		{Name: "config", MountPath: traefikFolder, ReadOnly: true}, {Name: "tmp", MountPath: "/tmp"},
	}
	user := int64(traefikUser)
	if http < lowPort || https < lowPort {
		// The program in the image has no capabilities of its own, and Kubernetes gives none to users other than root.
		user, container.SecurityContext = 0, containerSecurity(bindLowPorts)
	}
	container.SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
	pageProbes(&container, "/ping", "/ping", intstr.FromInt32(traefikInternal))
	container.ReadinessProbe.HTTPGet.Host, container.LivenessProbe.HTTPGet.Host = host, host
	// A ping is answered before the routes are read. Without the delay the first requests of a new pod get 404.
	container.ReadinessProbe.InitialDelaySeconds, container.ReadinessProbe.PeriodSeconds = 3, 2
	c := b.newController(traefikClass, container, user, traefikAccept+traefikDrain+5)
	if b.pool.CustomResources {
		c.servedGroupVersion = traefik.SchemeGroupVersion.String()
	}
	c.cacheEnv, c.local = nil, nil // it has flags for the API server, and no lock
	c.config = map[string]string{traefikFile: traefikDynamic}
	c.pod.Volumes = []corev1.Volume{
		{
			Name: "config",
			VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: b.name}},
			},
		},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, // buffered bodies
	}
	return c
}

func (b *builder) traefikArgs(http, https int32, internal string) []string {
	args := []string{
		"--global.checkNewVersion=false",
		"--global.sendAnonymousUsage=false",
		"--log.level=INFO",
		"--log.format=json",
		"--entryPoints.traefik.address=" + internal,
		"--ping=true",
		"--ping.terminatingStatusCode=200", // a node without another pod sends requests to the one that stops
		"--metrics.prometheus=true",
		fmt.Sprintf("--entryPoints.web.address=:%d", http),
		fmt.Sprintf("--entryPoints.websecure.address=:%d", https),
		"--entryPoints.websecure.http.tls=true",
	}
	for _, entry := range []string{"web", "websecure"} {
		args = append(args,
			fmt.Sprintf("--entryPoints.%s.transport.lifeCycle.requestAcceptGraceTimeout=%ds", entry, traefikAccept),
			fmt.Sprintf("--entryPoints.%s.transport.lifeCycle.graceTimeOut=%ds", entry, traefikDrain))
	}
	args = append(args,
		"--providers.file.filename="+traefikFolder+"/"+traefikFile,
		"--providers.kubernetesIngress=true",
		"--providers.kubernetesIngress.ingressClass="+b.pool.Class, // without it, Traefik serves the classes of all pools
		"--providers.kubernetesIngress.ingressEndpoint.publishedService="+b.namespacedName(),
		"--providers.kubernetesIngress.allowEmptyServices=true",   // 503 while no pod is ready; without it 404
		"--providers.kubernetesIngress.strictPrefixMatching=true", // /a is no prefix of /ab, as Kubernetes has it
	)
	providers := []string{"kubernetesIngress"}
	if b.pool.CustomResources {
		providers = append(providers, "kubernetesCRD")
		args = append(args,
			"--providers.kubernetesCRD=true",
			"--providers.kubernetesCRD.ingressClass="+b.pool.Class, // of IngressRoutes; without it, Traefik serves those of all pools
			"--providers.kubernetesCRD.allowEmptyServices=true",
		)
	}
	for _, provider := range providers {
		if b.pool.Cache != nil {
			args = append(args, "--providers."+provider+".endpoint="+cacheURL)
		}
	}
	return args
}
