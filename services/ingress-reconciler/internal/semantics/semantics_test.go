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

// fixture is a World and its objects.
type fixture struct {
	*World

	objects []*unstructured.Unstructured
}

// world returns a World of YAML documents.
func world(tb testing.TB, documents ...string) *fixture {
	tb.Helper()
	f := &fixture{objects: parse(tb, documents...)}
	var err error
	f.World, err = FromObjects(f.objects)
	require.NoError(tb, err)
	return f
}

// AnswerRequest returns the answer of ExplainRequest.
func (w *World) AnswerRequest(r Request) (Answer, error) {
	e, err := w.ExplainRequest(r)
	return e.Answer, err
}

// ask returns an answer as "namespace/name:port path", or the kind of its error. ask fails the test if the answer depends on the order of
// the objects, or if the explanation differs from the answer.
func ask(tb testing.TB, f *fixture, r Request) string {
	tb.Helper()
	got, err := f.AnswerRequest(r)
	explained, explainErr := f.ExplainRequest(r)
	for seed := range uint64(3) {
		shuffled, worldErr := FromObjects(mixed(rand.New(rand.NewPCG(seed, 0)), f.objects))
		require.NoError(tb, worldErr)
		again, againErr := shuffled.AnswerRequest(r)
		require.Equal(tb, got, again)
		require.Equal(tb, message(err), message(againErr))
		explainedAgain, _ := shuffled.ExplainRequest(r)
		require.Equal(tb, explained, explainedAgain)
	}
	require.Equal(tb, message(err), message(explainErr))
	if err != nil {
		tb.Log(err)
		return inWords(got, err)
	}
	require.Equal(tb, got, explained.Answer)
	require.NotNil(tb, explained.Winner)
	require.Equal(tb, got.Backend, explained.Winner.Backend)
	require.Empty(tb, explained.Winner.Reason)
	for _, c := range explained.Losers {
		require.NotEmpty(tb, c.Reason, c)
	}
	return inWords(got, nil)
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func inWords(a Answer, err error) string {
	for _, kind := range []error{ErrNoRoute, ErrNoBackend, ErrRejected, ErrNotModeled, ErrAmbiguous, ErrInvalid, ErrNotFound} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if err != nil {
		return "an unexpected error: " + err.Error()
	}
	return fmt.Sprintf("%s/%s:%d %s", a.Backend.Namespace, a.Backend.Name, a.Backend.Port, a.Path)
}

func mixed[T any](random *rand.Rand, all []T) []T {
	out := make([]T, len(all))
	for i, j := range random.Perm(len(all)) {
		out[i] = all[j]
	}
	return out
}

// get returns a GET request for "host/path" at an entrance.
func get(e Entrance, url string) Request {
	host, path, _ := strings.Cut(url, "/")
	return Request{Entrance: e, Host: host, Path: "/" + path}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	w := world(t, class("traefik.io/ingress-controller"), ingress("any", "", `
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
		{name: "no path", give: Request{Entrance: ours, Host: "a.example.com"}, want: "not modeled"},
		{name: "relative path", give: Request{Entrance: ours, Host: "a.example.com", Path: "x"}, want: "not modeled"},
		{name: "empty element", give: Request{Entrance: ours, Host: "a.example.com", Path: "//x"}, want: "not modeled"},
		{name: "two slashes", give: Request{Entrance: ours, Host: "a.example.com", Path: "//"}, want: "not modeled"},
		{name: "two slashes at the end", give: Request{Entrance: ours, Host: "a.example.com", Path: "/x//"}, want: "not modeled"},
		{name: "dots", give: Request{Entrance: ours, Host: "a.example.com", Path: "/x/../y"}, want: "not modeled"},
		{name: "escape", give: Request{Entrance: ours, Host: "a.example.com", Path: "/%78"}, want: "not modeled"},
		{
			name: "a header twice",
			give: Request{Entrance: ours, Host: "a.example.com", Path: "/", Header: map[string]string{"a": "1", "A": "2"}},
			want: "invalid",
		},
		{
			name: "host as a header",
			give: Request{Entrance: ours, Host: "a.example.com", Path: "/", Header: map[string]string{"host": "b"}}, want: "invalid",
		},
		{name: "no entrance", give: Request{Host: "a.example.com", Path: "/"}, want: "invalid"},
		{
			name: "two entrances",
			give: Request{Entrance: Entrance{IngressClass: "ours", IstioGateway: "a/b"}, Host: "a.example.com", Path: "/"},
			want: "invalid",
		},
		{
			name: "port of a class", give: Request{Entrance: Entrance{IngressClass: "ours", Port: 80}, Host: "a.example.com", Path: "/"},
			want: "invalid",
		},
		{
			name: "no such class", give: Request{Entrance: Entrance{IngressClass: "other"}, Host: "a.example.com", Path: "/"},
			want: "not found",
		},
		{
			name: "no such Gateway",
			give: Request{Entrance: Entrance{Gateway: types.NamespacedName{Namespace: "g", Name: "x"}}, Host: "a.example.com", Path: "/"},
			want: "not found",
		},
		{
			name: "Istio gateway without a namespace",
			give: Request{Entrance: Entrance{IstioGateway: "mesh"}, Host: "a.example.com", Path: "/"}, want: "invalid",
		},
		{
			name: "Istio Gateway that no object names",
			give: Request{Entrance: Entrance{IstioGateway: "a/b"}, Host: "a.example.com", Path: "/"}, want: "no route",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, ask(t, w, tt.give))
		})
	}
}

func TestHostIndex(t *testing.T) {
	t.Parallel()
	x := hostIndex[string]{}
	for _, h := range []string{"a.b.example.com", "*.b.example.com", "*.example.com", "*.COM", "", "*", "b.example.com", "example.org"} {
		x.addValue(h, h)
	}
	var got []string
	x.forEachCovering("a.b.example.com", func(hostname string, all []string) bool {
		got = append(got, fmt.Sprintf("%s%q", hostname, all))
		return true
	})
	assert.Equal(t,
		[]string{
			`a.b.example.com["a.b.example.com"]`, `*.b.example.com["*.b.example.com"]`, `*.example.com["*.example.com"]`, `*.com["*.COM"]`,
			`["" "*"]`,
		},
		got)
	got = nil
	x.forEachCovering("b.example.com", func(hostname string, _ []string) bool {
		got = append(got, hostname)
		return len(got) < 2
	})
	assert.Equal(t, []string{"b.example.com", "*.example.com"}, got, "a wildcard does not cover its own domain; f stops after two")
}

func TestOneLabel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		hostname, host string
		want           bool
	}{
		{hostname: "a.example.com", host: "a.example.com", want: true},
		{hostname: "", host: "a.example.com", want: true},
		{hostname: "*.example.com", host: "a.example.com", want: true},
		{hostname: "*.example.com", host: "a.b.example.com"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, coversLabel(tt.hostname, tt.host), "%s %s", tt.hostname, tt.host)
	}
}

func TestFromObjects(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       error
	}{
		{name: "another kind", give: `{apiVersion: v1, kind: Secret, metadata: {name: a}}`},
		{
			name: "another version", give: `{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: HTTPRoute, metadata: {name: a}}`,
			want: ErrNotModeled,
		},
		{
			name: "a field of a later release",
			give: `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: a}, spec: {color: red}}`,
		},
		{
			name: "an Ingress of another form",
			give: `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a}, spec: {rules: 1}}`, want: ErrInvalid,
		},
		{
			name: "a VirtualService of another form",
			give: `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a}, spec: {hosts: 1}}`, want: ErrInvalid,
		},
		{
			name: "a VirtualService with a field of a later release",
			give: `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a}, spec: {color: red}}`,
		},
		{
			name: "two namespaces",
			give: "{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: a}}",
			want: ErrInvalid,
		},
		{
			name: "two Middlewares",
			give: "{apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: {name: a}}\n---\n{apiVersion: traefik.io/v1alpha1, " +
				"kind: Middleware, metadata: {name: a}}",
			want: ErrInvalid,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := FromObjects(parse(t, tt.give))
			if tt.want == nil {
				assert.NoError(t, err)
				return
			}
			assert.ErrorIs(t, err, tt.want)
		})
	}
	_, err := FromObjects([]*unstructured.Unstructured{nil})
	require.ErrorIs(t, err, ErrInvalid)
}

// An unknown field of an object affects only requests that could match the object.
func TestFieldsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	const rules = `rules: [{backendRefs: [{name: s, port: 80}]}]`
	f := world(t, gateway(everywhere), route("m/known", `hostnames: [a.example.com], `+rules),
		route("m/later", `hostnames: [b.example.com], color: red, `+rules), class("k8s.io/ingress-nginx"),
		ingress("i", "", onHost("a.example.com", at("Prefix", "/", "s"))),
		ingress("later", "", onHost("b.example.com", at("Prefix", "/", "s"))+"\n  color: red"),
		virtual("m/known", `hosts: [a.example.com], http: [{`+toHost("s")+`}]`),
		virtual("m/later", `hosts: [b.example.com], color: red, http: [{`+toHost("s")+`}]`))
	for _, e := range []Entrance{atThePublicGateway, atOurClass, atTheIstioGateway} {
		assert.Contains(t, ask(t, f, get(e, "a.example.com/")), "/s:80 /", e)
		assert.Equal(t, "not modeled", ask(t, f, get(e, "b.example.com/")), e)
	}
}

// The cost of an answer depends on the rules for its host, not on the number of objects.
func TestManyObjects(t *testing.T) { // the test counts allocations
	build := func(n int) *World {
		documents := []string{gateway(everywhere), class("k8s.io/ingress-nginx")}
		for i := range n {
			host := fmt.Sprintf("h%d.example.com", i)
			documents = append(documents, route(fmt.Sprintf("m/r%d", i), `hostnames: [`+host+`], rules: [{`+to("s")+`}]`),
				ingress(fmt.Sprintf("i%d", i), "", onHost(host, at("Prefix", "/", "s"))),
				virtual(fmt.Sprintf("m/v%d", i), `hosts: [`+host+`], http: [{`+toHost("s")+`}]`))
		}
		w, err := FromObjects(parse(t, documents...))
		require.NoError(t, err)
		return w
	}
	few, many := build(10), build(500)
	for _, e := range []Entrance{atThePublicGateway, atOurClass, atTheIstioGateway} {
		allocations := func(w *World) float64 {
			return testing.AllocsPerRun(20, func() {
				_, err := w.AnswerRequest(get(e, "h7.example.com/"))
				require.NoError(t, err)
			})
		}
		// The race detector empties pools at random, which costs a few allocations.
		assert.Less(t, allocations(many), 2*allocations(few), e)
	}
}
