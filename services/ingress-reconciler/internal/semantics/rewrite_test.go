package semantics

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRewriteOfIngressNginx(t *testing.T) {
	t.Parallel()
	const target = "nginx.ingress.kubernetes.io/rewrite-target: "
	// The examples of the controller's documentation of path priority.
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
		{name: "one expression makes all paths of the host expressions", world: priority, give: "/FOO/BARbecue", want: "ns/one:80 /FOO/BARbecue"},
		{name: "an expression that is longer as it is written", world: warning, give: "/foo/bar/bar", want: "ns/class:80 /foo/bar/bar"},
		{
			name:  "of two that are as long, the last by its letters",
			world: []string{ingress("i", "{nginx.ingress.kubernetes.io/use-regex: 'true'}", onHost("a.example.com", at("Prefix", "/f.o", "dot")+","+at("Prefix", "/fo.", "letter")))},
			give:  "/foo", want: "ns/letter:80 /foo",
		},
		{name: "a prefix is taken away", world: strip, give: "/m/chat/v1/models", want: "ns/s:80 /v1/models"},
		{name: "and its slash", world: strip, give: "/m/chat/", want: "ns/s:80 /"},
		{name: "alone", world: strip, give: "/m/chat", want: "ns/s:80 /"},
		{name: "only by elements", world: strip, give: "/m/chatter", want: "no route"},
		{name: "the rest of the path goes", world: []string{ingress("i", "{"+target+"/all}", onHost("a.example.com", at("Prefix", "/foo", "s")))}, give: "/foo/bar", want: "ns/s:80 /all"},
		{name: "a target that is the path", world: []string{ingress("i", "{"+target+"/}", onHost("a.example.com", at("Prefix", "/", "s")))}, give: "/foo", want: "ns/s:80 /foo"},
		{name: "a longer target that is the path", world: []string{ingress("i", "{"+target+"/foo}", onHost("a.example.com", at("Prefix", "/foo", "s")))}, give: "/foo", want: "unsupported"},
		{name: "a group that has matched nothing", world: []string{ingress("i", "{"+target+"/x$9}", onHost("a.example.com", at("Prefix", "/foo", "s")))}, give: "/foo", want: "ns/s:80 /x"},
		{name: "a variable", world: []string{ingress("i", "{"+target+"/$host}", onHost("a.example.com", at("Prefix", "/foo", "s")))}, give: "/foo", want: "unsupported"},
		{name: "the whole match", world: []string{ingress("i", "{"+target+"/$0}", onHost("a.example.com", at("Prefix", "/foo", "s")))}, give: "/foo", want: "unsupported"},
		{name: "another URL", world: []string{ingress("i", "{"+target+"'https://x'}", onHost("a.example.com", at("Prefix", "/foo", "s")))}, give: "/foo", want: "unsupported"},
		{name: "an expression of PCRE", world: []string{ingress("i", "{"+target+"/}", onHost("a.example.com", at("ImplementationSpecific", "/(?!foo)", "s")))}, give: "/foo", want: "unsupported"},
		{name: "neither yes nor no", world: []string{ingress("i", "{nginx.ingress.kubernetes.io/use-regex: maybe}", onHost("a.example.com", at("Prefix", "/", "s")))}, give: "/foo", want: "invalid"},
		{
			name:  "an expression of another host changes nothing",
			world: []string{ingress("i", "", onHost("a.example.com", at("Prefix", "/foo", "s"))), ingress("j", "{"+target+"/$1}", onHost("b.example.com", at("ImplementationSpecific", "/(.*)", "j")))},
			give:  "/FOO", want: "no route",
		},
		{
			name:  "what only concerns the time changes nothing",
			world: []string{ingress("i", "{nginx.ingress.kubernetes.io/proxy-read-timeout: '3600'}", onHost("a.example.com", at("Prefix", "/", "s")))},
			give:  "/foo", want: "ns/s:80 /foo",
		},
		{
			name:  "locations of one name",
			world: []string{ingress("i", "", onHost("a.example.com", at("Prefix", "/foo", "s")+","+at("ImplementationSpecific", "/foo/", "t")))},
			give:  "/foo/x", want: "ambiguous",
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

func TestTheOldestIngress(t *testing.T) {
	t.Parallel()
	dated := func(name, paths string) string {
		return `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: ` + meta(name) + `, spec: {ingressClassName: ours, rules: [{host: a.example.com, http: {paths: [` + paths + `]}}]}}`
	}
	tests := []struct{ name, controller, second, give, want string }{
		{name: "has its path", controller: "k8s.io/ingress-nginx", second: "2", give: "/x", want: "ns/older:80 /x"},
		{name: "leaves other paths", controller: "k8s.io/ingress-nginx", second: "2", give: "/y", want: "ns/younger:80 /y"},
		{name: "of one age, the first by name", controller: "k8s.io/ingress-nginx", second: "1", give: "/x", want: "ns/younger:80 /x"},
		{name: "has its path", controller: "nginx.org/ingress-controller", second: "2", give: "/x", want: "ns/older:80 /x"},
		{name: "has the host", controller: "nginx.org/ingress-controller", second: "2", give: "/y", want: "no route"},
		{name: "of one age, the first by uid", controller: "nginx.org/ingress-controller", second: "1", give: "/x", want: "ns/older:80 /x"},
	}
	for _, tt := range tests {
		t.Run(tt.name+" "+tt.controller, func(t *testing.T) {
			t.Parallel()
			w := world(t, class(tt.controller),
				dated("ns/a@"+tt.second, at("Prefix", "/x", "younger")+","+at("Prefix", "/y", "younger")), dated("ns/b@1", at("Prefix", "/x", "older")))
			w.Ingresses[0].UID = "z" // the order of names is not that of uids
			assert.Equal(t, tt.want, ask(t, w, get(atOurClass, "a.example.com"+tt.give)))
		})
	}
}

// The examples are those of the controller's documentation.
func TestRewriteOfNginxOrg(t *testing.T) {
	t.Parallel()
	const both = "serviceName=tea rewrite=/;serviceName=coffee rewrite=/beans/"
	paths := at("Prefix", "/tea/", "tea") + "," + at("Prefix", "/coffee/", "coffee") + "," + at("Prefix", "/water", "water") + "," + at("Exact", "/exact", "tea")
	tests := []struct{ name, annotation, give, want string }{
		{name: "to the root", annotation: both, give: "/tea/", want: "ns/tea:80 /"},
		{name: "below the root", annotation: both, give: "/tea/abc", want: "ns/tea:80 /abc"},
		{name: "to a path", annotation: both, give: "/coffee/", want: "ns/coffee:80 /beans/"},
		{name: "below a path", annotation: both, give: "/coffee/abc", want: "ns/coffee:80 /beans/abc"},
		{name: "nginx sends the client on", annotation: both, give: "/coffee", want: "redirected"},
		{name: "another Service", annotation: both, give: "/water/abc", want: "ns/water:80 /water/abc"},
		{name: "an exact path", annotation: both, give: "/exact", want: "ns/tea:80 /"},
		{name: "two slashes where the path has none", annotation: "serviceName=water rewrite=/", give: "/water/abc", want: "ns/water:80 //abc"},
		{name: "no rewrite", annotation: "serviceName=tea", give: "/tea/", want: "invalid"},
		{name: "no Service", annotation: "rewrite=/ serviceName=tea", give: "/tea/", want: "invalid"},
		{name: "a Service twice", annotation: "serviceName=tea rewrite=/;serviceName=tea rewrite=/x", give: "/tea/", want: "invalid"},
		{name: "a variable", annotation: "serviceName=tea rewrite=/$uri", give: "/tea/", want: "invalid"},
		{name: "nothing", annotation: "", give: "/tea/", want: "invalid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, class("nginx.org/ingress-controller"), ingress("i", "{nginx.org/rewrites: '"+tt.annotation+"'}", onHost("a.example.com", paths)))
			assert.Equal(t, tt.want, ask(t, w, get(atOurClass, "a.example.com"+tt.give)))
		})
	}
}

func TestRewriteOfHAProxyOrg(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, annotation, give, want string }{
		{name: "all paths", annotation: `/`, give: "/bar", want: "ns/s:80 /"},
		{name: "a prefix is added", annotation: `(.*) /foo\1`, give: "/bar?q=1", want: "ns/s:80 /foo/bar?q=1"},
		{name: "a suffix is added", annotation: `([^?]*)(\?(.*))? \1/foo\2`, give: "/bar?q=1", want: "ns/s:80 /bar/foo?q=1"},
		{name: "a prefix is taken away", annotation: `/foo/(.*) /\1`, give: "/foo/bar", want: "ns/s:80 /bar"},
		{name: "what does not match stays", annotation: `/foo/(.*) /\1`, give: "/bar", want: "ns/s:80 /bar"},
		{name: "what is before the match goes", annotation: `/foo/(.*) /\1`, give: "/x/foo/bar", want: "ns/s:80 /bar"},
		{name: "the whole match", annotation: `/foo /x\0`, give: "/foo/bar", want: "ns/s:80 /x/foo"},
		{name: "one line after the other", annotation: "/foo/(.*) /\\1\n/bar/(.*) /baz/\\1", give: "/foo/bar/x", want: "ns/s:80 /baz/x"},
		{name: "three words", annotation: `/foo /bar /baz`, give: "/foo", want: "invalid"},
		{name: "a relative path", annotation: `/foo(.*) x\1`, give: "/foo/bar", want: "rejected"},
		{name: "a sample", annotation: `/foo /%[path]`, give: "/foo", want: "unsupported"},
		{name: "an escape", annotation: `/foo /\a`, give: "/foo", want: "unsupported"},
		{name: "what is no expression", annotation: `/( /`, give: "/foo", want: "unsupported"},
		{name: "blank", annotation: ` `, give: "/foo", want: "ns/s:80 /foo"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, class("haproxy.org/ingress-controller"), ingress("i", "", onHost("a.example.com", at("Prefix", "/", "s"))))
			w.Ingresses[0].Annotations = map[string]string{annotationPathRewrite: tt.annotation}
			assert.Equal(t, tt.want, ask(t, w, get(atOurClass, "a.example.com"+tt.give)))
		})
	}
}

// The examples are those of the controller's documentation.
func TestRewriteOfHAProxyIngress(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, kind, path, target, give, want string }{
		{name: "to the root", kind: "ImplementationSpecific", path: "/abc", target: "/", give: "/abc", want: "ns/s:80 /"},
		{name: "to the root, with a slash", kind: "ImplementationSpecific", path: "/abc", target: "/", give: "/abc/", want: "ns/s:80 /"},
		{name: "below the root", kind: "ImplementationSpecific", path: "/abc", target: "/", give: "/abc/x", want: "ns/s:80 /x"},
		{name: "to a path", kind: "ImplementationSpecific", path: "/abc", target: "/y", give: "/abc", want: "ns/s:80 /y"},
		{name: "to a path, with a slash", kind: "ImplementationSpecific", path: "/abc", target: "/y", give: "/abc/", want: "ns/s:80 /y/"},
		{name: "below a path", kind: "ImplementationSpecific", path: "/abc", target: "/y", give: "/abc/x", want: "ns/s:80 /y/x"},
		{name: "a slash that is not there", kind: "ImplementationSpecific", path: "/abc/", target: "/", give: "/abc", want: "no route"},
		{name: "from a slash to the root", kind: "ImplementationSpecific", path: "/abc/", target: "/", give: "/abc/", want: "ns/s:80 /"},
		{name: "from a slash, below the root", kind: "ImplementationSpecific", path: "/abc/", target: "/", give: "/abc/x", want: "ns/s:80 /x"},
		{name: "from a slash, below a path", kind: "Prefix", path: "/abc/", target: "/y", give: "/abc/x", want: "ns/s:80 /y/x"},
		{name: "a prefix without the slash that it has stays", kind: "Prefix", path: "/abc/", target: "/", give: "/abc", want: "ns/s:80 /abc"},
		{name: "another case stays", kind: "ImplementationSpecific", path: "/abc", target: "/", give: "/ABC/x", want: "ns/s:80 /ABC/x"},
		{name: "a dot is a dot", kind: "Prefix", path: "/a.c", target: "/", give: "/a.c/x", want: "ns/s:80 /x"},
		{name: "a group", kind: "Prefix", path: "/abc", target: `/\1`, give: "/abc", want: "unsupported"},
		{name: "a relative target", kind: "Prefix", path: "/abc", target: `y`, give: "/abc", want: "unsupported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, class("haproxy-ingress.github.io/controller"),
				ingress("i", "{haproxy-ingress.github.io/rewrite-target: '"+tt.target+"'}", onHost("a.example.com", at(tt.kind, tt.path, "s"))))
			assert.Equal(t, tt.want, ask(t, w, get(atOurClass, "a.example.com"+tt.give)))
		})
	}
}

func TestRewriteOfTraefik(t *testing.T) {
	t.Parallel()
	const one = "ns-one@kubernetescrd"
	tests := []struct{ name, annotation, one, give, want string }{
		{name: "a prefix", annotation: one, one: `{stripPrefix: {prefixes: [/x, /foo]}}`, give: "/foo/bar", want: "ns/s:80 /bar"},
		{name: "a prefix that is all", annotation: one, one: `{stripPrefix: {prefixes: [/foo]}}`, give: "/foo", want: "ns/s:80 /"},
		{name: "a prefix with its slash", annotation: one, one: `{stripPrefix: {prefixes: [/foo/]}}`, give: "/foo/bar", want: "ns/s:80 /bar"},
		{name: "a prefix of letters", annotation: one, one: `{stripPrefix: {prefixes: [/foo]}}`, give: "/foobar", want: "ns/s:80 /bar"},
		{name: "another prefix", annotation: one, one: `{stripPrefix: {prefixes: [/foo]}}`, give: "/bar", want: "ns/s:80 /bar"},
		{name: "only the first prefix", annotation: one, one: `{stripPrefix: {prefixes: [/foo, /bar]}}`, give: "/foo/bar", want: "ns/s:80 /bar"},
		{name: "an expression of a prefix", annotation: one, one: `{stripPrefixRegex: {regex: ["/[a-z]+/"]}}`, give: "/foo/bar", want: "ns/s:80 /bar"},
		{name: "an expression that is not at the beginning", annotation: one, one: `{stripPrefixRegex: {regex: ["/b[a-z]+"]}}`, give: "/foo/bar", want: "ns/s:80 /foo/bar"},
		{name: "a replacement", annotation: one, one: `{replacePathRegex: {regex: "^/m/[^/]+(/|$)(.*)", replacement: "/$2"}}`, give: "/m/chat/v1", want: "ns/s:80 /v1"},
		{name: "a replacement with braces", annotation: one, one: `{replacePathRegex: {regex: "^/m(.*)", replacement: "/x${1}"}}`, give: "/m/chat", want: "ns/s:80 /x/chat"},
		{name: "a replacement of what is not there", annotation: one, one: `{replacePathRegex: {regex: "^/n(.*)", replacement: "/x"}}`, give: "/m", want: "ns/s:80 /m"},
		{name: "a replacement with two slashes", annotation: one, one: `{replacePathRegex: {regex: "^/m(.*)", replacement: "/$1"}}`, give: "/m/chat", want: "rejected"},
		{name: "a replacement by nothing", annotation: one, one: `{replacePathRegex: {regex: ".*"}}`, give: "/m", want: "ns/s:80 /"},
		{name: "a replacement with a query", annotation: one, one: `{replacePathRegex: {regex: ".*", replacement: "/?a"}}`, give: "/m", want: "unsupported"},
		{name: "two after each other", annotation: one + ", ns-two@kubernetescrd", one: `{stripPrefix: {prefixes: [/foo]}}`, give: "/foo/two/bar", want: "ns/s:80 /bar"},
		{name: "one that is not there", annotation: "ns-three@kubernetescrd", one: `{}`, give: "/foo", want: "not found"},
		{name: "one whose name two have", annotation: "a-b-c@kubernetescrd", one: `{}`, give: "/foo", want: "ambiguous"},
		{name: "one of a file", annotation: "one@file", one: `{}`, give: "/foo", want: "unsupported"},
		{name: "another kind", annotation: one, one: `{addPrefix: {prefix: /foo}}`, give: "/foo", want: "unsupported"},
		{name: "no kind", annotation: one, one: `{}`, give: "/foo", want: "invalid"},
		{name: "two kinds", annotation: one, one: `{stripPrefix: {prefixes: [/foo]}, addPrefix: {prefix: /foo}}`, give: "/foo", want: "invalid"},
		{name: "another form", annotation: one, one: `{stripPrefix: [/foo]}`, give: "/foo", want: "invalid"},
		{name: "prefixes of another form", annotation: one, one: `{stripPrefix: {prefixes: /foo}}`, give: "/foo", want: "invalid"},
		{name: "a field more", annotation: one, one: `{stripPrefix: {prefixes: [/foo], forceSlash: true}}`, give: "/foo", want: "unsupported"},
		{name: "a field more of a replacement", annotation: one, one: `{replacePathRegex: {regex: a, replacement: b, more: c}}`, give: "/foo", want: "unsupported"},
		{name: "a replacement without an expression", annotation: one, one: `{replacePathRegex: {replacement: b}}`, give: "/foo", want: "invalid"},
		{name: "what is no expression", annotation: one, one: `{stripPrefixRegex: {regex: ["("]}}`, give: "/foo", want: "unsupported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			middleware := func(namespace, name, spec string) string {
				return `{apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: {namespace: ` + namespace + `, name: ` + name + `}, spec: ` + spec + `}`
			}
			w := world(t, class("traefik.io/ingress-controller"), middleware("ns", "one", tt.one), middleware("ns", "two", `{stripPrefix: {prefixes: [/two]}}`),
				middleware("a", "b-c", `{}`), middleware("a-b", "c", `{}`),
				ingress("i", "{traefik.ingress.kubernetes.io/router.middlewares: '"+tt.annotation+"'}", onHost("a.example.com", at("Prefix", "/", "s"))))
			assert.Equal(t, tt.want, ask(t, w, get(atOurClass, "a.example.com"+tt.give)))
		})
	}
}
