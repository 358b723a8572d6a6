package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

func TestRepository(t *testing.T) {
	t.Parallel()
	tests := []struct{ image, want string }{
		{"traefik", "docker.io/library/traefik"},
		{"traefik:v3", "docker.io/library/traefik"},
		{"docker.io/traefik", "docker.io/library/traefik"},
		{"docker.io/library/traefik:v3@sha256:" + strings.Repeat("a", 64), "docker.io/library/traefik"},
		{"index.docker.io/nginx/nginx-ingress", "docker.io/nginx/nginx-ingress"},
		{"nginx/nginx-ingress:5", "docker.io/nginx/nginx-ingress"},
		{"registry.example:5000/a/b:v1", "registry.example:5000/a/b"},
		{"localhost/a", "localhost/a"},
		{"", ""}, {"traefik:", ""}, {"a b", ""}, {"a\n", ""}, {"traefik/../evil", ""}, {"traefik@sha256:x", ""}, {"UPPER/x", ""},
		{strings.Repeat("a", 600), ""},
	}
	for _, tt := range tests {
		got, err := imageRepository(tt.image)
		assert.Equal(t, tt.want, got, tt.image)
		assert.Equal(t, tt.want == "", err != nil, tt.image)
	}
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	p := Policy{AllowedImages: []string{"docker.io/library/traefik", "registry.example/edge/"}}
	for image, want := range map[string]bool{
		"traefik:v1": true, "registry.example/edge/traefik": true, "registry.example/edge/a/b:v1": true,
		"registry.example/edge": false, "registry.example/edgeevil/x": false, "docker.io/library/traefik-evil": false,
		"evil.example/library/traefik": false,
	} {
		assert.Equal(t, want, p.checkAllowedImage(image) == nil, image)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	type spec = v1alpha1.YurtIngressSpec
	traefik := "docker.io/library/traefik:v1"
	tests := []struct {
		name   string
		spec   spec
		reason string // of the first problem; empty: none
		check  func(t *testing.T, s *Settings)
	}{
		{name: "defaults", check: func(t *testing.T, s *Settings) {
			t.Helper()
			assert.Equal(t, "traefik", s.Profile)
			assert.Equal(t, int32(1), s.Replicas)
			assert.Equal(t, v1alpha1.LabelNodePool, s.LabelKey)
			assert.Equal(t, v1alpha1.UpdateStrategy{MaxUnavailablePools: 1, ProgressDeadlineSeconds: 600}, s.Strategy)
		}},
		{name: "no replicas", spec: spec{Replicas: ptr.To[int32](0)}, check: func(t *testing.T, s *Settings) {
			t.Helper()
			assert.Zero(t, s.Replicas)
		}},
		{name: "the other names", spec: spec{ReplicasCamel: ptr.To[int32](3), ImageCamel: traefik}, check: func(t *testing.T, s *Settings) {
			t.Helper()
			assert.Equal(t, int32(3), s.Replicas)
			assert.Equal(t, traefik, s.Image)
		}},
		{
			name: "both names and one value",
			spec: spec{Replicas: ptr.To[int32](0), ReplicasCamel: ptr.To[int32](0), Image: traefik, ImageCamel: traefik},
		},
		{
			name: "two replicas", spec: spec{Replicas: ptr.To[int32](0), ReplicasCamel: ptr.To[int32](1)},
			reason: v1alpha1.ReasonFieldConflict,
		},
		{name: "two images", spec: spec{Image: traefik, ImageCamel: "traefik:v1"}, reason: v1alpha1.ReasonFieldConflict},
		{name: "two images of jobs", spec: spec{CertGenImage: "a", CertGenImageCamel: "b"}, reason: v1alpha1.ReasonFieldConflict},
		{name: "negative replicas", spec: spec{Replicas: ptr.To[int32](-1)}, reason: v1alpha1.ReasonInvalid},
		{name: "a legacy image", spec: spec{Image: legacyImages[0], CertGenImage: "x"}, check: func(t *testing.T, s *Settings) {
			t.Helper()
			assert.Empty(t, s.Image)
			assert.Len(t, s.Notes, 2)
		}},
		{
			name: "an image of another profile", spec: spec{Image: "docker.io/haproxytech/kubernetes-ingress:3"},
			reason: v1alpha1.ReasonInvalid,
		},
		{name: "an unknown profile", spec: spec{Profile: "x"}, reason: v1alpha1.ReasonInvalid},
		{name: "a profile that is not allowed", spec: spec{Profile: v1alpha1.ProfileIngressNGINX}, reason: v1alpha1.ReasonNotAllowed},
		{name: "a key that is not allowed", spec: spec{PoolLabelKey: "kubernetes.io/hostname"}, reason: v1alpha1.ReasonNotAllowed},
		{
			name: "a manifest without its profile", spec: spec{CustomManifest: &v1alpha1.CustomManifest{ConfigMap: "m"}},
			reason: v1alpha1.ReasonInvalid,
		},
		{name: "a profile without its manifest", spec: spec{Profile: v1alpha1.ProfileCustom}, reason: v1alpha1.ReasonInvalidManifest},
		{
			name: "a deadline", spec: spec{UpdateStrategy: &v1alpha1.UpdateStrategy{ProgressDeadlineSeconds: 1}},
			reason: v1alpha1.ReasonInvalid,
		},
		{
			name: "a cache image without the cache", spec: spec{CacheSidecar: &v1alpha1.CacheSidecar{Image: "traefik"}},
			reason: v1alpha1.ReasonInvalid,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := policy()
			s := ResolveSettings(&tt.spec, &p)
			if tt.reason != "" {
				require.NotEmpty(t, s.Problems)
				assert.Equal(t, tt.reason, s.Problems[0].Reason, s.Problems[0].Message)
				return
			}
			require.Empty(t, s.Problems)
			if tt.check != nil {
				tt.check(t, &s)
			}
		})
	}
}

func TestPoolSettings(t *testing.T) {
	t.Parallel()
	e := func(kind string, ports ...int32) *v1alpha1.Exposure {
		x := &v1alpha1.Exposure{Type: kind}
		if len(ports) == 2 {
			x.HTTPPort, x.HTTPSPort = ports[0], ports[1]
		}
		return x
	}
	balancer := func(class string) *v1alpha1.Exposure {
		return &v1alpha1.Exposure{Type: "LoadBalancer", LoadBalancerClass: class}
	}
	tests := []struct {
		name   string
		pool   v1alpha1.IngressPool
		want   v1alpha1.Exposure
		reason string
	}{
		{name: "the default", want: *e("NodePort")},
		{name: "fixed ports", pool: v1alpha1.IngressPool{Exposure: e("NodePort", 30080, 30443)}, want: *e("NodePort", 30080, 30443)},
		{name: "ports of nodes", pool: v1alpha1.IngressPool{Exposure: e("HostPort")}, want: *e("HostPort", 80, 443)},
		{
			name: "the port of the kubelet", pool: v1alpha1.IngressPool{Exposure: e("HostPort", 80, 10250)},
			reason: v1alpha1.ReasonNotAllowed,
		},
		{name: "one port twice", pool: v1alpha1.IngressPool{Exposure: e("HostPort", 8080, 8080)}, reason: v1alpha1.ReasonInvalid},
		{name: "the network of nodes", pool: v1alpha1.IngressPool{Exposure: e("HostNetwork")}, reason: v1alpha1.ReasonNotAllowed},
		{name: "an unknown type", pool: v1alpha1.IngressPool{Exposure: e("X")}, reason: v1alpha1.ReasonInvalid},
		{name: "ports without use", pool: v1alpha1.IngressPool{Exposure: e("ClusterIP", 80, 443)}, reason: v1alpha1.ReasonInvalid},
		{name: "addresses as before", pool: v1alpha1.IngressPool{IngressIPs: []string{"192.0.2.1"}}, want: *e("ExternalIPs")},
		{name: "addresses by the other name", pool: v1alpha1.IngressPool{IngressIPsCamel: []string{"192.0.2.1"}}, want: *e("ExternalIPs")},
		{
			name:   "addresses that differ",
			pool:   v1alpha1.IngressPool{IngressIPs: []string{"192.0.2.1"}, IngressIPsCamel: []string{"192.0.2.2"}},
			reason: v1alpha1.ReasonFieldConflict,
		},
		{name: "an address of others", pool: v1alpha1.IngressPool{IngressIPs: []string{"8.8.8.8"}}, reason: v1alpha1.ReasonNotAllowed},
		{
			name: "an address in another form", pool: v1alpha1.IngressPool{IngressIPs: []string{"::ffff:8.8.8.8"}},
			reason: v1alpha1.ReasonNotAllowed,
		},
		{name: "no address", pool: v1alpha1.IngressPool{IngressIPs: []string{"x"}}, reason: v1alpha1.ReasonInvalid},
		{
			name: "addresses without use", pool: v1alpha1.IngressPool{IngressIPs: []string{"192.0.2.1"}, Exposure: e("NodePort")},
			reason: v1alpha1.ReasonInvalid,
		},
		{
			name: "addresses of a load balancer",
			pool: v1alpha1.IngressPool{IngressIPs: []string{"198.51.100.1"}, Exposure: e("LoadBalancer")}, want: *e("LoadBalancer"),
		},
		{
			name:   "an address of others from a load balancer",
			pool:   v1alpha1.IngressPool{IngressIPs: []string{"198.51.100.1", "10.0.0.1"}, Exposure: e("LoadBalancer")},
			reason: v1alpha1.ReasonNotAllowed,
		},
		{
			name: "the ranges of external IPs are not those of load balancers",
			pool: v1alpha1.IngressPool{IngressIPs: []string{"192.0.2.1"}, Exposure: e("LoadBalancer")}, reason: v1alpha1.ReasonNotAllowed,
		},
		{
			name: "the ranges of load balancers are not those of external IPs",
			pool: v1alpha1.IngressPool{IngressIPs: []string{"198.51.100.1"}}, reason: v1alpha1.ReasonNotAllowed,
		},
		{
			name: "a class of load balancers", pool: v1alpha1.IngressPool{Exposure: balancer("example.com/internal")},
			want: *balancer("example.com/internal"),
		},
		{
			name: "a class of load balancers that is not allowed", pool: v1alpha1.IngressPool{Exposure: balancer("example.com/public")},
			reason: v1alpha1.ReasonNotAllowed,
		},
		{
			name:   "a class without use",
			pool:   v1alpha1.IngressPool{Exposure: &v1alpha1.Exposure{Type: "NodePort", LoadBalancerClass: "a/b"}},
			reason: v1alpha1.ReasonInvalid,
		},
		{name: "negative replicas", pool: v1alpha1.IngressPool{Replicas: ptr.To[int32](-1)}, reason: v1alpha1.ReasonInvalid},
		{name: "an image", pool: v1alpha1.IngressPool{Image: "evil.example/x"}, reason: v1alpha1.ReasonNotAllowed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := policy()
			s := ResolveSettings(&v1alpha1.YurtIngressSpec{}, &p)
			tt.pool.Name = "a"
			got, problems := s.poolSettings(&v1alpha1.YurtIngressSpec{}, &tt.pool, &p)
			if tt.reason != "" {
				require.NotEmpty(t, problems)
				assert.Equal(t, tt.reason, problems[0].Reason, problems[0].Message)
				return
			}
			require.Empty(t, problems)
			assert.Equal(t, tt.want, got.Exposure)
		})
	}
}
