package profile

import (
	"cmp"
	_ "embed" // the manifest of the cache
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/services/nodepool-ingress/internal/names"
)

//go:embed cache.yaml
var cacheManifest string

// cachePod has what the cache adds to a pod: its container, volumes, and the mount of the controller. Do not change it.
var cachePod = readCachePod()

func readCachePod() *corev1.PodSpec {
	pod := &corev1.PodSpec{}
	if err := yaml.UnmarshalStrict([]byte(cacheManifest), pod); err != nil {
		panic("manifest of the cache: " + err.Error())
	}
	return pod
}

const (
	cachePort = 16443
	cacheURL  = "https://127.0.0.1:16443"

	secretsFolder = "/var/run/secrets" //nolint:gosec // a folder
	accountFolder = secretsFolder + "/kubernetes.io/serviceaccount"
)

// cachePorts are the ports of the cache: the API, health and metrics.
var cachePorts = []int32{cachePort, 16444, 16445}

// serviceServer is the address of the API server that the kubelet gives to a container. Kubernetes replaces the variables.
const serviceServer = "https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"

// cacheEnv points a client in the cluster to the sidecar. It must come from a ConfigMap: Yurthub rewrites these variables where a pod sets
// them itself, but not those of envFrom, which take precedence over the kubelet's.
func cacheEnv() map[string]string {
	port := strconv.Itoa(cachePort)
	return map[string]string{"KUBERNETES_SERVICE_HOST": localHost, "KUBERNETES_SERVICE_PORT": port, "KUBERNETES_SERVICE_PORT_HTTPS": port}
}

func (b *builder) cacheImage() string {
	return cmp.Or(b.pool.Cache.Image, b.install.CacheImage)
}

// addCache adds the sidecar to a pod, and points its first container to it.
func (b *builder) addCache(pod *corev1.PodSpec, env map[string]string) {
	cache := cachePod.DeepCopy()
	sidecar, profile := &cache.InitContainers[0], b.pool.Profile
	if b.pool.CustomResources {
		profile += "-crd"
	}
	sidecar.Image = b.cacheImage()
	b.completeStrings(sidecar, "$(PROFILE)", profile, "$(UPSTREAM)", cmp.Or(b.install.CacheUpstream, serviceServer))
	pod.InitContainers = append(cache.InitContainers, pod.InitContainers...)
	pod.Volumes = append(pod.Volumes, cache.Volumes...)
	c := &pod.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, cache.Containers[0].VolumeMounts...)
	if len(env) > 0 {
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{
			ConfigMapRef: &corev1.ConfigMapEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: names.CacheConfigMap(b.pool.Name)},
			},
		})
	}
}
