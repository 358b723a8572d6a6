package profile

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// completePod checks the pod of a manifest, and adds the settings that all profiles have and those of the YurtIngress.
func (b *builder) completePod(pod *corev1.PodSpec) error {
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	for i := range pod.Volumes {
		if err := b.completeVolume(&pod.Volumes[i]); err != nil {
			return err
		}
	}
	for _, containers := range [][]corev1.Container{pod.Containers, pod.InitContainers} {
		for i := range containers {
			if err := completeContainer(&containers[i], pod.Volumes); err != nil {
				return fmt.Errorf("container %s: %w", containers[i].Name, err)
			}
		}
	}
	if len(pod.Containers) == 0 {
		return errors.New("it has no container")
	}
	return b.completeFirst(pod)
}

// completeFirst checks the controller, the first container, and sets the fields that come from the YurtIngress.
func (b *builder) completeFirst(pod *corev1.PodSpec) error {
	c := &pod.Containers[0]
	for _, name := range []string{portHTTP, portHTTPS} {
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name }) {
			return fmt.Errorf("container %s: it has no port with the name %s", c.Name, name)
		}
	}
	c.Image = cmp.Or(b.pool.Image, c.Image)
	if given := b.pool.Resources; given != nil {
		c.Resources = corev1.ResourceRequirements{Requests: resourceList(given.Requests), Limits: resourceList(given.Limits)}
	}
	b.setHostPorts(c.Ports)
	if b.onNodeNetwork() {
		for _, other := range pod.Containers[1:] {
			b.setHostPorts(other.Ports)
		}
	}
	return nil
}

// setHostPorts sets the ports of the node. The API server sets those of a pod in the network of its node itself, to the same values.
func (b *builder) setHostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		switch {
		case b.onNodeNetwork():
			ports[i].HostPort = ports[i].ContainerPort
		case b.pool.Exposure.Type == v1alpha1.ExposureHostPort && ports[i].Name == portHTTP:
			ports[i].HostPort = b.pool.Exposure.HTTPPort
		case b.pool.Exposure.Type == v1alpha1.ExposureHostPort && ports[i].Name == portHTTPS:
			ports[i].HostPort = b.pool.Exposure.HTTPSPort
		}
	}
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

func (b *builder) completeVolume(v *corev1.Volume) error {
	switch {
	case slices.ContainsFunc(cachePod.Volumes, func(c corev1.Volume) bool { return c.Name == v.Name }):
		return fmt.Errorf("volume %s: the name belongs to the cache", v.Name)
	case (v.EmptyDir == nil) == (v.ConfigMap == nil):
		return fmt.Errorf("volume %s: give emptyDir: {}, or configMap: {} for the ConfigMap of the manifest", v.Name)
	case v.ConfigMap != nil:
		v.ConfigMap.Name = b.name
	}
	return nil
}

func completeContainer(c *corev1.Container, volumes []corev1.Volume) error {
	if c.Name == cachePod.InitContainers[0].Name {
		return errors.New("the name belongs to the cache")
	}
	for _, mount := range c.VolumeMounts {
		if err := checkMount(mount, volumes); err != nil {
			return err
		}
	}
	for i := range c.Ports {
		c.Ports[i].Protocol = cmp.Or(c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	return restrictContainer(c)
}

const bindLowPorts corev1.Capability = "NET_BIND_SERVICE"

// restrictContainer adds the security context of the restricted Pod Security Standard to the user of a container. No capability but that
// for low ports can come back.
func restrictContainer(c *corev1.Container) error {
	security := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if user := c.SecurityContext; user != nil {
		security.RunAsUser, security.RunAsGroup, security.RunAsNonRoot = user.RunAsUser, user.RunAsGroup, user.RunAsNonRoot
		security.ReadOnlyRootFilesystem = user.ReadOnlyRootFilesystem
		if user.Capabilities != nil {
			security.Capabilities.Add = user.Capabilities.Add
		}
	}
	c.SecurityContext = security
	if i := slices.IndexFunc(security.Capabilities.Add, func(c corev1.Capability) bool { return c != bindLowPorts }); i >= 0 {
		return fmt.Errorf("capability %s is not permitted: only %s is", security.Capabilities.Add[i], bindLowPorts)
	}
	return nil
}

// checkMount returns an error for a volume that the manifest does not have, such as one of the cache, and for the folder of credentials, by
// each of its names: a mount in it would replace the files that the cache or the kubelet mounts there.
func checkMount(m corev1.VolumeMount, volumes []corev1.Volume) error {
	if !slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
		return fmt.Errorf("volume %q is not a volume of the manifest", m.Name)
	}
	folder := path.Clean("/" + m.MountPath)
	if below, found := strings.CutPrefix(folder, "/run/"); found { // /var/run links to /run in many images
		folder = "/var/run/" + below
	}
	if folder == secretsFolder || strings.HasPrefix(folder, secretsFolder+"/") {
		return fmt.Errorf("mountPath %s belongs to the ServiceAccount", m.MountPath)
	}
	return nil
}
