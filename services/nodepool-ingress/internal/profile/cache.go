package profile

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/services/nodepool-ingress/internal/names"
)

// The edge-cache beside a controller. It writes the files of a ServiceAccount into a memory volume, with a token that is valid at its own
// port only: the controller never sees the token for the API server.
const (
	cacheName = "edge-cache"
	cachePort = 16443
	cacheHost = "127.0.0.1"
	cacheURL  = "https://127.0.0.1:16443"

	// Controllers use the default ports of the sidecar.
	cacheHealth, cacheMetrics = 16444, 16445

	secretsFolder     = "/var/run/secrets" //nolint:gosec // a folder
	accountFolder     = secretsFolder + "/kubernetes.io/serviceaccount"
	cacheUpstream     = "/var/run/secrets/fairlead.dev/upstream"
	cacheCredentials  = "/var/run/secrets/fairlead.dev/credentials" //nolint:gosec // a folder
	cacheData         = "/var/lib/edge-cache"
	volumeUpstream    = "edge-cache-upstream"
	volumeCredentials = "edge-cache-credentials" //nolint:gosec // the name of a volume
	volumeData        = "edge-cache-data"

	// tokenSeconds is the lifetime of the token for the API server. Kubernetes itself uses this value.
	tokenSeconds = 3607
	// startSeconds is the time for the first synchronization. A site with a slow link needs minutes.
	startSeconds = 300
)

// serviceServer is the address of the API server that the kubelet gives to a container. Kubernetes replaces the variables.
const serviceServer = "https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"

// cacheEnv points a client in the cluster to the sidecar. It must come from a ConfigMap: Yurthub rewrites these variables where a pod sets
// them itself, but not those of envFrom, which take precedence over the kubelet's.
func cacheEnv() map[string]string {
	port := strconv.Itoa(cachePort)
	return map[string]string{"KUBERNETES_SERVICE_HOST": cacheHost, "KUBERNETES_SERVICE_PORT": port, "KUBERNETES_SERVICE_PORT_HTTPS": port}
}

func (b *builder) cacheImage() string {
	return cmp.Or(b.pool.Cache.Image, b.install.CacheImage)
}

// addCache adds the sidecar to a pod, and points its first container to it.
func (b *builder) addCache(pod *corev1.PodSpec, env map[string]string) {
	pod.InitContainers = append([]corev1.Container{b.cacheContainer()}, pod.InitContainers...)
	memory := resource.MustParse("1Mi")
	pod.Volumes = append(pod.Volumes,
		corev1.Volume{Name: volumeUpstream, VolumeSource: corev1.VolumeSource{Projected: accountVolume()}},
		corev1.Volume{
			Name: volumeCredentials,
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
				Medium: corev1.StorageMediumMemory, SizeLimit: &memory,
			}},
		},
		corev1.Volume{Name: volumeData, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	)
	c := &pod.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeCredentials, MountPath: accountFolder, ReadOnly: true})
	if len(env) > 0 {
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{
			ConfigMapRef: &corev1.ConfigMapEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: names.CacheConfigMap(b.pool.Name)},
			},
		})
	}
}

// accountVolume has the files that Kubernetes mounts into every pod by default.
func accountVolume() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To(int64(tokenSeconds))}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
		}}},
	}}
}

// cacheContainer is a native sidecar: it is ready before the controller starts, and stops after it.
func (b *builder) cacheContainer() corev1.Container {
	server := cmp.Or(b.install.CacheUpstream, serviceServer)
	address, host := "", ""
	if b.pool.Exposure.Type == v1alpha1.ExposureHostNetwork {
		address, host = cacheHost, cacheHost // not reachable from outside the node
	}
	health, profile := intstr.FromInt32(cacheHealth), b.pool.Profile
	if b.pool.CustomResources {
		profile += "-crd"
	}
	c := corev1.Container{
		Name: cacheName, Image: b.cacheImage(), RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Args: []string{
			"--pool=" + b.pool.Name,
			"--pool-label-key=" + b.pool.LabelKey,
			"--profile=" + profile,
			"--ingress-class=" + b.pool.Class,
			"--upstream-server=" + server,
			"--listen-address=" + cacheHost + ":" + strconv.Itoa(cachePort),
			"--credentials-dir=" + cacheCredentials,
			"--data-dir=" + cacheData,
			"--health-probe-bind-address=" + address + ":" + strconv.Itoa(cacheHealth),
			"--metrics-bind-address=" + address + ":" + strconv.Itoa(cacheMetrics),
		},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
		SecurityContext: containerSecurity(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeUpstream, MountPath: cacheUpstream, ReadOnly: true},
			{Name: volumeCredentials, MountPath: cacheCredentials},
			{Name: volumeData, MountPath: cacheData},
		},
	}
	c.SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
	pageProbes(&c, "/readyz", "/healthz", health)
	c.StartupProbe = httpProbe("/readyz", health)
	c.StartupProbe.PeriodSeconds, c.StartupProbe.FailureThreshold = 1, startSeconds
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		probe.HTTPGet.Host = host
	}
	return c
}
