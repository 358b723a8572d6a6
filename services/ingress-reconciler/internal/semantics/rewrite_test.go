package semantics

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRewriteOfNGINX(t *testing.T) {
	t.Parallel()
	const target = "nginx.ingress.kubernetes.io/rewrite-target: "
	// These examples are from the controller's documentation of path priority.
	priority := []string{
		ingress("one", "", onHost("a.example.com", at("Prefix", "/foo/bar", "one")+","+at("Prefix", "/foo/bar/", "two"))),
		ingress("two", "{"+target+"/$1}", onHost("a.example.com", at("ImplementationSpecific", "/foo/bar/(.+)", "three"))),
	}
	warning := []string{ingress("i", "{nginx.ingress.kubernetes.io/use-regex: 'true'}", onHost("a.example.com",
		at("Prefix", "/foo/bar/bar", "literal")+","+at("ImplementationSpecific", "/foo/bar/[A-Z0-9]{3}", "class")))}
	strip := []string{ingress("i", "{"+target+"/$2}", onHost("a.example.com", at("ImplementationSpecific", "/m/chat(/|$)(.*)", "s")))}
	tests := []struct {
		name  string
		world []string
		give  string
		want  string
	}{
		{name: "below both", world: priority, give: "/foo/bar/1", want: "ns/three:80 /1"},
		{name: "with a slash", world: priority, give: "/foo/bar/", want: "ns/two:80 /foo/bar/"},
		{name: "without", world: priority, give: "/foo/bar", want: "ns/one:80 /foo/bar"},
		{
			name: "one expression makes all paths of the host expressions", world: priority, give: "/FOO/BARbecue",
			want: "ns/one:80 /FOO/BARbecue",
		},
		{name: "an expression that is longer as it is written", world: warning, give: "/foo/bar/bar", want: "ns/class:80 /foo/bar/bar"},
		{
			name: "of two that are as long, either",
			world: []string{
				ingress("i", "{nginx.ingress.kubernetes.io/use-regex: 'true'}",
					onHost("a.example.com", at("Prefix", "/f.o", "dot")+","+at("Prefix", "/fo.", "letter"))),
			},
			give: "/foo", want: "ambiguous",
		},
		{name: "a prefix is taken away", world: strip, give: "/m/chat/v1/models", want: "ns/s:80 /v1/models"},
		{name: "and its slash", world: strip, give: "/m/chat/", want: "ns/s:80 /"},
		{name: "alone", world: strip, give: "/m/chat", want: "ns/s:80 /"},
		{name: "only by elements", world: strip, give: "/m/chatter", want: "no route"},
		{
			name:  "the rest of the path goes or stays",
			world: []string{ingress("i", "{"+target+"/all}", onHost("a.example.com", at("Prefix", "/foo", "s")))}, give: "/foo/bar",
			want: "ambiguous",
		},
		{
			name:  "a target that is the path",
			world: []string{ingress("i", "{"+target+"/}", onHost("a.example.com", at("Prefix", "/", "s")))}, give: "/foo",
			want: "ns/s:80 /foo",
		},
		{
			name:  "a longer target that is the path",
			world: []string{ingress("i", "{"+target+"/foo}", onHost("a.example.com", at("Prefix", "/foo", "s")))}, give: "/foo",
			want: "not modeled",
		},
		{
			name:  "a group that has matched nothing",
			world: []string{ingress("i", "{"+target+"/x$9}", onHost("a.example.com", at("Prefix", "/foo", "s")))}, give: "/foo",
			want: "ns/s:80 /x",
		},
		{
			name: "a variable", world: []string{ingress("i", "{"+target+"/$host}", onHost("a.example.com", at("Prefix", "/foo", "s")))},
			give: "/foo", want: "not modeled",
		},
		{
			name: "the whole match", world: []string{ingress("i", "{"+target+"/$0}", onHost("a.example.com", at("Prefix", "/foo", "s")))},
			give: "/foo", want: "not modeled",
		},
		{
			name:  "another URL",
			world: []string{ingress("i", "{"+target+"'https://x'}", onHost("a.example.com", at("Prefix", "/foo", "s")))}, give: "/foo",
			want: "not modeled",
		},
		{
			name:  "an expression of PCRE",
			world: []string{ingress("i", "{"+target+"/}", onHost("a.example.com", at("ImplementationSpecific", "/(?!foo)", "s")))},
			give:  "/foo", want: "not modeled",
		},
		{
			name: "neither yes nor no",
			world: []string{
				ingress("i", "{nginx.ingress.kubernetes.io/use-regex: maybe}", onHost("a.example.com", at("Prefix", "/", "s"))),
			},
			give: "/foo", want: "invalid",
		},
		{
			name: "an expression of another host changes nothing",
			world: []string{
				ingress("i", "", onHost("a.example.com", at("Prefix", "/foo", "s"))),
				ingress("j", "{"+target+"/$1}", onHost("b.example.com", at("ImplementationSpecific", "/(.*)", "j"))),
			},
			give: "/FOO", want: "no route",
		},
		{
			name: "what only concerns the time changes nothing",
			world: []string{
				ingress("i", "{nginx.ingress.kubernetes.io/proxy-read-timeout: '3600'}", onHost("a.example.com", at("Prefix", "/", "s"))),
			},
			give: "/foo", want: "ns/s:80 /foo",
		},
		{
			name: "locations of one name",
			world: []string{
				ingress("i", "", onHost("a.example.com", at("Prefix", "/foo", "s")+","+at("ImplementationSpecific", "/foo/", "t"))),
			},
			give: "/foo/x", want: "ambiguous",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, append(tt.world, class("k8s.io/ingress-nginx"))...)
			assert.Equal(t, tt.want, ask(t, w, get(atOurClass, "a.example.com"+tt.give)))
		})
	}
}

// If two Ingresses have the same path, ingress-nginx uses the older. If both have the same age, it uses the last by name.
func TestOldestOfEach(t *testing.T) {
	t.Parallel()
	f := world(t, class("k8s.io/ingress-nginx"), ingress("a", "", onHost("a.example.com", at("Prefix", "/", "a"))),
		ingress("c", "", onHost("a.example.com", at("Prefix", "/", "c"))),
		ingress("b", "", onHost("a.example.com", at("ImplementationSpecific", "/", "b")+","+at("Exact", "/", "exact"))))
	f.ingresses[0].CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	var got []string
	for _, l := range oldestOfEach(f.byClass["ours"].locationsFor("a.example.com")) {
		got = append(got, l.backend.Service.Name)
	}
	assert.Equal(t, []string{"c", "exact"}, got)
}

func TestRewriteOfTraefik(t *testing.T) {
	t.Parallel()
	const one = "ns-one@kubernetescrd"
	tests := []struct{ name, annotation, one, give, want string }{
		{name: "a prefix", annotation: one, one: `{stripPrefix: {prefixes: [/x, /foo]}}`, give: "/foo/bar", want: "ns/s:80 /bar"},
		{name: "a prefix that is all", annotation: one, one: `{stripPrefix: {prefixes: [/foo]}}`, give: "/foo", want: "ns/s:80 /"},
		{
			name: "a prefix with its slash", annotation: one, one: `{stripPrefix: {prefixes: [/foo/]}}`, give: "/foo/bar",
			want: "ns/s:80 /bar",
		},
		{name: "a prefix of letters", annotation: one, one: `{stripPrefix: {prefixes: [/foo]}}`, give: "/foobar", want: "ns/s:80 /bar"},
		{name: "another prefix", annotation: one, one: `{stripPrefix: {prefixes: [/foo]}}`, give: "/bar", want: "ns/s:80 /bar"},
		{
			name: "only the first prefix", annotation: one, one: `{stripPrefix: {prefixes: [/foo, /bar]}}`, give: "/foo/bar",
			want: "ns/s:80 /bar",
		},
		{
			name: "an expression of a prefix", annotation: one, one: `{stripPrefixRegex: {regex: ["/[a-z]+/"]}}`, give: "/foo/bar",
			want: "ns/s:80 /bar",
		},
		{
			name: "an expression that is not at the beginning", annotation: one, one: `{stripPrefixRegex: {regex: ["/b[a-z]+"]}}`,
			give: "/foo/bar", want: "ns/s:80 /foo/bar",
		},
		{
			name: "a replacement", annotation: one, one: `{replacePathRegex: {regex: "^/m/[^/]+(/|$)(.*)", replacement: "/$2"}}`,
			give: "/m/chat/v1", want: "ns/s:80 /v1",
		},
		{
			name: "a replacement with braces", annotation: one, one: `{replacePathRegex: {regex: "^/m(.*)", replacement: "/x${1}"}}`,
			give: "/m/chat", want: "ns/s:80 /x/chat",
		},
		{
			name: "a replacement of what is not there", annotation: one, one: `{replacePathRegex: {regex: "^/n(.*)", replacement: "/x"}}`,
			give: "/m", want: "ns/s:80 /m",
		},
		{
			name: "a replacement with two slashes", annotation: one, one: `{replacePathRegex: {regex: "^/m(.*)", replacement: "/$1"}}`,
			give: "/m/chat", want: "rejected",
		},
		{name: "a replacement by nothing", annotation: one, one: `{replacePathRegex: {regex: ".*"}}`, give: "/m", want: "ns/s:80 /"},
		{
			name: "a replacement with a query", annotation: one, one: `{replacePathRegex: {regex: ".*", replacement: "/?a"}}`, give: "/m",
			want: "not modeled",
		},
		{
			name: "two after each other", annotation: one + ", ns-two@kubernetescrd", one: `{stripPrefix: {prefixes: [/foo]}}`,
			give: "/foo/two/bar", want: "ns/s:80 /bar",
		},
		{name: "one that is not there", annotation: "ns-three@kubernetescrd", one: `{}`, give: "/foo", want: "not found"},
		{name: "one whose name two have", annotation: "a-b-c@kubernetescrd", one: `{}`, give: "/foo", want: "ambiguous"},
		{name: "one of a file", annotation: "one@file", one: `{}`, give: "/foo", want: "not modeled"},
		{name: "another kind", annotation: one, one: `{addPrefix: {prefix: /foo}}`, give: "/foo", want: "not modeled"},
		{name: "no kind", annotation: one, one: `{}`, give: "/foo", want: "invalid"},
		{
			name: "two kinds", annotation: one, one: `{stripPrefix: {prefixes: [/foo]}, addPrefix: {prefix: /foo}}`, give: "/foo",
			want: "invalid",
		},
		{name: "another form", annotation: one, one: `{stripPrefix: [/foo]}`, give: "/foo", want: "invalid"},
		{name: "prefixes of another form", annotation: one, one: `{stripPrefix: {prefixes: /foo}}`, give: "/foo", want: "invalid"},
		{
			name: "a field more", annotation: one, one: `{stripPrefix: {prefixes: [/foo], forceSlash: true}}`, give: "/foo",
			want: "not modeled",
		},
		{
			name: "a field more of a replacement", annotation: one, one: `{replacePathRegex: {regex: a, replacement: b, more: c}}`,
			give: "/foo", want: "not modeled",
		},
		{
			name: "a replacement without an expression", annotation: one, one: `{replacePathRegex: {replacement: b}}`, give: "/foo",
			want: "invalid",
		},
		{name: "what is no expression", annotation: one, one: `{stripPrefixRegex: {regex: ["("]}}`, give: "/foo", want: "not modeled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			middleware := func(namespace, name, spec string) string {
				return `{apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: {namespace: ` + namespace + `, name: ` + name +
					`}, spec: ` + spec + `}`
			}
			w := world(t, class("traefik.io/ingress-controller"), middleware("ns", "one", tt.one),
				middleware("ns", "two", `{stripPrefix: {prefixes: [/two]}}`), middleware("a", "b-c", `{}`), middleware("a-b", "c", `{}`),
				ingress("i", "{traefik.ingress.kubernetes.io/router.middlewares: '"+tt.annotation+"'}",
					onHost("a.example.com", at("Prefix", "/", "s"))))
			assert.Equal(t, tt.want, ask(t, w, get(atOurClass, "a.example.com"+tt.give)))
		})
	}
}
