package ingressclass

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestRecognize(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give   string
		want   *Controller
		strips bool
	}{
		{give: "k8s.io/ingress-nginx", want: &IngressNGINX, strips: true},
		{give: "k8s.io/ingress-nginx-internal"},
		{give: "nginx.org/ingress-controller", want: &NGINX},
		{give: "traefik.io/ingress-controller", want: &Traefik, strips: true},
		{give: "haproxy.org/ingress-controller", want: &HAProxy, strips: true},
		{give: "haproxy.org/ingress-controller/internal", want: &HAProxy, strips: true},
		{give: "haproxy-ingress.github.io/controller", want: &HAProxyIngress, strips: true},
		{give: "projectcontour.io/contour-external", want: &Contour},
		{give: "istio.io/ingress-controller", want: &Istio},
		{give: "example.com/mine"},
		{give: ""},
	}
	for _, tt := range tests {
		t.Run(tt.give, func(t *testing.T) {
			t.Parallel()
			got := RecognizeController(tt.give)
			assert.Same(t, tt.want, got)
			assert.Equal(t, tt.strips, got.StripsPrefixes())
		})
	}
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	want := map[string]map[string]string{
		"ingress-nginx": {"nginx.ingress.kubernetes.io/backend-protocol": "GRPC"}, "F5 NGINX": {"nginx.org/grpc-services": "chat-engine"},
		"haproxy.org": {"haproxy.org/server-proto": "h2"}, "haproxy-ingress": {"haproxy-ingress.github.io/backend-protocol": "grpc"},
	}
	got := map[string]map[string]string{}
	for _, c := range Controllers() {
		if c.GRPC != nil {
			got[c.Name] = c.GRPC("chat-engine")
		}
	}
	assert.Equal(t, want, got)
}

// A controller that is not in the table has no effect.
func TestEachFileIsInTheTable(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	described := 0
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go") && f.Name() != "ingressclass.go" {
			described++
		}
	}
	assert.Len(t, Controllers(), described, "each controller has one file, and one entry in the table")
}

// TestControllers checks every controller, including controllers that are added later.
func TestControllers(t *testing.T) {
	t.Parallel()
	names, specs := map[string]bool{}, map[string]bool{}
	for _, c := range Controllers() {
		assert.NotEmpty(t, c.Name)
		assert.False(t, names[c.Name], "duplicate name %s", c.Name)
		names[c.Name] = true
		assert.NotEmpty(t, c.SpecControllers, c.Name)
		for _, s := range c.SpecControllers {
			assert.False(t, specs[s], "duplicate value %s of spec.controller", s)
			specs[s] = true
		}
		computed := c.ComputedAnnotations()
		for _, key := range computed {
			assert.Empty(t, validation.IsQualifiedName(key), key)
		}
		for _, safe := range c.Safe {
			assert.Empty(t, validation.IsQualifiedName(safe.Key), safe.Key)
			assert.NotEmpty(t, safe.Reason, safe.Key)
			assert.NotContains(t, computed, safe.Key, "a copy of it would have no effect")
		}
		if c.StripPrefix == nil {
			continue
		}
		got := c.StripPrefix(Prefix{Namespace: "models", Name: "chat", Path: "/models/chat/"})
		require.NotEmpty(t, got.Paths, c.Name)
		for _, p := range got.Paths {
			require.NotNil(t, p.PathType, c.Name)
			assert.True(t, strings.HasPrefix(p.Path, "/models/chat"), p.Path)
		}
		if got.Companion != nil {
			assert.Equal(t, "models/chat", got.Companion.Object.GetNamespace()+"/"+got.Companion.Object.GetName())
		}
	}
}

func TestStreaming(t *testing.T) {
	t.Parallel()
	const nginx, org, community = "nginx.ingress.kubernetes.io/", "nginx.org/", "haproxy-ingress.github.io/"
	tests := []struct {
		name        string
		give        Streaming
		annotations map[*Controller]map[string]string
	}{
		{name: "nothing is limited", annotations: map[*Controller]map[string]string{
			&IngressNGINX: {
				nginx + "proxy-read-timeout": "604800", nginx + "proxy-send-timeout": "604800", nginx + "proxy-body-size": "0",
				nginx + "proxy-buffering": "off", nginx + "proxy-request-buffering": "off",
			},
			&NGINX: {
				org + "proxy-read-timeout": "604800s", org + "proxy-send-timeout": "604800s", org + "client-max-body-size": "0",
				org + "proxy-buffering": "False",
			},
			&HAProxy:        {"haproxy.org/timeout-server": "604800s"},
			&HAProxyIngress: {community + "timeout-server": "604800s"},
			&Contour:        {"projectcontour.io/response-timeout": "infinity"},
		}},
		{
			name: "all is limited", give: Streaming{Timeout: time.Minute, MaxBody: 1024, Buffer: true},
			annotations: map[*Controller]map[string]string{
				&IngressNGINX: {
					nginx + "proxy-read-timeout": "60", nginx + "proxy-send-timeout": "60", nginx + "proxy-body-size": "1024",
					nginx + "proxy-buffering": "on", nginx + "proxy-request-buffering": "on",
				},
				&NGINX: {
					org + "proxy-read-timeout": "60s", org + "proxy-send-timeout": "60s", org + "client-max-body-size": "1024",
					org + "proxy-buffering": "True",
				},
				&HAProxy:        {"haproxy.org/timeout-server": "60s"},
				&HAProxyIngress: {community + "timeout-server": "60s", community + "proxy-body-size": "1024"},
				&Contour:        {"projectcontour.io/response-timeout": "60s"},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range Controllers() {
				if c.Streaming == nil {
					assert.NotContains(t, tt.annotations, c)
					continue
				}
				assert.Equal(t, tt.annotations[c], c.Streaming(tt.give), c.Name)
			}
		})
	}
}

func TestMiddlewaresThatAreThere(t *testing.T) {
	t.Parallel()
	const key = "traefik.ingress.kubernetes.io/router.middlewares"
	p := Prefix{Namespace: "models", Name: "chat", Path: "/m/", Annotations: map[string]string{key: "auth@file"}}
	assert.Equal(t, "auth@file,models-chat@kubernetescrd", Traefik.StripPrefix(p).Annotations[key], "the other Middlewares come first")
}

// class returns an IngressClass that was created at the given second.
func class(name string, created int64, isDefault, controller string) *networkingv1.IngressClass {
	return &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(time.Unix(created, 0)),
			Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault},
		},
		Spec: networkingv1.IngressClassSpec{Controller: controller},
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	const nginx = "k8s.io/ingress-nginx"
	all := []*networkingv1.IngressClass{
		class("old", 1, "true", "example.com/a"), class("b", 2, "true", "example.com/b"), class("a", 2, "true", nginx),
		class("inner", 3, "false", nginx),
	}
	tests := []struct {
		name     string
		classes  []*networkingv1.IngressClass
		give     *string
		want     Class
		identity string
	}{
		{
			name: "by name", classes: all, give: new("inner"),
			want: Class{Name: "inner", SpecController: nginx, Controller: &IngressNGINX}, identity: nginx,
		},
		{
			name: "the newest default, of two the first by name", classes: all,
			want: Class{Name: "a", SpecController: nginx, Controller: &IngressNGINX}, identity: nginx,
		},
		{
			name: "an unknown controller", classes: all, give: new("b"), want: Class{Name: "b", SpecController: "example.com/b"},
			identity: "example.com/b",
		},
		{name: "no default", classes: all[3:]},
		{name: "a name that is not there", classes: all, give: new("missing"), want: Class{Name: "missing"}, identity: "missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := ResolveClass(tt.classes, tt.give)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.identity, got.Identity())
		})
	}
}
