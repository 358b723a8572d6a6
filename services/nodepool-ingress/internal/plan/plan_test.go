package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/nodepool-ingress/internal/profile"
)

func policy() Policy {
	p := Policy{
		Install: profile.Install{
			Namespace: "fairlead", ClusterRolePrefix: "fairlead:np", Images: profile.DefaultImages(),
			CacheImage: "registry.example/edge-cache:v1", CacheUpstream: "https://api.example:6443",
		},
		DefaultProfile: v1alpha1.ProfileTraefik, LabelKeys: []string{v1alpha1.LabelNodePool, "topology.kubernetes.io/zone"},
		Exposures: []string{
			v1alpha1.ExposureNodePort, v1alpha1.ExposureLoadBalancer, v1alpha1.ExposureHostPort, v1alpha1.ExposureClusterIP,
		},
		HostPorts:        []PortRange{{80, 80}, {443, 443}, {8000, 8999}},
		ExternalIPRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		BalancerIPRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
		BalancerClasses:  []string{"example.com/internal", "example.com/other"},
		Profiles: []string{
			v1alpha1.ProfileTraefik, v1alpha1.ProfileCustom, v1alpha1.ProfileHAProxyTech, v1alpha1.ProfileHAProxyIngress,
			v1alpha1.ProfileF5NGINX,
		},
	}
	for _, name := range v1alpha1.Profiles() {
		p.AllowedImages = append(p.AllowedImages, profile.ImageRepositories(name)...)
	}
	return p
}

func object(pools ...string) *v1alpha1.YurtIngress {
	y := &v1alpha1.YurtIngress{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "uid"}}
	for _, name := range pools {
		y.Spec.Pools = append(y.Spec.Pools, v1alpha1.IngressPool{Name: name})
	}
	return y
}

// input returns the input of a plan in which all pools exist and are free.
func input(y *v1alpha1.YurtIngress) *Input {
	in := &Input{Object: y, Policy: policy(), Pools: map[string]Observed{}}
	for i := range y.Spec.Pools {
		in.Pools[y.Spec.Pools[i].Name] = Observed{
			Exists: true, Nodes: 1, ReadyNodes: 1, Claim: Claim{Contenders: []Contender{{Age: ownership.AgeOf(y), UID: y.UID}}},
		}
	}
	return in
}

// live returns wanted objects as they are in a cluster.
func live(pools ...Pool) []Object {
	var all []Object
	for i := range pools {
		for _, o := range pools[i].Wanted {
			u := o.Object.DeepCopy()
			if o.Resource == Deployments {
				u.SetGeneration(1)
				replicas := int64(pools[i].Replicas)
				u.Object["status"] = map[string]any{
					"observedGeneration": int64(1), "replicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas,
					"readyReplicas": replicas,
				}
			}
			all = append(all, Object{Resource: o.Resource, Object: u})
		}
	}
	return all
}

func TestBuild(t *testing.T) {
	t.Parallel()
	in := input(object("a", "b"))
	p := Build(in)
	again := Build(in)
	require.Equal(t, p, again, "the same input has the same plan")
	require.Len(t, p.Pools, 2)
	for _, pool := range p.Pools {
		require.Nil(t, pool.Problem)
		assert.True(t, pool.CanChange())
		assert.Equal(t, "IngressClass", pool.Wanted[0].Object.GetKind(), "the creation of the class claims the pool")
		last := pool.Wanted[len(pool.Wanted)-1].Object
		assert.Equal(t, "Deployment", last.GetKind(), "the revision is of objects that have been applied")
		assert.Equal(t, pool.Revision, last.GetAnnotations()[v1alpha1.AnnotationRevision])
	}
	in.Live = live(p.Pools...)
	p = Build(in)
	for _, pool := range p.Pools {
		assert.True(t, pool.IsCurrent())
		assert.True(t, pool.Before.Ready)
		assert.Empty(t, pool.Stale)
	}
	assert.Empty(t, p.Removed)

	revision := p.Pools[0].Revision
	in.Object.Spec.Replicas = ptr.To[int32](3)
	assert.Equal(t, revision, Build(in).Pools[0].Revision, "scaling is no roll-out")
	in.Pools["a"] = Observed{Exists: true, Nodes: 7, ReadyNodes: 7, Claim: in.Pools["a"].Claim}
	assert.Equal(t, revision, Build(in).Pools[0].Revision, "a new node is no roll-out")
	in.Object.Spec.Exposure = &v1alpha1.Exposure{Type: v1alpha1.ExposureClusterIP}
	assert.NotEqual(t, revision, Build(in).Pools[0].Revision)
}

func TestRemovedPools(t *testing.T) {
	t.Parallel()
	in := input(object("a", "b"))
	in.Live = live(Build(in).Pools...)
	in.Object.Spec.Pools = in.Object.Spec.Pools[:1]
	p := Build(in)
	require.Len(t, p.Removed, 1)
	assert.Equal(t, "b", p.Removed[0].Name)
	objects := p.Removed[0].Objects
	assert.Equal(t, "Deployment", objects[0].Object.GetKind())
	assert.Equal(t, "IngressClass", objects[len(objects)-1].Object.GetKind(), "the class is free when nothing else is left")

	// A label that another client has changed moves no object to another pool.
	for i := range in.Live {
		labels := in.Live[i].Object.GetLabels()
		if labels[v1alpha1.LabelPool] == "a" {
			labels[v1alpha1.LabelPool] = "b"
			in.Live[i].Object.SetLabels(labels)
		}
	}
	p = Build(in)
	for _, r := range p.Removed {
		for _, o := range r.Objects {
			assert.NotContains(t, wantedNames(&p.Pools[0]), o.Object.GetKind()+o.Object.GetName())
		}
	}
	assert.True(t, p.Pools[0].IsCurrent())
}

func wantedNames(p *Pool) []string {
	var names []string
	for i := range p.Wanted {
		names = append(names, p.Wanted[i].Object.GetKind()+p.Wanted[i].Object.GetName())
	}
	return names
}

// TestInvalidKeepsObjects has problems of the object and of a pool: nothing changes, and nothing is deleted.
func TestInvalidKeepsObjects(t *testing.T) {
	t.Parallel()
	in := input(object("a"))
	in.Live = live(Build(in).Pools...)
	in.Object.Spec.Image = "example.com/other:v1"
	p := Build(in)
	assert.Equal(t, v1alpha1.ReasonNotAllowed, p.Pools[0].Problem.Reason)
	assert.Empty(t, p.Pools[0].Stale)
	assert.Empty(t, p.Removed)
	assert.True(t, p.Pools[0].Before.Ready, "the pool that exists is still judged")

	in = input(object("a", "a"))
	p = Build(in)
	require.Len(t, p.Pools, 1)
	assert.Contains(t, p.Pools[0].Problem.Message, "listed 2 times")

	in = input(object("a"))
	in.Pools["a"] = Observed{Claim: in.Pools["a"].Claim}
	assert.Equal(t, v1alpha1.ReasonPoolNotFound, Build(in).Pools[0].Problem.Reason)
	var many []string
	for i := range MaxPools + 1 {
		many = append(many, fmt.Sprintf("p%d", i))
	}
	p = Build(input(object(many...)))
	assert.Len(t, p.Pools, MaxPools)
	assert.Equal(t, v1alpha1.ReasonLimitExceeded, p.Pools[0].Problem.Reason)
}

func TestReplace(t *testing.T) {
	t.Parallel()
	y := object("a")
	y.Spec.Exposure = &v1alpha1.Exposure{Type: v1alpha1.ExposureLoadBalancer, LoadBalancerClass: "example.com/internal"}
	in := input(y)
	before := Build(in).Pools[0]
	for i := range before.Wanted {
		assert.False(t, MustReplace(&before.Wanted[i], before.Wanted[i].Object), "%s", before.Wanted[i].Object.GetKind())
		assert.False(t, MustReplace(&before.Wanted[i], nil))
	}
	y.Spec.Profile = v1alpha1.ProfileHAProxyTech
	y.Spec.Exposure.LoadBalancerClass = "example.com/other"
	after := Build(in).Pools[0]
	require.Nil(t, after.Problem)
	replaced := map[string]bool{}
	for i := range after.Wanted {
		for j := range before.Wanted {
			if after.Wanted[i].Key() == before.Wanted[j].Key() && MustReplace(&after.Wanted[i], before.Wanted[j].Object) {
				replaced[after.Wanted[i].Object.GetKind()] = true
			}
		}
	}
	assert.Equal(t, map[string]bool{"IngressClass": true, "ClusterRoleBinding": true, "Service": true}, without(replaced, "RoleBinding"))
}

// TestCustomResourcesAreOfTraefik checks that other profiles do not change where the API server serves Traefik's custom resources.
func TestCustomResourcesAreOfTraefik(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		v1alpha1.ProfileTraefik: true, v1alpha1.ProfileHAProxyTech: false, v1alpha1.ProfileF5NGINX: false,
	} {
		y := object("a")
		y.Spec.Profile = name
		y.Spec.CacheSidecar = &v1alpha1.CacheSidecar{Enabled: true}
		in := input(y)
		before := Build(in).Pools[0].Revision
		in.TraefikKinds = true
		assert.Equal(t, want, before != Build(in).Pools[0].Revision, name)
	}
}

func without(m map[string]bool, key string) map[string]bool {
	delete(m, key)
	return m
}

// hostile returns a random specification, of valid and of dangerous values. The first value of each field is the default.
func hostile(r *rand.Rand) *v1alpha1.YurtIngress {
	pick := func(values ...string) string { return values[max(0, r.IntN(5*len(values))-4*len(values))] }
	image := func() string {
		return pick("", "evil.example/x", "docker.io/library/traefik:v9", "traefik", "traefik@sha256:x",
			"docker.io/library/traefik/../evil", "docker.io/library/traefik evil",
			"evil/library/traefik", "docker.io/haproxytech/kubernetes-ingress:3", "docker.io/library/traefik.evil.example/x",
			"k8s.gcr.io/ingress-nginx/controller:v0.48.1")
	}
	exposure := func() *v1alpha1.Exposure {
		if r.IntN(3) > 0 {
			return nil
		}
		kinds := append(v1alpha1.Exposures(), "Other")
		return &v1alpha1.Exposure{
			Type: kinds[r.IntN(len(kinds))], HTTPPort: int32(r.IntN(2) * 80), HTTPSPort: int32(r.IntN(3) / 2 * 10250),
			LoadBalancerClass: pick("", "example.com/internal", "evil.example/x", "{}\n"),
		}
	}
	y := object()
	y.Spec.Profile = pick(append([]string{"", "../x"}, v1alpha1.Profiles()...)...)
	y.Spec.Image, y.Spec.PoolLabelKey, y.Spec.Exposure = image(), pick("", v1alpha1.LabelNodePool, "kubernetes.io/hostname"), exposure()
	y.Spec.Spread = pick("", "Required", "x")
	if r.IntN(8) == 0 {
		y.Spec.CacheSidecar = &v1alpha1.CacheSidecar{Enabled: r.IntN(4) > 0, Image: image()}
	}
	if r.IntN(8) == 0 {
		y.Spec.Tolerations = []corev1.Toleration{
			{Key: pick("", "a/b", "a b"), Operator: corev1.TolerationOpExists, Value: pick("", "x\ny")},
		}
	}
	if r.IntN(2) == 0 && y.Spec.Profile == v1alpha1.ProfileCustom {
		y.Spec.CustomManifest = &v1alpha1.CustomManifest{ConfigMap: "m"}
	}
	for range 1 + r.IntN(3) {
		names := []string{
			"a", "b.c", "9", strings.Repeat("x", 63), strings.Repeat("x.", 31) + "y", "A_b", strings.Repeat("y", 253), "", "-a",
			"a\n---\nkind: Pod", "{{.}}", "$(POD)", "nginx",
		}
		p := v1alpha1.IngressPool{Name: names[r.IntN(len(names))], Image: image(), Exposure: exposure()}
		if r.IntN(5) == 0 {
			p.IngressIPs = []string{pick("192.0.2.7", "198.51.100.7", "10.0.0.1", "x", "::1%eth0", "192.0.2.7/32")}
		}
		y.Spec.Pools = append(y.Spec.Pools, p)
	}
	return y
}

// manifest is a hostile custom manifest.
const manifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: x, namespace: kube-system}
spec:
  template:
    spec:
      serviceAccountName: admin
      hostPID: true
      containers: [{name: c, image: docker.io/library/traefik, securityContext: {privileged: true}}]
      volumes: [{name: v, hostPath: {path: /}}]
`

// TestNothingGained plans random specifications. Whatever they say, the objects run only allowed images with the ServiceAccount of the
// pool, on the nodes of the pool, and give and take nothing else.
func TestNothingGained(t *testing.T) {
	t.Parallel()
	planned, profiles := 0, map[string]bool{}
	for seed := range uint64(3000) {
		y := hostile(rand.New(rand.NewPCG(seed, 1)))
		in := input(y)
		in.Manifest = Manifest{Source: "m", Found: true, Text: manifest}
		p := Build(in)
		for i := range p.Pools {
			pool := &p.Pools[i]
			if !pool.CanChange() {
				continue
			}
			planned++
			profiles[p.Settings.Profile] = true
			for j := range pool.Wanted {
				check(t, &in.Policy, y, pool, pool.Wanted[j].Object)
			}
		}
	}
	assert.Greater(t, planned, 500, "not all specifications are refused")
	assert.Len(t, profiles, len(v1alpha1.Profiles())-2,
		"of all profiles but custom, whose manifest is refused, and the one that is not allowed")
}

func check(t *testing.T, policy *Policy, y *v1alpha1.YurtIngress, pool *Pool, u *unstructured.Unstructured) {
	t.Helper()
	text, err := u.MarshalJSON()
	require.NoError(t, err)
	what := string(text)
	kind, known := kindOf(u.GroupVersionKind())
	require.True(t, known, what)
	if kind.Namespaced {
		require.Equal(t, policy.Install.Namespace, u.GetNamespace(), what)
	}
	require.Equal(t, []metav1.OwnerReference{OwnerReference(y.Name, y.UID)}, u.GetOwnerReferences(), what)
	require.LessOrEqual(t, len(u.GetName()), 253, what)
	for _, forbidden := range []string{
		"hostPath", "privileged\":true", "hostPID", "hostIPC", "cluster-admin", "kube-system", "evil", "hostNetwork\":true",
		"is-default-class", `"hostPort":10250`, "SYS_ADMIN",
	} {
		require.NotContains(t, what, forbidden)
	}
	switch u.GetKind() {
	case "IngressClass":
		require.Equal(t, pool.Name, u.GetName())
	case "ClusterRoleBinding", "RoleBinding":
		role, _, _ := unstructured.NestedString(u.Object, "roleRef", "name")
		require.True(t, strings.HasPrefix(role, policy.Install.ClusterRolePrefix+":"), what)
		subjects, _, _ := unstructured.NestedSlice(u.Object, "subjects")
		require.Len(t, subjects, 1, what)
		require.Equal(t, policy.Install.Namespace, subjects[0].(map[string]any)["namespace"], what)
	case "Service":
		ips, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "externalIPs")
		for _, ip := range ips {
			require.True(t, inRanges(policy.ExternalIPRanges, ip), what)
		}
		if ip, found, _ := unstructured.NestedString(u.Object, "spec", "loadBalancerIP"); found {
			require.True(t, inRanges(policy.BalancerIPRanges, ip), what)
		}
		for _, requested := range u.GetAnnotations() {
			for _, ip := range strings.Split(requested, ",") {
				require.True(t, inRanges(policy.BalancerIPRanges, ip), what)
			}
		}
		if class, found, _ := unstructured.NestedString(u.Object, "spec", "loadBalancerClass"); found {
			require.Contains(t, policy.BalancerClasses, class, what)
		}
	case "Deployment":
		var d appsv1.Deployment
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d))
		spec := &d.Spec.Template.Spec
		require.Contains(t, spec.NodeSelector, y.Spec.PoolLabelKey+strings.Repeat(v1alpha1.LabelNodePool, btoi(y.Spec.PoolLabelKey == "")),
			what)
		for _, c := range append(spec.InitContainers, spec.Containers...) {
			if c.Image != policy.Install.CacheImage {
				require.NoError(t, policy.checkAllowedImage(c.Image), what)
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestLongNames has pools whose names are alike in the first characters. Their objects have different names.
func TestLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 62)
	p := Build(input(object(long+"a", long+"b", "a.b", "a-b", "1")))
	seen := map[string]string{}
	for i := range p.Pools {
		require.Nil(t, p.Pools[i].Problem)
		for _, o := range p.Pools[i].Wanted {
			name := o.Object.GetName()
			key := o.Object.GetKind() + name
			assert.Empty(t, seen[key], "%s is of two pools", key)
			seen[key] = p.Pools[i].Name
			if o.Resource == Services {
				assert.LessOrEqual(t, len(name), 63)
			}
		}
	}
	p = Build(input(object(strings.Repeat("x", 253))))
	assert.Equal(t, v1alpha1.ReasonInvalid, p.Pools[0].Problem.Reason, "no node can have the label")
}

// BenchmarkBuild plans the largest object: it bounds the time of a reconcile.
func BenchmarkBuild(b *testing.B) {
	var pools []string
	for i := range MaxPools {
		pools = append(pools, fmt.Sprintf("pool-%d", i))
	}
	in := input(object(pools...))
	in.Live = live(Build(in).Pools...)
	for b.Loop() {
		Build(in)
	}
}
