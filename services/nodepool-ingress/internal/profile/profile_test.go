package profile

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/golden"
)

type goldenInput struct {
	Install Install `json:"install"`
	Pool    Pool    `json:"pool"`
}

type goldenOutput struct {
	Objects  []map[string]any `json:"objects,omitempty"`
	Workload string           `json:"workload,omitempty"`
	Service  string           `json:"service,omitempty"`
	Image    string           `json:"image,omitempty"`
	Problems []Problem        `json:"problems,omitempty"`
}

func TestBuild(t *testing.T) {
	t.Parallel()
	golden.Run(t, "testdata", func(t *testing.T, in goldenInput) goldenOutput {
		in.Install.CheckImage = checkImage
		built, problems := Build(in.Install, in.Pool)
		out := goldenOutput{Workload: built.Workload, Service: built.Service, Image: built.Image, Problems: problems}
		for _, o := range built.Objects {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			require.NoError(t, err)
			delete(content, "status")
			out.Objects = append(out.Objects, content)
		}
		return out
	})
}

func install() Install {
	return Install{
		Namespace: "fairlead", ClusterRolePrefix: "fairlead:nodepool-ingress", Images: DefaultImages(),
		CacheImage: "ghcr.io/fairlead/edge-cache:v0.1.0", CheckImage: checkImage, CustomClusterRoles: []string{"ingress"},
	}
}

func checkImage(image string) error {
	if strings.HasPrefix(image, "registry.example/ingress") {
		return nil
	}
	return fmt.Errorf("image %q is not allowed", image)
}

// minimalManifest is a custom manifest with what each must have.
const minimalManifest = `
apiVersion: networking.k8s.io/v1
kind: IngressClass
spec: {controller: example.com/ingress/$(CLASS)}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: ingress
        image: registry.example/ingress:1
        args: [--class=$(CLASS), "--name=$(POD_NAME)"]
        ports: [{name: http, containerPort: 8000}, {name: https, containerPort: 8443}]
`

func pool(profile string) Pool {
	p := Pool{
		Name: "hangzhou", LabelKey: v1alpha1.LabelNodePool, Class: "hangzhou", Profile: profile, Replicas: 1, Nodes: 2,
		Exposure: v1alpha1.Exposure{Type: v1alpha1.ExposureNodePort}, ProgressDeadline: 600,
	}
	if profile == v1alpha1.ProfileCustom {
		p.Manifest = &Manifest{Source: "ConfigMap fairlead/custom key manifest.yaml", Text: minimalManifest}
	}
	return p
}

func build(t *testing.T, p Pool) Built {
	t.Helper()
	built, problems := Build(install(), p)
	require.Empty(t, problems)
	return built
}

// find returns the only object of a type.
func find[T Object](t *testing.T, built Built) T {
	t.Helper()
	var found []T
	for _, o := range built.Objects {
		if typed, is := o.(T); is {
			found = append(found, typed)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

// TestClassesOfProfiles compares the arguments that select a class, name the lock, the ConfigMap and the Service with the objects of the
// pool. Profiles whose controller string is the same in all pools select by the name of the class; all others select by a controller string
// that no other pool has.
func TestClassesOfProfiles(t *testing.T) {
	t.Parallel()
	const own = "fairlead/ingress-hangzhou"
	tests := []struct {
		profile, controller string
		args                []string
		never               []string // prefixes of arguments
		cached              []string // further arguments with a cache
	}{
		{
			profile: v1alpha1.ProfileTraefik, controller: "traefik.io/ingress-controller",
			args: []string{
				"--providers.kubernetesIngress.ingressClass=eu.pool",
				"--providers.kubernetesIngress.ingressEndpoint.publishedService=" + own,
			},
			never: []string{
				"--providers.kubernetesIngress.disableIngressClassLookup", "--providers.kubernetesIngress.token",
				"--providers.kubernetesIngress.certAuthFilePath",
			},
			cached: []string{"--providers.kubernetesIngress.endpoint=https://127.0.0.1:16443"},
		},
		{
			profile: v1alpha1.ProfileHAProxyTech, controller: "haproxy.org/ingress-controller/eu.pool",
			args: []string{
				"--ingress.class=eu.pool", "--publish-service=" + own, "--configmap=" + own, "--disable-config-snippets=all",
				"--disable-service-external-name",
			},
			never: []string{"--empty-ingress-class"},
		},
		{
			profile: v1alpha1.ProfileHAProxyIngress, controller: "haproxy-ingress.github.io/controller/eu.pool",
			args: []string{
				"--controller-class=eu.pool", "--watch-ingress-without-class=false", "--election-id=ingress-hangzhou.%s",
				"--configmap=" + own, "--disable-config-keywords=*",
				"--disable-external-name",
			},
			never: []string{"--publish-service"}, // the pool has no address outside of the cluster, and the program would not start
		},
		{
			profile: v1alpha1.ProfileF5NGINX, controller: "nginx.org/ingress-controller",
			args: []string{
				"-ingress-class=eu.pool", "-leader-election-lock-name=ingress-hangzhou", "-nginx-configmaps=" + own,
				"-external-service=ingress-hangzhou", "-enable-custom-resources=false",
			},
			never: []string{"-proxy", "--"},
		},
		{
			profile: v1alpha1.ProfileIngressNGINX, controller: "k8s.io/ingress-nginx-eu.pool",
			args: []string{
				"--controller-class=k8s.io/ingress-nginx-eu.pool", "--ingress-class=eu.pool", "--watch-ingress-without-class=false",
				"--election-id=ingress-hangzhou",
				"--publish-service=" + own, "--configmap=" + own, "--disable-svc-external-name=true",
			},
			never:  []string{"--ingress-class-by-name", "--validating-webhook"},
			cached: []string{"--apiserver-host=https://127.0.0.1:16443", "--certificate-authority=" + accountFolder + "/ca.crt"},
		},
		{
			profile: v1alpha1.ProfileCustom, controller: "example.com/ingress/eu.pool",
			args: []string{"--class=eu.pool", "--name=$(POD_NAME)"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.profile, func(t *testing.T) {
			t.Parallel()
			p := pool(tt.profile)
			p.Class = "eu.pool"
			built := build(t, p)
			class := find[*networkingv1.IngressClass](t, built)
			assert.Equal(t, Object(class), built.Objects[0], "its creation claims the pool")
			assert.Equal(t, "eu.pool", class.Name)
			assert.Equal(t, tt.controller, class.Spec.Controller)
			assert.Empty(t, validation.IsDomainPrefixedPath(nil, class.Spec.Controller))
			assert.Empty(t, class.Annotations, "it is never the default class")
			args := find[*appsv1.Deployment](t, built).Spec.Template.Spec.Containers[0].Args
			assert.Subset(t, args, tt.args)
			assert.Equal(t, built.Service, find[*corev1.Service](t, built).Name, "the Service in the arguments")
			for _, arg := range args {
				for _, prefix := range tt.never {
					assert.False(t, strings.HasPrefix(arg, prefix), arg)
				}
				assert.NotContains(t, tt.cached, arg, "without a cache")
			}
			p.Cache = &Cache{}
			assert.Subset(t, find[*appsv1.Deployment](t, build(t, p)).Spec.Template.Spec.Containers[0].Args, tt.cached)
		})
	}
	assert.Len(t, tests, len(v1alpha1.Profiles()))
}

// TestPublishedServiceOfHAProxyIngress is named only if it has an address outside of the cluster: the program ends at its start otherwise.
func TestPublishedServiceOfHAProxyIngress(t *testing.T) {
	t.Parallel()
	for exposure, want := range map[string]bool{
		v1alpha1.ExposureClusterIP: false, v1alpha1.ExposureNodePort: false, v1alpha1.ExposureLoadBalancer: true,
		v1alpha1.ExposureExternalIPs: true,
	} {
		p := pool(v1alpha1.ProfileHAProxyIngress)
		p.Exposure = v1alpha1.Exposure{Type: exposure, HTTPPort: 30080, HTTPSPort: 30443}
		args := find[*appsv1.Deployment](t, build(t, p)).Spec.Template.Spec.Containers[0].Args
		assert.Equal(t, want, slices.Contains(args, "--publish-service=fairlead/ingress-hangzhou"), exposure)
	}
}

// TestEveryCombination builds each profile with each exposure, with and without a cache, and checks what holds for all of them.
func TestEveryCombination(t *testing.T) {
	t.Parallel()
	for _, name := range v1alpha1.Profiles() {
		for _, exposure := range v1alpha1.Exposures() {
			for _, cache := range []*Cache{nil, {}} {
				p := pool(name)
				p.Exposure, p.Cache = v1alpha1.Exposure{Type: exposure, HTTPPort: 30080, HTTPSPort: 30443}, cache
				built, problems := Build(install(), p)
				if exposure == v1alpha1.ExposureHostNetwork && name != v1alpha1.ProfileTraefik && name != v1alpha1.ProfileCustom {
					require.Len(t, problems, 1)
					assert.Contains(t, problems[0].Message, "use the exposure HostPort")
					continue
				}
				require.Empty(t, problems, "%s %s", name, exposure)
				assertCommon(t, p, built)
			}
		}
	}
}

func assertCommon(t *testing.T, p Pool, built Built) {
	t.Helper()
	d := find[*appsv1.Deployment](t, built)
	assert.Equal(t, Object(d), built.Objects[len(built.Objects)-1], "the Deployment comes last")
	assert.Equal(t,
		map[string]string{"app.kubernetes.io/name": "nodepool-ingress-controller", "app.kubernetes.io/instance": "ingress-hangzhou"},
		d.Spec.Selector.MatchLabels)
	assert.Equal(t, map[string]string{"kubernetes.io/os": "linux", p.LabelKey: p.Name}, d.Spec.Template.Spec.NodeSelector)
	pod := d.Spec.Template.Spec
	assert.Equal(t, "ingress-hangzhou", pod.ServiceAccountName)
	assert.Equal(t, p.Cache == nil, *pod.AutomountServiceAccountToken)
	assert.Equal(t, p.Exposure.Type == v1alpha1.ExposureHostNetwork, pod.HostNetwork)
	for _, tolerated := range pod.Tolerations {
		assert.NotEmpty(t, tolerated.Key, "a toleration without a key tolerates everything")
	}
	for _, v := range pod.Volumes {
		assert.Nil(t, v.HostPath)
	}
	for _, c := range append(slices.Clone(pod.Containers), pod.InitContainers...) {
		for _, e := range c.Env {
			assert.NotContains(t, e.Name, "KUBERNETES_", "Yurthub rewrites variables that a pod sets itself")
		}
		assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
		assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	}
	s := find[*corev1.Service](t, built)
	assert.Equal(t, d.Spec.Selector.MatchLabels, s.Spec.Selector)
	assert.Equal(t, p.Exposure.Type == v1alpha1.ExposureExternalIPs && len(p.Addresses) > 0, len(s.Spec.ExternalIPs) > 0)
	if s.Spec.Type != corev1.ServiceTypeClusterIP || p.Exposure.Type == v1alpha1.ExposureExternalIPs {
		assert.Equal(t, corev1.ServiceExternalTrafficPolicyLocal, s.Spec.ExternalTrafficPolicy)
	}
	for _, port := range s.Spec.Ports {
		assert.True(t,
			slices.ContainsFunc(pod.Containers[0].Ports, func(c corev1.ContainerPort) bool { return c.Name == port.TargetPort.StrVal }))
	}
	for _, o := range built.Objects {
		if binding, is := o.(*rbacv1.ClusterRoleBinding); is {
			assert.True(t, strings.HasPrefix(binding.RoleRef.Name, "fairlead:nodepool-ingress:"))
		}
	}
}

// TestTemplateDoesNotDependOnNodes: a node that joins or leaves a pool replaces no pod.
func TestTemplateDoesNotDependOnNodes(t *testing.T) {
	t.Parallel()
	for _, exposure := range v1alpha1.Exposures() {
		p := pool(v1alpha1.ProfileTraefik)
		p.Exposure = v1alpha1.Exposure{Type: exposure, HTTPPort: 80, HTTPSPort: 443}
		first := find[*appsv1.Deployment](t, build(t, p)).Spec.Template
		p.Nodes, p.Replicas = 0, 7
		assert.Equal(t, first, find[*appsv1.Deployment](t, build(t, p)).Spec.Template, exposure)
	}
}

func TestStrategy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, exposure     string
		replicas           int32
		nodes              int
		wantType           appsv1.DeploymentStrategyType
		surge, unavailable int
	}{
		{
			name: "no ports of nodes", exposure: v1alpha1.ExposureNodePort, replicas: 1, nodes: 1,
			wantType: appsv1.RollingUpdateDeploymentStrategyType, surge: 1,
		},
		{
			name: "a node is free", exposure: v1alpha1.ExposureHostPort, replicas: 1, nodes: 2,
			wantType: appsv1.RollingUpdateDeploymentStrategyType, surge: 1,
		},
		{
			name: "several pods fill the nodes", exposure: v1alpha1.ExposureHostPort, replicas: 2, nodes: 2,
			wantType: appsv1.RollingUpdateDeploymentStrategyType, unavailable: 1,
		},
		{
			name: "one pod on one node", exposure: v1alpha1.ExposureHostPort, replicas: 1, nodes: 1,
			wantType: appsv1.RecreateDeploymentStrategyType,
		},
		{
			name: "network of the node", exposure: v1alpha1.ExposureHostNetwork, replicas: 1, nodes: 1,
			wantType: appsv1.RecreateDeploymentStrategyType,
		},
		{name: "no pod", exposure: v1alpha1.ExposureHostPort, replicas: 0, nodes: 0, wantType: appsv1.RecreateDeploymentStrategyType},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := pool(v1alpha1.ProfileTraefik)
			p.Exposure, p.Replicas, p.Nodes = v1alpha1.Exposure{Type: tt.exposure, HTTPPort: 80, HTTPSPort: 443}, tt.replicas, tt.nodes
			d := find[*appsv1.Deployment](t, build(t, p))
			assert.Equal(t, tt.replicas, *d.Spec.Replicas)
			assert.Equal(t, tt.wantType, d.Spec.Strategy.Type)
			if tt.wantType == appsv1.RollingUpdateDeploymentStrategyType {
				assert.Equal(t, tt.surge, d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue())
				assert.Equal(t, tt.unavailable, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
			}
		})
	}
}

// TestPoolsShareNothing compares the names of the objects of two pools, kind by kind.
func TestPoolsShareNothing(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, name := range []string{"a", "a.b", "a-b", "cache-a", "ingress-a", strings.Repeat("x", 62) + "1", strings.Repeat("x", 62) + "2"} {
		p := pool(v1alpha1.ProfileIngressNGINX)
		p.Name, p.Class, p.Cache = name, name, &Cache{}
		for _, o := range build(t, p).Objects {
			key := o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetName()
			assert.Empty(t, seen[key], "%s of pool %s", key, name)
			seen[key] = name
			for label, value := range o.GetLabels() {
				assert.Empty(t, validation.IsValidLabelValue(value), label)
			}
			assert.NotEqual(t, "ingress-nginx", o.GetName())
		}
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	for name, image := range DefaultImages() {
		require.Len(t, ImageRepositories(name), 1)
		assert.True(t, strings.HasPrefix(image, ImageRepositories(name)[0]+":"), name)
	}
	assert.Empty(t, ImageRepositories(v1alpha1.ProfileCustom))
	assert.ElementsMatch(t, slices.DeleteFunc(v1alpha1.Profiles(), func(p string) bool { return p == v1alpha1.ProfileCustom }),
		slices.Collect(maps.Keys(DefaultImages())))
}

func TestProblems(t *testing.T) {
	t.Parallel()
	unknown := pool("apache")
	_, problems := Build(install(), unknown)
	assert.Equal(t, []Problem{{Reason: v1alpha1.ReasonInvalid, Message: `profile "apache" does not exist`}}, problems)

	cached := pool(v1alpha1.ProfileTraefik)
	cached.Cache = &Cache{}
	without := install()
	without.CacheImage = ""
	_, problems = Build(without, cached)
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].Message, "set --cache-image of the operator")

	for _, tt := range []struct {
		http, https int32
		cache       *Cache
		want        string // empty: no problem
	}{
		{http: 80, https: 443}, {http: 80, https: 443, cache: &Cache{}},
		{http: 8080, https: 443, want: "port 8080"}, {http: 80, https: 8080, want: "port 8080"},
		{http: 80, https: 16444, cache: &Cache{}, want: "port 16444"}, {http: 80, https: 16444},
	} {
		taken := pool(v1alpha1.ProfileTraefik)
		taken.Cache, taken.Exposure = tt.cache, v1alpha1.Exposure{
			Type: v1alpha1.ExposureHostNetwork, HTTPPort: tt.http, HTTPSPort: tt.https,
		}
		_, problems = Build(install(), taken)
		assert.Equal(t, tt.want != "", len(problems) == 1, "%d and %d", tt.http, tt.https)
		for _, p := range problems {
			assert.Contains(t, p.Message, tt.want)
		}
		taken.Exposure.Type = v1alpha1.ExposureHostPort
		_, problems = Build(install(), taken)
		assert.Empty(t, problems, "the pod has a network of its own")
	}

	noManifest := pool(v1alpha1.ProfileCustom)
	noManifest.Manifest = nil
	_, problems = Build(install(), noManifest)
	require.Len(t, problems, 1)
	assert.Equal(t, v1alpha1.ReasonInvalidManifest, problems[0].Reason)
}

// TestImagesAreOfTestedVersions compares the images with the programs that tests run.
func TestImagesAreOfTestedVersions(t *testing.T) {
	t.Parallel()
	for profile, module := range map[string]string{
		v1alpha1.ProfileTraefik:        "traefik/go.mod github.com/traefik/traefik/v3",
		v1alpha1.ProfileHAProxyIngress: "haproxy-ingress/go.mod github.com/jcmoraisjr/haproxy-ingress",
	} {
		file, path, _ := strings.Cut(module, " ")
		raw, err := os.ReadFile(filepath.Join("../../../../deploy/local/images", file))
		require.NoError(t, err)
		_, version, found := strings.Cut(DefaultImages()[profile], ":")
		require.True(t, found)
		assert.Contains(t, string(raw), path+" "+version+" ", profile)
	}
}
