package semantics

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

var atThePublicGateway = Entrance{Gateway: types.NamespacedName{Namespace: "g", Name: "public"}}

// gateway returns Gateway g/public with listeners.
func gateway(listeners string) string {
	return `{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: g, name: public}, spec: {gatewayClassName: ` +
		`c, listeners: [` + listeners + `]}}`
}

const everywhere = `{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}`

// route returns an HTTPRoute at Gateway g/public, with the metadata of its name.
func route(name, spec string) string {
	return `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: ` + meta(name) +
		`, spec: {parentRefs: [{namespace: g, name: public}], ` + spec + `}}`
}

// meta returns the metadata for "namespace/name", or for "namespace/name@second" with the second of its creation.
func meta(name string) string {
	name, second, dated := strings.Cut(name, "@")
	namespace, name, _ := strings.Cut(name, "/")
	if !dated {
		return `{namespace: ` + namespace + `, name: ` + name + `}`
	}
	return `{namespace: ` + namespace + `, name: ` + name + `, uid: ` + name + `, creationTimestamp: "2026-01-01T00:00:0` + second + `Z"}`
}

// to returns the backendRefs of a rule.
func to(service string) string { return `backendRefs: [{name: ` + service + `, port: 80}]` }

func prefix(path string) string { return `{path: {type: PathPrefix, value: ` + path + `}}` }

func TestGatewayAPIPrecedence(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		routes []string
		give   Request
		want   string
	}{
		{
			name: "any one of the matches is enough",
			routes: []string{
				route("m/r",
					`rules: [{matches: [{path: {value: /foo}, headers: [{name: version, value: v2}]}, {path: {value: /v2/foo}}], `+to("s")+
						`}]`),
			},
			give: Request{Path: "/v2/foo"}, want: "m/s:80 /v2/foo",
		},
		{
			name: "all of a match are needed",
			routes: []string{
				route("m/r",
					`rules: [{matches: [{path: {value: /foo}, headers: [{name: version, value: v2}]}, {path: {value: /v2/foo}}], `+to("s")+
						`}]`),
			},
			give: Request{Path: "/foo"}, want: "no route",
		},
		{
			name:   "header in any case",
			routes: []string{route("m/r", `rules: [{matches: [{headers: [{name: version, value: v2}]}], `+to("s")+`}]`)},
			give:   Request{Path: "/", Header: map[string]string{"VERSION": "v2"}}, want: "m/s:80 /",
		},
		{
			name:   "of two headers of one name the first counts",
			routes: []string{route("m/r", `rules: [{matches: [{headers: [{name: v, value: "1"}, {name: V, value: "2"}]}], `+to("s")+`}]`)},
			give:   Request{Path: "/", Header: map[string]string{"v": "1"}}, want: "m/s:80 /",
		},
		{
			name: "without rules there is one without a backend", routes: []string{route("m/r", `hostnames: [a.example.com]`)},
			give: Request{Path: "/x"}, want: "no backend",
		},
		{
			name: "a longer host name before a longer path",
			routes: []string{
				route("m/wild", `hostnames: ["*.example.com"], rules: [{matches: [`+prefix("/foo")+`], `+to("wild")+`}]`),
				route("m/full", `hostnames: [a.example.com], rules: [{`+to("full")+`}]`),
			},
			give: Request{Path: "/foo"}, want: "m/full:80 /foo",
		},
		{
			name: "a name before a longer wildcard",
			routes: []string{
				route("m/wild", `hostnames: ["*.example.com", a.example.com], rules: [{`+to("both")+`}]`),
				route("m/a", `hostnames: ["*.example.com"], rules: [{`+to("wild")+`}]`),
			},
			give: Request{Path: "/foo"}, want: "m/both:80 /foo",
		},
		{
			name: "the longer of two wildcards",
			routes: []string{
				route("m/short", `hostnames: ["*.com"], rules: [{`+to("short")+`}]`),
				route("m/long", `hostnames: ["*.example.com"], rules: [{`+to("long")+`}]`),
			},
			give: Request{Path: "/foo"}, want: "m/long:80 /foo",
		},
		{
			name: "any host name before none",
			routes: []string{
				route("m/none", `rules: [{`+to("none")+`}]`), route("m/wild", `hostnames: ["*.com"], rules: [{`+to("wild")+`}]`),
			},
			give: Request{Path: "/foo"}, want: "m/wild:80 /foo",
		},
		{
			name: "what the more specific host name leaves is nobody's for certain",
			routes: []string{
				route("m/none", `rules: [{`+to("none")+`}]`),
				route("m/full", `hostnames: [a.example.com], rules: [{matches: [`+prefix("/foo")+`], `+to("full")+`}]`),
			},
			give: Request{Path: "/bar"}, want: "ambiguous",
		},
		{
			name: "exact before prefix",
			routes: []string{
				route("m/r",
					`rules: [{matches: [`+prefix("/foo")+`], `+to("prefix")+`}, {matches: [{path: {type: Exact, value: /foo}}], `+
						to("exact")+`}]`),
			},
			give: Request{Path: "/foo"}, want: "m/exact:80 /foo",
		},
		{
			name:   "exact is exact",
			routes: []string{route("m/r", `rules: [{matches: [{path: {type: Exact, value: /foo}}], `+to("exact")+`}]`)},
			give:   Request{Path: "/foo/"}, want: "no route",
		},
		{
			name: "the longest prefix",
			routes: []string{
				route("m/r",
					`rules: [{matches: [`+prefix("/")+`], `+to("root")+`}, {matches: [`+prefix("/foo")+`], `+to("foo")+`}, {matches: [`+
						prefix("/foo/bar")+`], `+to("bar")+`}]`),
			},
			give: Request{Path: "/foo/bar/x"}, want: "m/bar:80 /foo/bar/x",
		},
		{
			name:   "a prefix is of elements",
			routes: []string{route("m/r", `rules: [{matches: [`+prefix("/foo")+`], `+to("foo")+`}]`)},
			give:   Request{Path: "/foobar"}, want: "no route",
		},
		{
			name:   "a slash at the end of a prefix is nothing",
			routes: []string{route("m/r", `rules: [{matches: [`+prefix("/foo/")+`], `+to("foo")+`}]`)},
			give:   Request{Path: "/foo"}, want: "m/foo:80 /foo",
		},
		{
			name: "a prefix and an expression, which Envoy Gateway prefers",
			routes: []string{
				route("m/r",
					`rules: [{matches: [{path: {type: RegularExpression, value: "/f.*"}}], `+to("expression")+`}, {matches: [`+prefix("/")+
						`], `+to("prefix")+`}]`),
			},
			give: Request{Path: "/foo"}, want: "ambiguous",
		},
		{
			name: "an expression is one of the whole path",
			routes: []string{
				route("m/r", `rules: [{matches: [{path: {type: RegularExpression, value: "/fo|/f"}}], `+to("expression")+`}]`),
			},
			give: Request{Path: "/foo"}, want: "no route",
		},
		{
			name: "what is no expression",
			routes: []string{
				route("m/r", `rules: [{matches: [{path: {type: RegularExpression, value: "/(?!a)"}}], `+to("expression")+`}]`),
			},
			give: Request{Path: "/foo"}, want: "not modeled",
		},
		{
			name: "a longer path before a method",
			routes: []string{
				route("m/r",
					`rules: [{matches: [{path: {value: /foo}, method: GET}], `+to("method")+`}, {matches: [`+prefix("/foo/bar")+`], `+
						to("path")+`}]`),
			},
			give: Request{Path: "/foo/bar"}, want: "m/path:80 /foo/bar",
		},
		{
			name: "a method and a header, which Envoy Gateway counts alike",
			routes: []string{
				route("m/r",
					`rules: [{matches: [{headers: [{name: a, value: b}]}], `+to("header")+`}, {matches: [{method: POST}], `+to("method")+
						`}]`),
			},
			give: Request{Path: "/", Method: "POST", Header: map[string]string{"a": "b"}}, want: "ambiguous",
		},
		{
			name:   "a method before fewer headers",
			routes: []string{route("m/r", `rules: [{matches: [{}], `+to("all")+`}, {matches: [{method: POST}], `+to("method")+`}]`)},
			give:   Request{Path: "/", Method: "POST", Header: map[string]string{"a": "b"}}, want: "m/method:80 /",
		},
		{
			name:   "another method",
			routes: []string{route("m/r", `rules: [{matches: [{method: POST}], `+to("method")+`}]`)},
			give:   Request{Path: "/"}, want: "no route",
		},
		{
			name: "most headers, before most of the query",
			routes: []string{
				route("m/r",
					`rules: [{matches: [{queryParams: [{name: q, value: "1"}, {name: r, value: "1"}], headers: [{name: a, value: b}]}], `+
						to("query")+`}, {matches: [{headers: [{name: a, value: b}, {name: c, value: "d.*", type: RegularExpression}]}], `+
						to("headers")+`}]`),
			},
			give: Request{Path: "/?q=1&r=1", Header: map[string]string{"a": "b", "c": "de"}}, want: "m/headers:80 /?q=1&r=1",
		},
		{
			name: "most of the query",
			routes: []string{
				route("m/r",
					`rules: [{matches: [{queryParams: [{name: q, value: "1"}]}], `+to("one")+
						`}, {matches: [{queryParams: [{name: q, value: "1"}, {name: r, value: "[0-9]", type: RegularExpression}]}], `+
						to("two")+`}]`),
			},
			give: Request{Path: "/?q=1&r=1"}, want: "m/two:80 /?q=1&r=1",
		},
		{
			name:   "a parameter that is there twice",
			routes: []string{route("m/r", `rules: [{matches: [{queryParams: [{name: q, value: "1"}]}], `+to("one")+`}]`)},
			give:   Request{Path: "/?q=1&q=2"}, want: "ambiguous",
		},
		{
			name:   "the older route",
			routes: []string{route("m/a@2", `rules: [{`+to("younger")+`}]`), route("m/b@1", `rules: [{`+to("older")+`}]`)},
			give:   Request{Path: "/"}, want: "m/older:80 /",
		},
		{
			name:   "the first by namespace and name",
			routes: []string{route("m/a@1", `rules: [{`+to("second")+`}]`), route("l/b@1", `rules: [{`+to("first")+`}]`)},
			give:   Request{Path: "/"}, want: "l/first:80 /",
		},
		{
			name: "the first rule",
			routes: []string{
				route("m/r",
					`rules: [{matches: [{path: {value: /a}}, {path: {value: /}}], `+to("first")+`}, {matches: [{path: {value: /}}], `+
						to("second")+`}]`),
			},
			give: Request{Path: "/"}, want: "m/first:80 /",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, append(tt.routes, gateway(everywhere))...)
			tt.give.Entrance, tt.give.Host = atThePublicGateway, "a.example.com"
			assert.Equal(t, tt.want, ask(t, w, tt.give))
		})
	}
}

func TestGatewayAPIAttachment(t *testing.T) {
	t.Parallel()
	const parent = `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: m, name: r}, spec: {parentRefs: [`
	const rules = `], rules: [{backendRefs: [{name: s, port: 80}]}]}}`
	const labelled = `{apiVersion: v1, kind: Namespace, metadata: {name: m, labels: {team: blue}}}`
	const selecting = `{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {`
	tests := []struct {
		name, listeners, parents, more string
		port                           int32
		want                           string
	}{
		{name: "the Gateway", listeners: everywhere, parents: `{namespace: g, name: public}`, want: "m/s:80 /"},
		{
			name: "the Gateway in full", listeners: everywhere,
			parents: `{group: gateway.networking.k8s.io, kind: Gateway, namespace: g, name: public}`, want: "m/s:80 /",
		},
		{name: "one of several", listeners: everywhere, parents: `{name: other}, {namespace: g, name: public}`, want: "m/s:80 /"},
		{name: "a Gateway of the route's namespace", listeners: everywhere, parents: `{name: public}`, want: "no route"},
		{name: "another Gateway", listeners: everywhere, parents: `{namespace: g, name: other}`, want: "no route"},
		{name: "a Service", listeners: everywhere, parents: `{group: "", kind: Service, namespace: g, name: public}`, want: "no route"},
		{name: "the listener by name", listeners: everywhere, parents: `{namespace: g, name: public, sectionName: http}`, want: "m/s:80 /"},
		{
			name: "another listener by name", listeners: everywhere, parents: `{namespace: g, name: public, sectionName: https}`,
			want: "no route",
		},
		{name: "the listener by port", listeners: everywhere, parents: `{namespace: g, name: public, port: 80}`, want: "m/s:80 /"},
		{name: "another port", listeners: everywhere, parents: `{namespace: g, name: public, port: 81}`, want: "no route"},
		{
			name: "by default only from its own namespace", listeners: `{name: http, port: 80, protocol: HTTP}`,
			parents: `{namespace: g, name: public}`, want: "no route",
		},
		{
			name: "from none", listeners: `{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: None}}}`,
			parents: `{namespace: g, name: public}`, want: "no route",
		},
		{
			name:      "from who knows where",
			listeners: `{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Elsewhere}}}`,
			parents:   `{namespace: g, name: public}`, want: "not modeled",
		},
		{
			name: "from namespaces with a label", listeners: selecting + `team: blue}}}}}`, parents: `{namespace: g, name: public}`,
			more: labelled, want: "m/s:80 /",
		},
		{
			name: "from namespaces with another label", listeners: selecting + `team: red}}}}}`, parents: `{namespace: g, name: public}`,
			more: labelled, want: "no route",
		},
		{
			name: "from a namespace by its name", listeners: selecting + `kubernetes.io/metadata.name: m}}}}}`,
			parents: `{namespace: g, name: public}`, more: labelled, want: "m/s:80 /",
		},
		{
			name: "from namespaces whose labels are not known", listeners: selecting + `team: blue}}}}}`,
			parents: `{namespace: g, name: public}`, want: "not found",
		},
		{
			name:      "of other kinds",
			listeners: `{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: GRPCRoute}]}}`,
			parents:   `{namespace: g, name: public}`, want: "no route",
		},
		{
			name: "of this kind",
			listeners: `{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: GRPCRoute}, ` +
				`{kind: HTTPRoute}]}}`,
			parents: `{namespace: g, name: public}`, want: "m/s:80 /",
		},
		{
			name: "not of HTTP", listeners: `{name: tls, port: 80, protocol: TLS, allowedRoutes: {namespaces: {from: All}}}`,
			parents: `{namespace: g, name: public}`, want: "no route",
		},
		{
			name:      "for the host",
			listeners: `{name: http, port: 80, protocol: HTTP, hostname: "*.example.com", allowedRoutes: {namespaces: {from: All}}}`,
			parents:   `{namespace: g, name: public}`, want: "m/s:80 /",
		},
		{
			name:      "for another host",
			listeners: `{name: http, port: 80, protocol: HTTP, hostname: "*.example.org", allowedRoutes: {namespaces: {from: All}}}`,
			parents:   `{namespace: g, name: public}`, want: "no route",
		},
		{
			name:      "the most specific listener has the host to itself",
			listeners: everywhere + `, {name: own, port: 80, protocol: HTTP, hostname: a.example.com}`,
			parents:   `{namespace: g, name: public}`, want: "no route",
		},
		{
			name: "two listeners for one host", listeners: everywhere + `, ` + strings.Replace(everywhere, "http", "more", 1),
			parents: `{namespace: g, name: public}`, want: "invalid",
		},
		{
			name:      "two ports that agree",
			listeners: everywhere + `, {name: https, port: 443, protocol: HTTPS, allowedRoutes: {namespaces: {from: All}}}`,
			parents:   `{namespace: g, name: public}`, want: "m/s:80 /",
		},
		{
			name:      "one of two ports",
			listeners: everywhere + `, {name: https, port: 443, protocol: HTTPS, allowedRoutes: {namespaces: {from: All}}}`,
			parents:   `{namespace: g, name: public, sectionName: https}`, want: "m/s:80 /",
		},
		{
			name:      "the other of two ports",
			listeners: everywhere + `, {name: https, port: 443, protocol: HTTPS, allowedRoutes: {namespaces: {from: All}}}`,
			parents:   `{namespace: g, name: public, sectionName: https}`, port: 80, want: "no route",
		},
		{
			name:      "two ports that differ",
			listeners: everywhere + `, {name: https, port: 443, protocol: HTTPS, allowedRoutes: {namespaces: {from: All}}}`,
			parents:   `{namespace: g, name: public, sectionName: https}`,
			more: `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: m, name: b}, spec: ` +
				`{parentRefs: [{namespace: g, name: public, port: 80}], rules: [{backendRefs: [{name: b, port: 80}]}]}}`,
			want: "ambiguous",
		},
		{
			name: "a port that nobody listens at", listeners: everywhere, parents: `{namespace: g, name: public}`, port: 81,
			want: "not found",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, gateway(tt.listeners), parent+tt.parents+rules, tt.more)
			r := get(atThePublicGateway, "a.example.com/")
			r.Entrance.Port = tt.port
			assert.Equal(t, tt.want, ask(t, w, r))
		})
	}
}

// The cases are from the table in the specification of field replacePrefixMatch.
func TestReplacePrefixMatch(t *testing.T) {
	t.Parallel()
	tests := []struct{ path, prefix, replacement, want string }{
		{path: "/foo/bar", prefix: "/foo", replacement: "/xyz", want: "/xyz/bar"},
		{path: "/foo/bar", prefix: "/foo", replacement: "/xyz/", want: "/xyz/bar"},
		{path: "/foo/bar", prefix: "/foo/", replacement: "/xyz", want: "/xyz/bar"},
		{path: "/foo/bar", prefix: "/foo/", replacement: "/xyz/", want: "/xyz/bar"},
		{path: "/foo", prefix: "/foo", replacement: "/xyz", want: "/xyz"},
		{path: "/foo/", prefix: "/foo", replacement: "/xyz", want: "/xyz/"},
		{path: "/foo/bar", prefix: "/foo", replacement: `""`, want: "/bar"},
		{path: "/foo/", prefix: "/foo", replacement: `""`, want: "/"},
		{path: "/foo", prefix: "/foo", replacement: `""`, want: "/"},
		{path: "/foo/", prefix: "/foo", replacement: "/", want: "/"},
		{path: "/foo", prefix: "/foo", replacement: "/", want: "/"},
		{path: "/foo", prefix: "/", replacement: "/xyz", want: "/xyz/foo"},
	}
	for _, tt := range tests {
		t.Run(strings.Join([]string{tt.path, tt.prefix, tt.replacement}, " "), func(t *testing.T) {
			t.Parallel()
			w := world(t, gateway(everywhere),
				route("m/r",
					`rules: [{matches: [`+prefix(tt.prefix)+
						`], filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: `+tt.replacement+
						`}}}], `+to("s")+`}]`))
			assert.Equal(t, "m/s:80 "+tt.want, ask(t, w, get(atThePublicGateway, "a.example.com"+tt.path)))
		})
	}
}

func TestGatewayAPIRule(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, rule, want string }{
		{
			name: "the whole path",
			rule: `filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /all}}}], ` + to("s"),
			want: "m/s:80 /all",
		},
		{
			name: "prefix of a rule with several matches",
			rule: `matches: [` + prefix("/a") + `, ` + prefix("/x") +
				`], filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}], ` + to("s"),
			want: "invalid",
		},
		{
			name: "prefix of an exact path",
			rule: `matches: [{path: {type: Exact, value: /x}}], filters: [{type: URLRewrite, urlRewrite: {path: {type: ` +
				`ReplacePrefixMatch, replacePrefixMatch: /}}}], ` + to("s"),
			want: "invalid",
		},
		{
			name: "a rewrite that does not say what",
			rule: `filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replacePrefixMatch: /}}}], ` + to("s"),
			want: "invalid",
		},
		{name: "a rewrite without itself", rule: `filters: [{type: URLRewrite}], ` + to("s"), want: "invalid"},
		{
			name: "a filter and another's field", rule: `filters: [{type: URLRewrite, urlRewrite: {}, cors: {}}], ` + to("s"),
			want: "not modeled",
		},
		{
			name: "a filter twice", rule: `filters: [{type: URLRewrite, urlRewrite: {}}, {type: URLRewrite, urlRewrite: {}}], ` + to("s"),
			want: "invalid",
		},
		{name: "a redirect", rule: `filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]`, want: "not modeled"},
		{
			name: "a mirror", rule: `filters: [{type: RequestMirror, requestMirror: {backendRef: {name: m, port: 1}}}], ` + to("s"),
			want: "not modeled",
		},
		{
			name: "an extension", rule: `filters: [{type: ExtensionRef, extensionRef: {group: a, kind: b, name: c}}], ` + to("s"),
			want: "not modeled",
		},
		{
			name: "Host as a header",
			rule: `filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: Host, value: b}]}}], ` + to("s"),
			want: "not modeled",
		},
		{name: "header of another type", rule: `matches: [{headers: [{name: a, type: Like, value: b}]}], ` + to("s"), want: "not modeled"},
		{name: "path of another type", rule: `matches: [{path: {type: Like, value: b}}], ` + to("s"), want: "not modeled"},
		{name: "retries", rule: `retry: {attempts: 1}, ` + to("s"), want: "not modeled"},
		{name: "session persistence", rule: `sessionPersistence: {}, ` + to("s"), want: "not modeled"},
		{name: "a name", rule: `name: first, ` + to("s"), want: "m/s:80 /x"},
		{name: "no backend", rule: `name: first`, want: "no backend"},
		{name: "no backend with a weight", rule: `backendRefs: [{name: s, port: 80, weight: 0}]`, want: "no backend"},
		{
			name: "one of two backends with a weight",
			rule: `backendRefs: [{name: s, port: 80, weight: 0}, {name: o, port: 81, weight: 7}]`, want: "m/o:81 /x",
		},
		{
			name: "two backends with a weight", rule: `backendRefs: [{name: s, port: 80}, {name: o, port: 81, weight: 7}]`,
			want: "not modeled",
		},
		{name: "a pool", rule: `backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: p}]`, want: "m/p:0 /x"},
		{name: "a bucket", rule: `backendRefs: [{group: storage, kind: Bucket, name: p}]`, want: "not modeled"},
		{name: "a Service without a port", rule: `backendRefs: [{name: s}]`, want: "invalid"},
		{name: "a Service of this namespace", rule: `backendRefs: [{namespace: m, name: s, port: 80}]`, want: "m/s:80 /x"},
		{name: "a Service of another namespace", rule: `backendRefs: [{namespace: o, name: s, port: 80}]`, want: "not modeled"},
		{
			name: "filters of a backend", rule: `backendRefs: [{name: s, port: 80, filters: [{type: URLRewrite, urlRewrite: {}}]}]`,
			want: "not modeled",
		},
		{name: "a timeout that is none", rule: `timeouts: {request: 1.5s}, ` + to("s"), want: "invalid"},
		{name: "a timeout of a try", rule: `timeouts: {request: 10s, backendRequest: 1s}, ` + to("s"), want: "not modeled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, gateway(everywhere), route("m/r", `rules: [{`+tt.rule+`}]`))
			assert.Equal(t, tt.want, ask(t, w, get(atThePublicGateway, "a.example.com/x")))
		})
	}
}

func TestGatewayAPIRequestToTheBackend(t *testing.T) {
	t.Parallel()
	w := world(t, gateway(everywhere), route("m/r", `rules: [{filters: [
  {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-set, value: new}], add: [{name: x-add, value: two}, {name: x-new,
    value: one}], remove: [X-Gone]}},
  {type: URLRewrite, urlRewrite: {hostname: in.example.com}}], timeouts: {request: 1m30s, backendRequest: 1m30s}, `+to("s")+`}]`))
	r := get(atThePublicGateway, "a.example.com/x?y=z")
	r.Header = map[string]string{"X-Set": "old", "x-add": "one", "x-gone": "1", "x-stays": "1"}
	got, err := w.AnswerRequest(r)
	require.NoError(t, err)
	timeout := 90 * time.Second
	assert.Equal(t, Answer{
		Backend: Backend{Kind: KindService, Namespace: "m", Name: "s", Port: 80},
		Path:    "/x?y=z", Host: "in.example.com", Timeout: &timeout,
		Header: map[string]string{"X-Set": "new", "X-Add": "one,two", "X-New": "one", "X-Stays": "1"},
	}, got)
}

func TestGatewayAPITimeout(t *testing.T) {
	t.Parallel()
	none, second := time.Duration(0), time.Second
	tests := []struct {
		name, give string
		want       *time.Duration
	}{
		{name: "not said", give: to("s")},
		{name: "an empty one", give: `timeouts: {}, ` + to("s")},
		{name: "none", give: `timeouts: {request: 0s}, ` + to("s"), want: &none},
		{name: "one", give: `timeouts: {request: 1000ms}, ` + to("s"), want: &second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, gateway(everywhere), route("m/r", `rules: [{`+tt.give+`}]`))
			got, err := w.AnswerRequest(get(atThePublicGateway, "a.example.com/x"))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got.Timeout)
		})
	}
}
