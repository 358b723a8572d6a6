package profile

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// portReference is the number or name of a port.
type portReference = intstr.IntOrString

// buildContainer returns a container of a custom manifest.
func (m *containerManifest) buildContainer(b *builder, volumes []corev1.Volume) (corev1.Container, error) {
	c := corev1.Container{
		Name: m.Name, Image: m.Image, Command: m.Command, Args: m.Args, Resources: m.Resources, RestartPolicy: m.RestartPolicy,
		SecurityContext: containerSecurity(),
	}
	if m.Name == cacheName {
		return c, fmt.Errorf("container %s: the name belongs to the cache", m.Name)
	}
	if b.install.CheckImage == nil {
		return c, fmt.Errorf("container %s: no image is allowed", m.Name)
	}
	if err := b.install.CheckImage(m.Image); err != nil {
		return c, fmt.Errorf("container %s: %w", m.Name, err)
	}
	if err := m.setSecurity(&c); err != nil {
		return c, fmt.Errorf("container %s: %w", m.Name, err)
	}
	m.setPorts(&c)
	m.setEnv(&c)
	for _, v := range m.VolumeMounts {
		if err := v.checkMount(volumes); err != nil {
			return c, fmt.Errorf("container %s: %w", m.Name, err)
		}
		c.VolumeMounts = append(c.VolumeMounts,
			corev1.VolumeMount{Name: v.Name, MountPath: v.MountPath, SubPath: v.SubPath, ReadOnly: v.ReadOnly})
	}
	c.LivenessProbe, c.ReadinessProbe = m.LivenessProbe.buildProbe(), m.ReadinessProbe.buildProbe()
	c.StartupProbe = m.StartupProbe.buildProbe()
	if m.Lifecycle != nil && m.Lifecycle.PreStop != nil {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: m.Lifecycle.PreStop.Exec, Sleep: m.Lifecycle.PreStop.Sleep}}
	}
	return c, nil
}

// checkMount returns an error for a volume that the manifest does not have, such as one of the cache, and for the folder of credentials, by
// each of its names: a mount in it would replace the files that the cache or the kubelet mounts there.
func (m *mountManifest) checkMount(volumes []corev1.Volume) error {
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

func (m *containerManifest) setPorts(c *corev1.Container) {
	for _, p := range m.Ports {
		c.Ports = append(c.Ports,
			corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP)})
	}
}

func (m *containerManifest) setEnv(c *corev1.Container) {
	for _, e := range m.Env {
		variable := corev1.EnvVar{Name: e.Name, Value: e.Value}
		if e.ValueFrom != nil {
			variable.ValueFrom = &corev1.EnvVarSource{FieldRef: &e.ValueFrom.FieldRef}
		}
		c.Env = append(c.Env, variable)
	}
}

// setSecurity adds the user to the security context of all containers. No capability but that for low ports can come back.
func (m *containerManifest) setSecurity(c *corev1.Container) error {
	u := m.SecurityContext
	if u == nil {
		return nil
	}
	s := c.SecurityContext
	s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot = u.RunAsUser, u.RunAsGroup, u.RunAsNonRoot
	s.ReadOnlyRootFilesystem = u.ReadOnlyRootFilesystem
	if u.Capabilities == nil {
		return nil
	}
	if i := slices.IndexFunc(u.Capabilities.Add, func(c corev1.Capability) bool { return c != bindLowPorts }); i >= 0 {
		return fmt.Errorf("capability %s is not permitted: only %s is", u.Capabilities.Add[i], bindLowPorts)
	}
	s.Capabilities.Add = u.Capabilities.Add
	return nil
}

// buildProbe returns a probe, nil for nil.
func (m *probeManifest) buildProbe() *corev1.Probe {
	if m == nil {
		return nil
	}
	p := &corev1.Probe{
		InitialDelaySeconds: m.InitialDelaySeconds, TimeoutSeconds: m.TimeoutSeconds, PeriodSeconds: m.PeriodSeconds,
		SuccessThreshold: m.SuccessThreshold, FailureThreshold: m.FailureThreshold,
	}
	p.Exec = m.Exec
	if m.HTTPGet != nil {
		p.HTTPGet = &corev1.HTTPGetAction{Path: m.HTTPGet.Path, Port: m.HTTPGet.Port, Scheme: m.HTTPGet.Scheme}
	}
	if m.TCPSocket != nil {
		p.TCPSocket = &corev1.TCPSocketAction{Port: m.TCPSocket.Port}
	}
	return p
}
