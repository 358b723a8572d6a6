package semantics

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// crowd returns a random world of many objects with overlapping hosts, paths, expressions and rewrites. Some of them are invalid.
func crowd(tb testing.TB, seed uint64) *fixture {
	tb.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	host := func() string { return pick("a.b.c", "b.c", "*.b.c", "*.c") }
	p := func() string { return pick("/", "/a", "/a/", "/a/b", "/A", "/a(/|$)(.*)", "/ab", "/(") }
	controller := func() string {
		return pick("k8s.io/ingress-nginx", "traefik.io/ingress-controller")
	}
	documents := []string{
		gateway(everywhere +
			`, {name: wild, port: 80, protocol: HTTP, hostname: "*.b.c"}, {name: more, port: 81, protocol: HTTP, allowedRoutes: ` +
			`{namespaces: {from: Selector, selector: {matchLabels: {x: "1"}}}}}`),
		`{apiVersion: v1, kind: Namespace, metadata: {name: m, labels: {x: "1"}}}`,
		`{apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: {namespace: ns, name: strip}, spec: {stripPrefix: {prefixes: ["` +
			p() + `"]}}}`,
		class(controller()),
	}
	for i := range 6 {
		documents = append(documents,
			route(fmt.Sprintf("%s/r%d@%d", pick("m", "g"), i,
				random.IntN(3)), `hostnames: ["`+host()+`"], rules: [{matches: [{path: {type: `+
				pick("Exact", "PathPrefix", "RegularExpression")+`, value: "`+p()+`"}`+
				pick("", `, method: GET`, `, headers: [{name: h, value: "1"}]`)+`}], filters: [`+
				pick("", `{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}`)+`], `+
				to(fmt.Sprint("s", i))+`}]`),
			ingress(fmt.Sprint("i",
				i), pick("{}", `{nginx.ingress.kubernetes.io/rewrite-target: "/$2"}`, `{nginx.ingress.kubernetes.io/use-regex: "true"}`,
				"{traefik.ingress.kubernetes.io/router.middlewares: ns-strip@kubernetescrd}",
				"{traefik.ingress.kubernetes.io/router.priority: '30'}"),
				onHost(pick(host(), ""), at(pick("Exact", "Prefix", "ImplementationSpecific"), p(), fmt.Sprint("s", i)))),
			virtual(fmt.Sprintf("m/v%d@%d", i,
				random.IntN(3)), `hosts: ["`+pick(host(), "*")+`"], http: [{`+
				pick("", `match: [{uri: {`+pick("exact", "prefix")+`: "`+p()+`"}}], `)+
				pick("", `rewrite: {uri: /}, `, `timeout: 0s, `)+toHost(fmt.Sprint("s", i))+`}]`),
		)
	}
	return world(tb, documents...)
}

// FuzzAnswer checks that AnswerRequest does not panic or change the objects, that the answer does not depend on the order of objects, and
// that each error wraps an error of this package.
func FuzzAnswer(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, "x.b.c", "/a/b", "GET", "1")
		f.Add(seed, "a.b.c:80", "/a", "POST", "")
		f.Add(seed, "b.c", "/A/?q=/", "", "1")
	}
	f.Add(uint64(0), "*.c", "//", "\x00", "\xff")
	f.Fuzz(func(t *testing.T, seed uint64, host, path, method, header string) {
		w := crowd(t, seed)
		before, err := json.Marshal(w.objects)
		require.NoError(t, err)
		for _, e := range []Entrance{
			{Gateway: types.NamespacedName{Namespace: "g", Name: "public"}},
			{Gateway: types.NamespacedName{Namespace: "g", Name: "public"}, Port: 80},
			{IngressClass: "ours"}, {IstioGateway: "istio/public"},
		} {
			r := Request{Entrance: e, Host: host, Path: path, Method: method, Header: map[string]string{"h": header}}
			got := ask(t, w, r)
			require.False(t, strings.HasPrefix(got, "an unexpected error"), got)
		}
		after, err := json.Marshal(w.objects)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
	})
}

// FuzzMiddleware checks that passMiddleware accepts arbitrary Middlewares.
func FuzzMiddleware(f *testing.F) {
	f.Add(`{spec: {stripPrefix: {prefixes: [/a]}}}`, "/a/b")
	f.Add(`{spec: {replacePathRegex: {regex: "/a(.*)", replacement: "$1"}}}`, "/a/b")
	f.Add(`{spec: {stripPrefixRegex: {regex: [1]}}}`, "/a/b")
	f.Add(`{spec: []}`, "/")
	f.Fuzz(func(t *testing.T, text, path string) {
		m := &unstructured.Unstructured{}
		if yaml.Unmarshal([]byte(text), &m.Object) != nil || !isPlainPath(path) {
			t.Skip("the text is not a manifest, or data planes would normalize the path")
		}
		a := &Answer{Path: path}
		if err := passMiddleware(m, a); err != nil {
			require.True(t, errors.Is(err, ErrInvalid) || errors.Is(err, ErrNotModeled) || errors.Is(err, ErrRejected), err)
			return
		}
		require.True(t, isPlainPath(a.Path), a.Path)
	})
}
