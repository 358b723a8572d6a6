package semantics

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/depcheck"
)

// parse reads YAML documents.
func parse(tb testing.TB, documents ...string) []*unstructured.Unstructured {
	tb.Helper()
	var objects []*unstructured.Unstructured
	for _, text := range strings.Split(strings.Join(documents, "\n---\n"), "\n---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(tb, yaml.Unmarshal([]byte(text), &u.Object), text)
		if len(u.Object) > 0 {
			objects = append(objects, u)
		}
	}
	return objects
}

// world makes a world of YAML documents.
func world(tb testing.TB, documents ...string) *World {
	tb.Helper()
	w, err := FromObjects(parse(tb, documents...))
	require.NoError(tb, err)
	return w
}

// ask returns an answer in words, "namespace/name:port path", or what kind of error it is. The answer must be the same
// whatever the order of the objects is.
func ask(tb testing.TB, w *World, r Request) string {
	tb.Helper()
	got, err := w.Answer(r)
	for seed := range uint64(4) {
		again, errAgain := shuffled(w, seed).Answer(r)
		require.Equal(tb, got, again)
		require.Equal(tb, inWords(got, err), inWords(again, errAgain))
	}
	if err != nil {
		tb.Log(err)
	}
	return inWords(got, err)
}

func inWords(a Answer, err error) string {
	for _, kind := range []error{ErrNoRoute, ErrNoBackend, ErrRedirected, ErrRejected, ErrUnsupported, ErrAmbiguous, ErrInvalid, ErrNotFound} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if err != nil {
		return "an error of no kind: " + err.Error()
	}
	return fmt.Sprintf("%s/%s:%d %s", a.Backend.Namespace, a.Backend.Name, a.Backend.Port, a.Path)
}

// shuffled is a world with its objects in another order.
func shuffled(w *World, seed uint64) *World {
	s := *w
	random := rand.New(rand.NewPCG(seed, 0))
	s.Gateways = mixed(random, w.Gateways)
	s.HTTPRoutes = mixed(random, w.HTTPRoutes)
	s.Ingresses = mixed(random, w.Ingresses)
	s.IngressClasses = mixed(random, w.IngressClasses)
	s.VirtualServices = mixed(random, w.VirtualServices)
	s.Middlewares = mixed(random, w.Middlewares)
	return &s
}

func mixed[T any](random *rand.Rand, all []T) []T {
	out := make([]T, len(all))
	for i, j := range random.Perm(len(all)) {
		out[i] = all[j]
	}
	return out
}

// get is a request to the Gateway, class or Istio gateway of the tests: "host/path".
func get(e Entrance, url string) Request {
	host, path, _ := strings.Cut(url, "/")
	return Request{Entrance: e, Host: host, Path: "/" + path}
}

func TestItIsPure(t *testing.T) {
	t.Parallel()
	depcheck.AssertNoDependency(t, ".", "k8s.io/client-go/...", "go.uber.org/zap/...", "go.uber.org/dig/...",
		"github.com/prometheus/...", "google.golang.org/grpc/...")
}

func TestRequest(t *testing.T) {
	t.Parallel()
	w := world(t, class("haproxy.org/ingress-controller"), ingress("any", "", `
  rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]`))
	ours := Entrance{IngressClass: "ours"}
	tests := []struct {
		name string
		give Request
		want string
	}{
		{name: "plain", give: Request{Entrance: ours, Host: "a.example.com", Path: "/x"}, want: "ns/s:80 /x"},
		{name: "port and case of the host", give: Request{Entrance: ours, Host: "A.example.COM:8443", Path: "/x"}, want: "ns/s:80 /x"},
		{name: "query", give: Request{Entrance: ours, Host: "a.example.com", Path: "/x?y=/z//%20"}, want: "ns/s:80 /x?y=/z//%20"},
		{name: "slash at the end", give: Request{Entrance: ours, Host: "a.example.com", Path: "/x/"}, want: "ns/s:80 /x/"},
		{name: "query that cannot be read", give: Request{Entrance: ours, Host: "a.example.com", Path: "/x?%zz"}, want: "invalid"},
		{name: "no host", give: Request{Entrance: ours, Path: "/"}, want: "invalid"},
		{name: "host with a strange port", give: Request{Entrance: ours, Host: "a.example.com:http", Path: "/"}, want: "invalid"},
		{name: "host without its port", give: Request{Entrance: ours, Host: "a.example.com:", Path: "/"}, want: "invalid"},
		{name: "wildcard as a host", give: Request{Entrance: ours, Host: "*.example.com", Path: "/"}, want: "invalid"},
		{name: "no path", give: Request{Entrance: ours, Host: "a.example.com"}, want: "unsupported"},
		{name: "relative path", give: Request{Entrance: ours, Host: "a.example.com", Path: "x"}, want: "unsupported"},
		{name: "empty element", give: Request{Entrance: ours, Host: "a.example.com", Path: "//x"}, want: "unsupported"},
		{name: "two slashes", give: Request{Entrance: ours, Host: "a.example.com", Path: "//"}, want: "unsupported"},
		{name: "two slashes at the end", give: Request{Entrance: ours, Host: "a.example.com", Path: "/x//"}, want: "unsupported"},
		{name: "dots", give: Request{Entrance: ours, Host: "a.example.com", Path: "/x/../y"}, want: "unsupported"},
		{name: "escape", give: Request{Entrance: ours, Host: "a.example.com", Path: "/%78"}, want: "unsupported"},
		{name: "a header twice", give: Request{Entrance: ours, Host: "a.example.com", Path: "/", Header: map[string]string{"a": "1", "A": "2"}}, want: "invalid"},
		{name: "host as a header", give: Request{Entrance: ours, Host: "a.example.com", Path: "/", Header: map[string]string{"host": "b"}}, want: "invalid"},
		{name: "no entrance", give: Request{Host: "a.example.com", Path: "/"}, want: "invalid"},
		{name: "two entrances", give: Request{Entrance: Entrance{IngressClass: "ours", IstioGateway: "a/b"}, Host: "a.example.com", Path: "/"}, want: "invalid"},
		{name: "port of a class", give: Request{Entrance: Entrance{IngressClass: "ours", Port: 80}, Host: "a.example.com", Path: "/"}, want: "invalid"},
		{name: "no such class", give: Request{Entrance: Entrance{IngressClass: "other"}, Host: "a.example.com", Path: "/"}, want: "not found"},
		{name: "no such Gateway", give: Request{Entrance: Entrance{Gateway: types.NamespacedName{Namespace: "g", Name: "x"}}, Host: "a.example.com", Path: "/"}, want: "not found"},
		{name: "Istio gateway without a namespace", give: Request{Entrance: Entrance{IstioGateway: "mesh"}, Host: "a.example.com", Path: "/"}, want: "invalid"},
		{name: "Istio gateway of nobody", give: Request{Entrance: Entrance{IstioGateway: "a/b"}, Host: "a.example.com", Path: "/"}, want: "no route"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, ask(t, w, tt.give))
		})
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		pattern, host string
		many, one     bool
	}{
		{pattern: "a.example.com", host: "a.example.com", many: true, one: true},
		{pattern: "A.Example.com", host: "a.example.com", many: true, one: true},
		{pattern: "b.example.com", host: "a.example.com"},
		{pattern: "*.example.com", host: "a.example.com", many: true, one: true},
		{pattern: "*.example.com", host: "a.b.example.com", many: true},
		{pattern: "*.example.com", host: "example.com"},
		{pattern: "*.example.com", host: "aexample.com"},
		{pattern: "*.example.com", host: "a.example.org"},
		{pattern: "*example.com", host: "a.example.com"},
	}
	for _, tt := range tests {
		t.Run(tt.pattern+" "+tt.host, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.many, covers(tt.pattern, tt.host), "labels")
			assert.Equal(t, tt.one, coversOneLabel(tt.pattern, tt.host), "one label")
		})
	}
}

func TestWhatNoServerHas(t *testing.T) {
	t.Parallel()
	twice := world(t, class("haproxy.org/ingress-controller"))
	twice.IngressClasses = append(twice.IngressClasses, twice.IngressClasses[0])
	tests := []struct {
		name string
		give *World
	}{
		{name: "Gateway", give: &World{Gateways: append(world(t).Gateways, nil)}},
		{name: "HTTPRoute", give: &World{HTTPRoutes: append(world(t).HTTPRoutes, nil)}},
		{name: "Ingress", give: &World{Ingresses: append(world(t).Ingresses, nil)}},
		{name: "IngressClass", give: &World{IngressClasses: append(world(t).IngressClasses, nil)}},
		{name: "VirtualService", give: &World{VirtualServices: append(world(t).VirtualServices, nil)}},
		{name: "Middleware", give: &World{Middlewares: append(world(t).Middlewares, nil)}},
		{name: "two of one name", give: twice},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.give.Answer(get(Entrance{IngressClass: "ours"}, "a.example.com/"))
			assert.ErrorIs(t, err, ErrInvalid)
		})
	}
}

func TestFromObjects(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       error
	}{
		{name: "another kind", give: `{apiVersion: v1, kind: Secret, metadata: {name: a}}`, want: ErrUnsupported},
		{name: "another version", give: `{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: HTTPRoute, metadata: {name: a}}`, want: ErrUnsupported},
		{name: "an HTTPRoute with a field of nobody", give: `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: a}, spec: {color: red}}`, want: ErrInvalid},
		{name: "an Ingress of another form", give: `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a}, spec: {rules: 1}}`, want: ErrInvalid},
		{name: "a VirtualService with a field of nobody", give: `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a}, spec: {color: red}}`, want: ErrInvalid},
		{name: "a VirtualService with a field beside", give: `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a}, color: red}`, want: ErrInvalid},
		{name: "two namespaces", give: "{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: a}}", want: ErrInvalid},
		{name: "two Middlewares", give: "{apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: {name: a}}\n---\n{apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: {name: a}}", want: ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := FromObjects(parse(t, tt.give))
			assert.ErrorIs(t, err, tt.want)
		})
	}
	_, err := FromObjects([]*unstructured.Unstructured{nil})
	require.ErrorIs(t, err, ErrInvalid)

	w := world(t, `{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {b: c}}}
---
{apiVersion: networking.istio.io/v1beta1, kind: VirtualService, metadata: {name: a}, spec: {hosts: [h]}, status: {observedGeneration: "1"}}`)
	assert.Equal(t, map[string]map[string]string{"a": {"b": "c"}}, w.Namespaces)
	assert.Equal(t, []string{"h"}, w.VirtualServices[0].Spec.Hosts)
}
