package profile

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	traefik "fairlead.dev/pkg/apis/traefik/v1alpha1"
)

//go:embed manifests
var manifests embed.FS

// builtIns are the controllers of the built-in profiles, with the variables of their manifests: do not change them.
var builtIns = readBuiltIns()

// readBuiltIns reads the manifests of the built-in profiles, which have the fields of custom ones. Roles, and arguments that depend on the
// pool, are in builtInController.
func readBuiltIns() map[string]controller {
	controllers := map[string]controller{}
	for _, profile := range v1alpha1.Profiles() {
		if profile == v1alpha1.ProfileCustom {
			continue
		}
		text, err := manifests.ReadFile("manifests/" + profile + ".yaml")
		if err == nil {
			controllers[profile], err = parseManifest(string(text), strings.NewReplacer(), nil)
		}
		if err != nil {
			panic(fmt.Sprintf("manifest of profile %s: %v", profile, err))
		}
	}
	return controllers
}

// DefaultImages returns the default image of each profile. The profile custom has none.
func DefaultImages() map[string]string {
	images := map[string]string{}
	for profile, c := range builtIns {
		images[profile] = c.pod.Containers[0].Image
	}
	return images
}

// ImageRepositories returns the repositories whose images a profile may have by default, with their registries.
func ImageRepositories(profile string) []string {
	c, found := builtIns[profile]
	if !found {
		return nil
	}
	repository, _, _ := strings.Cut(c.pod.Containers[0].Image, ":")
	return []string{repository}
}

const (
	// Ports of the pods. Programs without privileges can listen on them.
	podHTTP, podHTTPS = 8000, 8443

	// traefikInternal is the port of Traefik's pings and metrics.
	traefikInternal = 8080
	// lowPort is the first port that needs no capability.
	lowPort = 1024

	localHost = "127.0.0.1"
)

// checkPool returns the problems that do not depend on the profile.
func (b *builder) checkPool() []Problem {
	var problems []Problem
	refuse := func(format string, args ...any) {
		problems = append(problems, *NewProblem(v1alpha1.ReasonInvalid, format, args...))
	}
	if _, known := builtIns[b.pool.Profile]; !known && b.pool.Profile != v1alpha1.ProfileCustom {
		refuse("profile %q does not exist", b.pool.Profile)
	}
	if b.onNodeNetwork() && b.pool.Profile != v1alpha1.ProfileTraefik && b.pool.Profile != v1alpha1.ProfileCustom {
		refuse("exposure HostNetwork: profile %s would take further ports of the nodes; use the exposure HostPort, or the profile traefik or "+
			"custom", b.pool.Profile)
	}
	for _, port := range b.internalPorts() {
		if b.onNodeNetwork() && (b.pool.Exposure.HTTPPort == port || b.pool.Exposure.HTTPSPort == port) {
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
		ports = append(ports, cachePorts...)
	}
	return ports
}

// buildController returns the decisions of the profile, completed by the settings that all profiles have.
func (b *builder) buildController() (controller, []Problem) {
	source, build := "profile "+b.pool.Profile, b.builtInController
	if b.pool.Profile == v1alpha1.ProfileCustom {
		source, build = "customManifest", b.customController
		if b.pool.Manifest != nil {
			source = b.pool.Manifest.Source
		}
	}
	c, err := build()
	if err != nil {
		return controller{}, []Problem{{Reason: v1alpha1.ReasonInvalidManifest, Message: source + ": " + err.Error()}}
	}
	return c, nil
}

// builtInController returns the controller of a built-in profile, with its roles and what depends on the pool.
func (b *builder) builtInController() (controller, error) {
	c := builtIns[b.pool.Profile]
	c.config, c.pod = maps.Clone(c.config), *c.pod.DeepCopy()
	c.cacheEnv, c.roles = cacheEnv(), []string{b.clusterRole(b.pool.Profile)}
	c.local = []string{b.clusterRole(b.pool.Profile + "-local")} // for its ConfigMap and its lock
	container := &c.pod.Containers[0]
	container.Image = cmp.Or(b.install.Images[b.pool.Profile], container.Image)
	switch b.pool.Profile {
	case v1alpha1.ProfileTraefik:
		b.completeTraefik(&c, container)
	case v1alpha1.ProfileHAProxyIngress:
		// The program ends at its start if the Service has no address outside of the cluster. Without a Service, it writes those of its
		// nodes.
		if slices.Contains([]string{v1alpha1.ExposureLoadBalancer, v1alpha1.ExposureExternalIPs}, b.pool.Exposure.Type) {
			container.Args = append(container.Args, "--publish-service=$(NAMESPACE)/$(NAME)")
		}
	case v1alpha1.ProfileIngressNGINX:
		c.cacheEnv = nil // it has flags for the API server
		if b.pool.Cache != nil {
			container.Args = append(container.Args, "--apiserver-host="+cacheURL, "--certificate-authority="+accountFolder+"/ca.crt")
		}
	}
	c.class = strings.ReplaceAll(c.class, "$(CLASS)", b.pool.Class)
	b.completeStrings(container)
	return c, b.completePod(&c.pod)
}

func (b *builder) completeTraefik(c *controller, container *corev1.Container) {
	c.cacheEnv, c.local = nil, nil // it has flags for the API server, and no lock
	providers := []string{"kubernetesIngress"}
	if b.pool.CustomResources {
		c.servedGroupVersion = traefik.SchemeGroupVersion.String()
		providers = append(providers, "kubernetesCRD")
		container.Args = append(container.Args,
			"--providers.kubernetesCRD=true",
			"--providers.kubernetesCRD.ingressClass=$(CLASS)", // of IngressRoutes; without it, Traefik serves those of all pools
			"--providers.kubernetesCRD.allowEmptyServices=true",
		)
	}
	for _, provider := range providers {
		if b.pool.Cache != nil {
			container.Args = append(container.Args, "--providers."+provider+".endpoint="+cacheURL)
		}
	}
	http, https := b.listenPorts()
	container.Ports[0].ContainerPort, container.Ports[1].ContainerPort = http, https
	if http < lowPort || https < lowPort {
		// The program in the image has no capabilities of its own, and Kubernetes gives none to users other than root.
		c.pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64), RunAsGroup: new(int64), RunAsNonRoot: new(bool)}
		container.SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{bindLowPorts}}
	}
}

// completeStrings replaces the variables in the arguments of a container of a built-in manifest: those of custom manifests, HOST, and
// further ones. It sets the host of the probes, too.
func (b *builder) completeStrings(c *corev1.Container, further ...string) {
	host := ""
	if b.onNodeNetwork() {
		host = localHost // health and metrics are not reachable from outside the node
	}
	variables := strings.NewReplacer(slices.Concat(b.manifestVariables(), []string{"$(HOST)", host}, further)...)
	for i := range c.Args {
		c.Args[i] = variables.Replace(c.Args[i])
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if probe != nil {
			probe.HTTPGet.Host = host
		}
	}
}

// clusterRole returns the name of a ClusterRole of the chart.
func (b *builder) clusterRole(suffix string) string {
	return b.install.ClusterRolePrefix + ":" + suffix
}

// onNodeNetwork reports whether the pods are in the network of their nodes.
func (b *builder) onNodeNetwork() bool { return b.pool.Exposure.Type == v1alpha1.ExposureHostNetwork }

// listenPorts returns the ports on which the controller listens. In the network of a node they are the ports of the node.
func (b *builder) listenPorts() (http, https int32) {
	if b.onNodeNetwork() {
		return b.pool.Exposure.HTTPPort, b.pool.Exposure.HTTPSPort
	}
	return podHTTP, podHTTPS
}
