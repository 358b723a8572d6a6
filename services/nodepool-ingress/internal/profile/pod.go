package profile

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// podManifest lists the fields of a pod that a custom manifest may have. It omits fields that would let a manifest leave its pod, its pool
// or its ServiceAccount: volumes of nodes and of Secrets, namespaces of the node, other accounts, privileges, other nodes.
type podManifest struct {
	Containers                    []containerManifest `json:"containers"`
	InitContainers                []containerManifest `json:"initContainers,omitempty"`
	Volumes                       []volumeManifest    `json:"volumes,omitempty"`
	SecurityContext               *podUserManifest    `json:"securityContext,omitempty"`
	TerminationGracePeriodSeconds *int64              `json:"terminationGracePeriodSeconds,omitempty"`
}

type podUserManifest struct {
	RunAsUser    *int64 `json:"runAsUser,omitempty"`
	RunAsGroup   *int64 `json:"runAsGroup,omitempty"`
	RunAsNonRoot *bool  `json:"runAsNonRoot,omitempty"`
	FSGroup      *int64 `json:"fsGroup,omitempty"`
}

type volumeManifest struct {
	Name     string    `json:"name"`
	EmptyDir *struct{} `json:"emptyDir,omitempty"`
	// ConfigMap is that of the manifest.
	ConfigMap *struct{} `json:"configMap,omitempty"`
}

type containerManifest struct {
	Name            string                         `json:"name"`
	Image           string                         `json:"image"`
	Command         []string                       `json:"command,omitempty"`
	Args            []string                       `json:"args,omitempty"`
	Ports           []portManifest                 `json:"ports,omitempty"`
	Env             []envManifest                  `json:"env,omitempty"`
	Resources       corev1.ResourceRequirements    `json:"resources,omitempty"`
	VolumeMounts    []mountManifest                `json:"volumeMounts,omitempty"`
	LivenessProbe   *probeManifest                 `json:"livenessProbe,omitempty"`
	ReadinessProbe  *probeManifest                 `json:"readinessProbe,omitempty"`
	StartupProbe    *probeManifest                 `json:"startupProbe,omitempty"`
	Lifecycle       *lifecycleManifest             `json:"lifecycle,omitempty"`
	SecurityContext *userManifest                  `json:"securityContext,omitempty"`
	RestartPolicy   *corev1.ContainerRestartPolicy `json:"restartPolicy,omitempty"`
}

type portManifest struct {
	Name          string          `json:"name"`
	ContainerPort int32           `json:"containerPort"`
	Protocol      corev1.Protocol `json:"protocol,omitempty"`
}

type envManifest struct {
	Name      string `json:"name"`
	Value     string `json:"value,omitempty"`
	ValueFrom *struct {
		FieldRef corev1.ObjectFieldSelector `json:"fieldRef"`
	} `json:"valueFrom,omitempty"`
}

type mountManifest struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
	SubPath   string `json:"subPath,omitempty"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

type probeManifest struct {
	HTTPGet             *httpGetManifest   `json:"httpGet,omitempty"`
	TCPSocket           *tcpSocketManifest `json:"tcpSocket,omitempty"`
	Exec                *corev1.ExecAction `json:"exec,omitempty"`
	InitialDelaySeconds int32              `json:"initialDelaySeconds,omitempty"`
	TimeoutSeconds      int32              `json:"timeoutSeconds,omitempty"`
	PeriodSeconds       int32              `json:"periodSeconds,omitempty"`
	SuccessThreshold    int32              `json:"successThreshold,omitempty"`
	FailureThreshold    int32              `json:"failureThreshold,omitempty"`
}

// httpGetManifest has no host: the kubelet would request pages of other machines.
type httpGetManifest struct {
	Path   string           `json:"path,omitempty"`
	Port   portReference    `json:"port"`
	Scheme corev1.URIScheme `json:"scheme,omitempty"`
}

type tcpSocketManifest struct {
	Port portReference `json:"port"`
}

type lifecycleManifest struct {
	PreStop *struct {
		Exec  *corev1.ExecAction  `json:"exec,omitempty"`
		Sleep *corev1.SleepAction `json:"sleep,omitempty"`
	} `json:"preStop,omitempty"`
}

type userManifest struct {
	RunAsUser              *int64 `json:"runAsUser,omitempty"`
	RunAsGroup             *int64 `json:"runAsGroup,omitempty"`
	RunAsNonRoot           *bool  `json:"runAsNonRoot,omitempty"`
	ReadOnlyRootFilesystem *bool  `json:"readOnlyRootFilesystem,omitempty"`
	Capabilities           *struct {
		Add  []corev1.Capability `json:"add,omitempty"`
		Drop []corev1.Capability `json:"drop,omitempty"`
	} `json:"capabilities,omitempty"`
}

// buildPod returns the pod of a manifest, with the settings that all profiles have.
func (m *podManifest) buildPod(b *builder) (corev1.PodSpec, error) {
	pod := corev1.PodSpec{
		TerminationGracePeriodSeconds: m.TerminationGracePeriodSeconds,
		SecurityContext: &corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	if u := m.SecurityContext; u != nil {
		pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup = u.RunAsUser, u.RunAsGroup
		pod.SecurityContext.RunAsNonRoot, pod.SecurityContext.FSGroup = u.RunAsNonRoot, u.FSGroup
	}
	for _, v := range m.Volumes {
		volume, err := v.buildVolume(b)
		if err != nil {
			return pod, err
		}
		pod.Volumes = append(pod.Volumes, volume)
	}
	var err error
	if pod.Containers, err = buildContainers(b, m.Containers, pod.Volumes); err != nil {
		return pod, err
	}
	if pod.InitContainers, err = buildContainers(b, m.InitContainers, pod.Volumes); err != nil {
		return pod, err
	}
	return pod, finishPod(b, &pod)
}

func buildContainers(b *builder, manifests []containerManifest, volumes []corev1.Volume) ([]corev1.Container, error) {
	var containers []corev1.Container
	for i := range manifests {
		container, err := manifests[i].buildContainer(b, volumes)
		if err != nil {
			return nil, err
		}
		containers = append(containers, container)
	}
	return containers, nil
}

// finishPod checks the controller, the first container, and sets the fields that come from the YurtIngress.
func finishPod(b *builder, pod *corev1.PodSpec) error {
	if len(pod.Containers) == 0 {
		return errors.New("it has no container")
	}
	c := &pod.Containers[0]
	for _, name := range []string{portHTTP, portHTTPS} {
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name }) {
			return fmt.Errorf("container %s: it has no port with the name %s", c.Name, name)
		}
	}
	if b.pool.Image != "" {
		c.Image = b.pool.Image
	}
	if b.pool.Resources != nil {
		c.Resources = b.controllerResources("", "")
	}
	if b.pool.Exposure.Type == v1alpha1.ExposureHostNetwork {
		for i := range pod.Containers {
			b.setHostPorts(pod.Containers[i].Ports)
		}
		return nil
	}
	b.setHostPorts(c.Ports)
	return nil
}

func (v *volumeManifest) buildVolume(b *builder) (corev1.Volume, error) {
	volume := corev1.Volume{Name: v.Name}
	switch {
	case slices.Contains([]string{volumeUpstream, volumeCredentials, volumeData}, v.Name):
		return volume, fmt.Errorf("volume %s: the name belongs to the cache", v.Name)
	case (v.EmptyDir == nil) == (v.ConfigMap == nil):
		return volume, fmt.Errorf("volume %s: give emptyDir: {}, or configMap: {} for the ConfigMap of the manifest", v.Name)
	case v.EmptyDir != nil:
		volume.EmptyDir = &corev1.EmptyDirVolumeSource{}
	default:
		volume.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: b.name}}
	}
	return volume, nil
}
