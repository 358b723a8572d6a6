package semantics

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var atTheIstioGateway = Entrance{IstioGateway: "istio/public"}

// virtual is a VirtualService at that gateway, "namespace/name" or "namespace/name@second".
func virtual(name, spec string) string {
	return `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: ` + meta(name) + `, spec: {gateways: [istio/public], ` + spec + `}}`
}

// toHost is the route of a rule.
func toHost(service string) string {
	return `route: [{destination: {host: ` + service + `.m.svc.cluster.local, port: {number: 80}}}]`
}

const hosts = `hosts: [a.example.com], `

func TestVirtualServicesOfAHost(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give []string
		path string
		want string
	}{
		{name: "its host", give: []string{virtual("m/v", `hosts: [b.example.com, A.example.com], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "m/s:80 /x"},
		{name: "another host", give: []string{virtual("m/v", `hosts: [b.example.com], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "no route"},
		{name: "a wildcard", give: []string{virtual("m/v", `hosts: ["*.com"], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "m/s:80 /x"},
		{name: "all hosts", give: []string{virtual("m/v", `hosts: ["*"], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "m/s:80 /x"},
		{name: "a short host", give: []string{virtual("m/v", `hosts: [reviews], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "unsupported"},
		{name: "part of a label", give: []string{virtual("m/v", `hosts: ["*a.com"], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "unsupported"},
		{
			name: "the most specific host",
			give: []string{virtual("m/a", `hosts: ["*"], http: [{`+toHost("all")+`}]`), virtual("m/b", `hosts: ["*.example.com"], http: [{`+toHost("wild")+`}]`), virtual("m/c", hosts+`http: [{`+toHost("full")+`}]`), virtual("m/d", `hosts: ["*.com"], http: [{`+toHost("com")+`}]`)},
			path: "/x", want: "m/full:80 /x",
		},
		{
			name: "the most specific wildcard",
			give: []string{virtual("m/a", `hosts: ["*"], http: [{`+toHost("all")+`}]`), virtual("m/b", `hosts: ["*.example.com"], http: [{`+toHost("wild")+`}]`), virtual("m/d", `hosts: ["*.com"], http: [{`+toHost("com")+`}]`)},
			path: "/x", want: "m/wild:80 /x",
		},
		{
			name: "what it leaves is nobody's",
			give: []string{virtual("m/a", `hosts: ["*"], http: [{`+toHost("all")+`}]`), virtual("m/c", hosts+`http: [{match: [{uri: {prefix: /y}}], `+toHost("full")+`}]`)},
			path: "/x", want: "no route",
		},
		{
			name: "the older of two",
			give: []string{virtual("m/a@2", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("younger")+`}]`), virtual("m/b@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("older")+`}]`)},
			path: "/x", want: "m/older:80 /x",
		},
		{
			name: "the first name of two of an age",
			give: []string{virtual("m/b@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("b")+`}]`), virtual("z/a@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("a")+`}]`)},
			path: "/x", want: "m/a:80 /x",
		},
		{
			name: "the first namespace of two of a name",
			give: []string{virtual("m/a@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("m")+`}]`), virtual("l/a@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("l")+`}]`)},
			path: "/x", want: "m/l:80 /x",
		},
		{
			name: "a rule for everything is last",
			give: []string{virtual("m/a@1", hosts+`http: [{`+toHost("all")+`}]`), virtual("m/b@2", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("x")+`}]`)},
			path: "/x", want: "m/x:80 /x",
		},
		{
			name: "a rule for one method is not for everything",
			give: []string{virtual("m/a@1", hosts+`http: [{match: [{uri: {prefix: /}, method: {exact: GET}}], `+toHost("get")+`}]`), virtual("m/b@2", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("x")+`}]`)},
			path: "/x", want: "m/get:80 /x",
		},
		{
			name: "nothing follows a rule for everything",
			give: []string{virtual("m/a", hosts+`http: [{match: [{uri: {prefix: /}}], `+toHost("all")+`}, {match: [{uri: {prefix: /x}}], `+toHost("x")+`}]`)},
			path: "/x", want: "m/all:80 /x",
		},
		{name: "rules in their order", give: []string{virtual("m/a", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("short")+`}, {match: [{uri: {prefix: /x/y}}], `+toHost("long")+`}]`)}, path: "/x/y", want: "m/short:80 /x/y"},
		{name: "no rules", give: []string{virtual("m/a", `hosts: [a.example.com]`)}, path: "/x", want: "no route"},
		{name: "exported to all", give: []string{virtual("m/a", hosts+`exportTo: ["*"], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "m/s:80 /x"},
		{name: "exported to some", give: []string{virtual("m/a", hosts+`exportTo: ["."], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "unsupported"},
		{name: "TLS", give: []string{virtual("m/a", hosts+`tls: [{}], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "unsupported"},
		{name: "TLS of another host", give: []string{virtual("m/a", `hosts: [b.example.com], tls: [{}]`)}, path: "/x", want: "no route"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, ask(t, world(t, tt.give...), get(atTheIstioGateway, "a.example.com"+tt.path)))
		})
	}
}

func TestGatewaysOfVirtualServices(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, namespace, gateways, match, want string }{
		{name: "the gateway", namespace: "m", gateways: "[mesh, istio/public]", want: "m/s:80 /"},
		{name: "a gateway of its own namespace", namespace: "istio", gateways: "[public]", want: "m/s:80 /"},
		{name: "a gateway of another namespace", namespace: "m", gateways: "[public]", want: "no route"},
		{name: "the mesh", namespace: "m", gateways: "[mesh]", want: "no route"},
		{name: "none, which is the mesh", namespace: "m", gateways: "[]", want: "no route"},
		{name: "a match of the gateway", namespace: "m", gateways: "[mesh, istio/public]", match: "match: [{gateways: [mesh]}, {gateways: [istio/public]}], ", want: "m/s:80 /"},
		{name: "a match of another gateway", namespace: "m", gateways: "[mesh, istio/public]", match: "match: [{gateways: [mesh]}], ", want: "no route"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {namespace: `+tt.namespace+`, name: v}, spec: {gateways: `+tt.gateways+`, `+hosts+`http: [{`+tt.match+toHost("s")+`}]}}`)
			assert.Equal(t, tt.want, ask(t, w, get(atTheIstioGateway, "a.example.com/")))
		})
	}
}

func TestMatchesOfVirtualServices(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, match string
		give        Request
		want        string
	}{
		{name: "exact", match: `{uri: {exact: /x}}`, give: Request{Path: "/x?y=z"}, want: "m/s:80 /x?y=z"},
		{name: "not exact", match: `{uri: {exact: /x}}`, give: Request{Path: "/x/"}, want: "no route"},
		{name: "prefix of letters", match: `{uri: {prefix: /x}}`, give: Request{Path: "/xyz"}, want: "m/s:80 /xyz"},
		{name: "prefix with a slash", match: `{uri: {prefix: /x/}}`, give: Request{Path: "/x"}, want: "no route"},
		{name: "expression", match: `{uri: {regex: "/x[0-9]"}}`, give: Request{Path: "/x1"}, want: "m/s:80 /x1"},
		{name: "expression of less", match: `{uri: {regex: "/x[0-9]"}}`, give: Request{Path: "/x1/y"}, want: "no route"},
		{name: "expression of one of two", match: `{uri: {regex: "/y|/x"}}`, give: Request{Path: "/x1"}, want: "no route"},
		{name: "what is no expression", match: `{uri: {regex: "("}}`, give: Request{Path: "/x1"}, want: "unsupported"},
		{name: "authority", match: `{authority: {exact: a.example.com}}`, give: Request{Path: "/"}, want: "m/s:80 /"},
		{name: "authority with a port", match: `{authority: {exact: a.example.com}}`, give: Request{Host: "a.example.com:8080", Path: "/"}, want: "no route"},
		{name: "authority with any port", match: `{authority: {regex: '^a\.example\.com(?::\d{1,5})?$'}}`, give: Request{Host: "a.example.com:8080", Path: "/"}, want: "m/s:80 /"},
		{name: "authority by a prefix", match: `{authority: {prefix: "a."}}`, give: Request{Path: "/"}, want: "m/s:80 /"},
		{name: "authority in another case", match: `{authority: {exact: a.example.com}}`, give: Request{Host: "A.example.com", Path: "/"}, want: "no route"},
		{name: "method", match: `{method: {exact: POST}}`, give: Request{Path: "/", Method: "POST"}, want: "m/s:80 /"},
		{name: "another method", match: `{method: {exact: POST}}`, give: Request{Path: "/"}, want: "no route"},
		{name: "header", match: `{headers: {x-model: {exact: chat}}}`, give: Request{Path: "/", Header: map[string]string{"X-Model": "chat"}}, want: "m/s:80 /"},
		{name: "header by a prefix", match: `{headers: {x-model: {prefix: ch}}}`, give: Request{Path: "/", Header: map[string]string{"X-Model": "chat"}}, want: "m/s:80 /"},
		{name: "header by an expression", match: `{headers: {x-model: {regex: "ch.*"}}}`, give: Request{Path: "/", Header: map[string]string{"X-Model": "chat"}}, want: "m/s:80 /"},
		{name: "header of another value", match: `{headers: {x-model: {exact: chat}}}`, give: Request{Path: "/", Header: map[string]string{"X-Model": "other"}}, want: "no route"},
		{name: "no header, for an expression of nothing", match: `{headers: {x-model: {regex: ".*"}}}`, give: Request{Path: "/"}, want: "no route"},
		{name: "header that is there", match: `{headers: {x-model: {}}}`, give: Request{Path: "/", Header: map[string]string{"X-Model": "other"}}, want: "m/s:80 /"},
		{name: "header that is not there", match: `{headers: {x-model: {regex: "*"}}}`, give: Request{Path: "/"}, want: "no route"},
		{name: "header of a token", match: `{headers: {"@request.auth.claims.a": {exact: b}}}`, give: Request{Path: "/"}, want: "unsupported"},
		{name: "all of them", match: `{uri: {prefix: /x}, method: {exact: POST}}`, give: Request{Path: "/x"}, want: "no route"},
		{name: "any of them", match: `{uri: {prefix: /y}}, {uri: {prefix: /x}}`, give: Request{Path: "/x"}, want: "m/s:80 /x"},
		{name: "any case", match: `{uri: {prefix: /x}, ignoreUriCase: true}`, give: Request{Path: "/x"}, want: "unsupported"},
		{name: "without a header", match: `{withoutHeaders: {a: {exact: b}}}`, give: Request{Path: "/x"}, want: "unsupported"},
		{name: "query", match: `{queryParams: {a: {exact: b}}}`, give: Request{Path: "/x"}, want: "unsupported"},
		{name: "port", match: `{port: 80}`, give: Request{Path: "/x"}, want: "unsupported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, virtual("m/v", hosts+`http: [{match: [`+tt.match+`], `+toHost("s")+`}]`))
			tt.give.Entrance = atTheIstioGateway
			tt.give.Host = cmp.Or(tt.give.Host, "a.example.com")
			assert.Equal(t, tt.want, ask(t, w, tt.give))
		})
	}
}

func TestRulesOfVirtualServices(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, rule, give, want string }{
		{name: "a prefix with a slash", rule: `match: [{uri: {prefix: /m/chat/}}], rewrite: {uri: /}, ` + toHost("s"), give: "/m/chat/v1", want: "m/s:80 /v1"},
		{name: "a prefix without, and two slashes", rule: `match: [{uri: {prefix: /m/chat}}], rewrite: {uri: /}, ` + toHost("s"), give: "/m/chat/v1", want: "m/s:80 //v1"},
		{name: "an exact path", rule: `match: [{uri: {exact: /m/chat}}], rewrite: {uri: /}, ` + toHost("s"), give: "/m/chat", want: "m/s:80 /"},
		{name: "an expression", rule: `match: [{uri: {regex: "/m/.*"}}], rewrite: {uri: /y}, ` + toHost("s"), give: "/m/chat", want: "m/s:80 /y"},
		{name: "no path", rule: `rewrite: {uri: /y/}, ` + toHost("s"), give: "/m/chat", want: "m/s:80 /y/m/chat"},
		{name: "an expression of the rewrite", rule: `rewrite: {uriRegexRewrite: {match: '^/m/[^/]+/?(.*)', rewrite: '/\1'}}, ` + toHost("s"), give: "/m/chat/v1?q=/m/a/", want: "m/s:80 /v1?q=/m/a/"},
		{name: "each match of an expression", rule: `rewrite: {uriRegexRewrite: {match: '/a(b)?', rewrite: '/\1x'}}, ` + toHost("s"), give: "/ab/c/a", want: "m/s:80 /bx/c/x"},
		{name: "an expression with an escape", rule: `rewrite: {uriRegexRewrite: {match: '/a', rewrite: '\a'}}, ` + toHost("s"), give: "/a", want: "unsupported"},
		{name: "two rewrites", rule: `rewrite: {uri: /, uriRegexRewrite: {match: '/a', rewrite: '/'}}, ` + toHost("s"), give: "/a", want: "invalid"},
		{name: "a short host", rule: `route: [{destination: {host: s, port: {number: 80}}}]`, give: "/", want: "m/s:80 /"},
		{name: "another domain", rule: `route: [{destination: {host: s.other.svc.example.org, port: {number: 80}}}]`, give: "/", want: "other/s:80 /"},
		{name: "a host of elsewhere", rule: `route: [{destination: {host: api.example.com, port: {number: 443}}}]`, give: "/", want: "/api.example.com:443 /"},
		{name: "no port", rule: `route: [{destination: {host: s}}]`, give: "/", want: "unsupported"},
		{name: "a subset", rule: `route: [{destination: {host: s, subset: v1, port: {number: 80}}}]`, give: "/", want: "unsupported"},
		{name: "no destination", rule: `name: r`, give: "/", want: "no backend"},
		{name: "a weight of one", rule: `route: [{weight: 100, destination: {host: s, port: {number: 80}}}]`, give: "/", want: "m/s:80 /"},
		{name: "one of two weights", rule: `route: [{weight: 0, destination: {host: s}}, {weight: 1, destination: {host: t, port: {number: 81}}}]`, give: "/", want: "m/t:81 /"},
		{name: "two weights", rule: `route: [{weight: 1, destination: {host: s}}, {weight: 1, destination: {host: t, port: {number: 81}}}]`, give: "/", want: "unsupported"},
		{name: "no weights of two", rule: `route: [{destination: {host: s}}, {destination: {host: t}}]`, give: "/", want: "no backend"},
		{name: "fault", rule: `fault: {abort: {httpStatus: 500, percentage: {value: 1}}}, ` + toHost("s"), give: "/", want: "unsupported"},
		{name: "redirect", rule: `redirect: {uri: /x}`, give: "/", want: "unsupported"},
		{name: "delegate", rule: `delegate: {name: x}`, give: "/", want: "unsupported"},
		{name: "mirror", rule: `mirror: {host: m}, ` + toHost("s"), give: "/", want: "unsupported"},
		{name: "retries", rule: `retries: {attempts: 1}, ` + toHost("s"), give: "/", want: "unsupported"},
		{name: "CORS", rule: `corsPolicy: {}, ` + toHost("s"), give: "/", want: "unsupported"},
		{name: "headers of the response", rule: `headers: {response: {set: {a: b}}}, ` + toHost("s"), give: "/", want: "unsupported"},
		{name: "the path as a header", rule: `headers: {request: {set: {":path": b}}}, ` + toHost("s"), give: "/", want: "unsupported"},
		{name: "the authority added", rule: `headers: {request: {add: {":authority": b}}}, ` + toHost("s"), give: "/", want: "unsupported"},
		{name: "two authorities", rule: `headers: {request: {set: {":authority": b, Host: c}}}, ` + toHost("s"), give: "/", want: "invalid"},
		{name: "time that runs back", rule: `timeout: -1s, ` + toHost("s"), give: "/", want: "invalid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, virtual("m/v", hosts+`http: [{`+tt.rule+`}]`))
			assert.Equal(t, tt.want, ask(t, w, get(atTheIstioGateway, "a.example.com"+tt.give)))
		})
	}
}

func TestVirtualServiceRequestToTheBackend(t *testing.T) {
	t.Parallel()
	none, minute := time.Duration(0), time.Minute
	const destination = `route: [{destination: {host: s.m.svc.cluster.local, port: {number: 80}}, headers: {request: {set: {x-set: last, Host: dst.example.com}, remove: [x-gone]}}}]`
	service := Backend{Kind: KindService, Namespace: "m", Name: "s", Port: 80}
	tests := []struct {
		name, give string
		want       Answer
	}{
		{name: "as it is", give: toHost("s"), want: Answer{Backend: service, Path: "/x", Host: "a.example.com", Header: map[string]string{"X-Gone": "1"}}},
		{name: "a host that is no Service", give: `route: [{destination: {host: api.example.com, port: {number: 443}}}]`, want: Answer{
			Backend: Backend{Kind: KindHost, Name: "api.example.com", Port: 443}, Path: "/x", Host: "a.example.com", Header: map[string]string{"X-Gone": "1"},
		}},
		{name: "no timeout", give: `timeout: 0s, ` + toHost("s"), want: Answer{Backend: service, Path: "/x", Host: "a.example.com", Header: map[string]string{"X-Gone": "1"}, Timeout: &none}},
		{name: "a timeout", give: `timeout: 60s, ` + toHost("s"), want: Answer{Backend: service, Path: "/x", Host: "a.example.com", Header: map[string]string{"X-Gone": "1"}, Timeout: &minute}},
		{name: "headers of the rule", give: `headers: {request: {set: {host: in.example.com, x-set: a}, add: {x-gone: "2"}}}, ` + toHost("s"), want: Answer{
			Backend: service, Path: "/x", Host: "in.example.com", Header: map[string]string{"X-Gone": "1,2", "X-Set": "a"},
		}},
		{name: "headers of the destination", give: destination, want: Answer{Backend: service, Path: "/x", Host: "dst.example.com", Header: map[string]string{"X-Set": "last"}}},
		{name: "headers of both", give: `headers: {request: {set: {":authority": in.example.com, x-set: a, x-gone: b}}}, ` + destination, want: Answer{
			Backend: service, Path: "/x", Host: "in.example.com", Header: map[string]string{"X-Set": "last", "X-Gone": "b"},
		}},
		{name: "a rewritten authority", give: `rewrite: {authority: re.example.com}, headers: {request: {set: {host: in.example.com}}}, ` + toHost("s"), want: Answer{
			Backend: service, Path: "/x", Host: "re.example.com", Header: map[string]string{"X-Gone": "1"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, virtual("m/v", hosts+`http: [{`+tt.give+`}]`))
			r := get(atTheIstioGateway, "a.example.com/x")
			r.Header = map[string]string{"x-gone": "1"}
			got, err := w.Answer(r)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}
