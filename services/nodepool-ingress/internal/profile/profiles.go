package profile

import (
	"cmp"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// images are the default images, by profile. Traefik is the version that the whole-system tests run.
var images = map[string]string{
	v1alpha1.ProfileTraefik:        "docker.io/library/traefik:v3.7.9",
	v1alpha1.ProfileHAProxyTech:    "docker.io/haproxytech/kubernetes-ingress:3.2.9",
	v1alpha1.ProfileHAProxyIngress: "quay.io/jcmoraisjr/haproxy-ingress:v0.16.1",
	v1alpha1.ProfileF5NGINX:        "docker.io/nginx/nginx-ingress:5.5.4",
	v1alpha1.ProfileIngressNGINX:   "registry.k8s.io/ingress-nginx/controller:v1.15.1",
}

// DefaultImages returns the default image of each profile. The profile custom has none.
func DefaultImages() map[string]string { return maps.Clone(images) }

// ImageRepositories returns the repositories whose images a profile may have by default, with their registries.
func ImageRepositories(profile string) []string {
	image, found := images[profile]
	if !found {
		return nil
	}
	repository, _, _ := strings.Cut(image, ":")
	return []string{repository}
}

const (
	// Ports of the pods. Programs without privileges can listen on them.
	podHTTP, podHTTPS = 8000, 8443

	containerName = "controller"
	// lowPort is the first port that needs no capability.
	lowPort = 1024
)

// checkPool returns the problems that do not depend on the profile.
func (b *builder) checkPool() []Problem {
	var problems []Problem
	refuse := func(format string, args ...any) {
		problems = append(problems, *NewProblem(v1alpha1.ReasonInvalid, format, args...))
	}
	if _, known := images[b.pool.Profile]; !known && b.pool.Profile != v1alpha1.ProfileCustom {
		refuse("profile %q does not exist", b.pool.Profile)
	}
	onNetwork := b.pool.Exposure.Type == v1alpha1.ExposureHostNetwork
	if onNetwork && b.pool.Profile != v1alpha1.ProfileTraefik && b.pool.Profile != v1alpha1.ProfileCustom {
		refuse("exposure HostNetwork: profile %s would take further ports of the nodes; use the exposure HostPort, or the profile traefik or "+
			"custom", b.pool.Profile)
	}
	for _, port := range b.internalPorts() {
		if onNetwork && (b.pool.Exposure.HTTPPort == port || b.pool.Exposure.HTTPSPort == port) {
			refuse("exposure HostNetwork: the pod itself needs port %d of the nodes; use another one", port)
		}
	}
	if b.pool.Cache != nil && b.cacheImage() == "" {
		refuse("cacheSidecar: no image; set --cache-image of the operator, or cacheSidecar.image")
	}
	return problems
}

// internalPorts returns the ports on which the pods listen besides those for clients.
func (b *builder) internalPorts() []int32 {
	var ports []int32
	if b.pool.Profile == v1alpha1.ProfileTraefik {
		ports = append(ports, traefikInternal)
	}
	if b.pool.Cache != nil {
		ports = append(ports, cachePort, cacheHealth, cacheMetrics)
	}
	return ports
}

// buildController returns the decisions of the profile.
func (b *builder) buildController() (controller, []Problem) {
	switch b.pool.Profile {
	case v1alpha1.ProfileTraefik:
		return b.traefikController(), nil
	case v1alpha1.ProfileHAProxyTech:
		return b.haproxyTechController(), nil
	case v1alpha1.ProfileHAProxyIngress:
		return b.haproxyIngressController(), nil
	case v1alpha1.ProfileF5NGINX:
		return b.f5NGINXController(), nil
	case v1alpha1.ProfileIngressNGINX:
		return b.ingressNGINXController(), nil
	}
	return b.customController()
}

// controllerImage returns the image of the controller.
func (b *builder) controllerImage() string {
	return cmp.Or(b.pool.Image, b.install.Images[b.pool.Profile], images[b.pool.Profile])
}

// clusterRole returns the name of a ClusterRole of the chart.
func (b *builder) clusterRole(suffix string) string {
	return b.install.ClusterRolePrefix + ":" + suffix
}

// controllerCPU is the request of CPU of a controller.
const controllerCPU = "100m"

// newContainer returns the container of a controller with its request of memory.
func (b *builder) newContainer(memory string, args []string) corev1.Container {
	http, https := b.listenPorts()
	return corev1.Container{
		Name: containerName, Image: b.controllerImage(), Env: podEnv(), Args: args, Ports: b.clientPorts(http, https),
		Resources:       b.controllerResources(controllerCPU, memory),
		SecurityContext: containerSecurity(bindLowPorts), // the programs in the images do not start without it
	}
}

// newController returns a controller with the roles of its profile, and with seconds for its requests to end.
func (b *builder) newController(class string, c corev1.Container, user, seconds int64) controller {
	return controller{
		class: class, cacheEnv: cacheEnv(), roles: []string{b.clusterRole(b.pool.Profile)},
		local: []string{b.clusterRole(b.pool.Profile + "-local")}, // for its ConfigMap and its lock
		pod: corev1.PodSpec{
			Containers: []corev1.Container{c}, SecurityContext: podSecurity(user), TerminationGracePeriodSeconds: &seconds,
		},
	}
}

// namespacedName returns the name of an object of the pool with its namespace.
func (b *builder) namespacedName() string { return b.install.Namespace + "/" + b.name }

// listenPorts returns the ports on which the controller listens. In the network of a node they are the ports of the node.
func (b *builder) listenPorts() (http, https int32) {
	if b.pool.Exposure.Type == v1alpha1.ExposureHostNetwork {
		return b.pool.Exposure.HTTPPort, b.pool.Exposure.HTTPSPort
	}
	return podHTTP, podHTTPS
}

// clientPorts returns the ports for clients.
func (b *builder) clientPorts(http, https int32) []corev1.ContainerPort {
	ports := []corev1.ContainerPort{
		{Name: portHTTP, ContainerPort: http, Protocol: corev1.ProtocolTCP},
		{Name: portHTTPS, ContainerPort: https, Protocol: corev1.ProtocolTCP},
	}
	b.setHostPorts(ports)
	return ports
}

// setHostPorts sets the ports of the node. The API server sets those of a pod in the network of its node itself, to the same values.
func (b *builder) setHostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		switch {
		case b.pool.Exposure.Type == v1alpha1.ExposureHostNetwork:
			ports[i].HostPort = ports[i].ContainerPort
		case b.pool.Exposure.Type == v1alpha1.ExposureHostPort && ports[i].Name == portHTTP:
			ports[i].HostPort = b.pool.Exposure.HTTPPort
		case b.pool.Exposure.Type == v1alpha1.ExposureHostPort && ports[i].Name == portHTTPS:
			ports[i].HostPort = b.pool.Exposure.HTTPSPort
		}
	}
}

// controllerResources returns the requests and limits of the controller.
func (b *builder) controllerResources(cpu, memory string) corev1.ResourceRequirements {
	if given := b.pool.Resources; given != nil {
		return corev1.ResourceRequirements{Requests: resourceList(given.Requests), Limits: resourceList(given.Limits)}
	}
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

func resourceList(given *v1alpha1.ResourceAmounts) corev1.ResourceList {
	if given == nil || given.CPU == nil && given.Memory == nil {
		return nil
	}
	list := corev1.ResourceList{}
	if given.CPU != nil {
		list[corev1.ResourceCPU] = *given.CPU
	}
	if given.Memory != nil {
		list[corev1.ResourceMemory] = *given.Memory
	}
	return list
}

// podSecurity is that of the restricted Pod Security Standard, but for the user of a controller that opens low ports of its node.
func podSecurity(user int64) *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(user != 0), RunAsUser: &user, RunAsGroup: &user,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// containerSecurity drops all capabilities but those in add.
func containerSecurity(add ...corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(bool),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: add},
	}
}

const bindLowPorts corev1.Capability = "NET_BIND_SERVICE"

// httpProbe requests a page of the controller.
func httpProbe(path string, port intstr.IntOrString) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: port, Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: 5, TimeoutSeconds: 3,
	}
}

// pageProbes are the readiness and the liveness probe of a container. The latter waits longer: a restart loses connections.
func pageProbes(c *corev1.Container, ready, alive string, port intstr.IntOrString) {
	c.ReadinessProbe, c.LivenessProbe = httpProbe(ready, port), httpProbe(alive, port)
	c.LivenessProbe.PeriodSeconds, c.LivenessProbe.TimeoutSeconds, c.LivenessProbe.FailureThreshold = 10, 5, 6
}

// podEnv names the pod, for programs that look for themselves.
func podEnv() []corev1.EnvVar {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{
			Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}},
		}
	}
	return []corev1.EnvVar{
		field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_IP", "status.podIP"),
	}
}
