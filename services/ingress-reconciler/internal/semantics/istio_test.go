package semantics

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var atTheIstioGateway = Entrance{IstioGateway: "istio/public"}

// virtual returns a VirtualService at Istio Gateway istio/public, with the metadata of its name.
func virtual(name, spec string) string {
	return `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: ` + meta(name) + `, spec: {gateways: [istio/public], ` +
		spec + `}}`
}

// toHost returns the route of a rule.
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
		{
			name: "its host", give: []string{virtual("m/v", `hosts: [b.example.com, A.example.com], http: [{`+toHost("s")+`}]`)},
			path: "/x", want: "m/s:80 /x",
		},
		{
			name: "another host", give: []string{virtual("m/v", `hosts: [b.example.com], http: [{`+toHost("s")+`}]`)}, path: "/x",
			want: "no route",
		},
		{name: "a wildcard", give: []string{virtual("m/v", `hosts: ["*.com"], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "m/s:80 /x"},
		{name: "all hosts", give: []string{virtual("m/v", `hosts: ["*"], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "m/s:80 /x"},
		{
			name: "a short host beside", give: []string{virtual("m/v", `hosts: [a.example.com, reviews], http: [{`+toHost("s")+`}]`)},
			path: "/x", want: "not modeled",
		},
		{
			name: "the most specific host",
			give: []string{
				virtual("m/a", `hosts: ["*"], http: [{`+toHost("all")+`}]`),
				virtual("m/b", `hosts: ["*.example.com"], http: [{`+toHost("wild")+`}]`),
				virtual("m/c", hosts+`http: [{`+toHost("full")+`}]`), virtual("m/d", `hosts: ["*.com"], http: [{`+toHost("com")+`}]`),
			},
			path: "/x", want: "m/full:80 /x",
		},
		{
			name: "what its rules do not match is nobody's",
			give: []string{
				virtual("m/a", `hosts: ["*"], http: [{`+toHost("all")+`}]`),
				virtual("m/c", hosts+`http: [{match: [{uri: {prefix: /y}}], `+toHost("full")+`}]`),
			},
			path: "/x", want: "no route",
		},
		{
			name: "the older of two",
			give: []string{
				virtual("m/a@2", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("younger")+`}]`),
				virtual("m/b@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("older")+`}]`),
			},
			path: "/x", want: "m/older:80 /x",
		},
		{
			name: "the older of two, whose path is shorter",
			give: []string{
				virtual("m/a@2", hosts+`http: [{match: [{uri: {prefix: /x/y}}], `+toHost("younger")+`}]`),
				virtual("m/b@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("older")+`}]`),
			},
			path: "/x/y", want: "m/older:80 /x/y",
		},
		{
			name: "the first name of two of one age",
			give: []string{
				virtual("m/b@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("b")+`}]`),
				virtual("z/a@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("a")+`}]`),
			},
			path: "/x", want: "m/a:80 /x",
		},
		{
			name: "the first namespace of two of one name",
			give: []string{
				virtual("m/a@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("m")+`}]`),
				virtual("l/a@1", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("l")+`}]`),
			},
			path: "/x", want: "m/l:80 /x",
		},
		{
			name: "a rule for everything is last",
			give: []string{
				virtual("m/a@1", hosts+`http: [{`+toHost("all")+`}]`),
				virtual("m/b@2", hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("x")+`}]`),
			},
			path: "/x", want: "m/x:80 /x",
		},
		{
			name: "nothing follows a rule for everything",
			give: []string{
				virtual("m/a",
					hosts+`http: [{match: [{uri: {prefix: /}}], `+toHost("all")+`}, {match: [{uri: {prefix: /x}}], `+toHost("x")+`}]`),
			},
			path: "/x", want: "m/all:80 /x",
		},
		{
			name: "rules in their order",
			give: []string{
				virtual("m/a",
					hosts+`http: [{match: [{uri: {prefix: /x}}], `+toHost("short")+`}, {match: [{uri: {prefix: /x/y}}], `+toHost("long")+
						`}]`),
			},
			path: "/x/y", want: "m/short:80 /x/y",
		},
		{name: "no rules", give: []string{virtual("m/a", `hosts: [a.example.com]`)}, path: "/x", want: "no route"},
		{
			name: "exported to all", give: []string{virtual("m/a", hosts+`exportTo: ["*"], http: [{`+toHost("s")+`}]`)}, path: "/x",
			want: "m/s:80 /x",
		},
		{
			name: "exported to some", give: []string{virtual("m/a", hosts+`exportTo: ["."], http: [{`+toHost("s")+`}]`)}, path: "/x",
			want: "not modeled",
		},
		{name: "TLS", give: []string{virtual("m/a", hosts+`tls: [{}], http: [{`+toHost("s")+`}]`)}, path: "/x", want: "not modeled"},
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
		{name: "the Gateway", namespace: "m", gateways: "[mesh, istio/public]", want: "m/s:80 /"},
		{name: "a Gateway of its own namespace", namespace: "istio", gateways: "[public]", want: "m/s:80 /"},
		{name: "a Gateway of another namespace", namespace: "m", gateways: "[public]", want: "no route"},
		{name: "the mesh", namespace: "m", gateways: "[mesh]", want: "no route"},
		{name: "none, which is the mesh", namespace: "m", gateways: "[]", want: "no route"},
		{
			name: "a match of the Gateway", namespace: "m", gateways: "[mesh, istio/public]",
			match: "match: [{gateways: [mesh]}, {gateways: [istio/public]}], ", want: "m/s:80 /",
		},
		{
			name: "a match of another Gateway", namespace: "m", gateways: "[mesh, istio/public]", match: "match: [{gateways: [mesh]}], ",
			want: "no route",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t,
				`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {namespace: `+tt.namespace+
					`, name: v}, spec: {gateways: `+tt.gateways+`, `+hosts+`http: [{`+tt.match+toHost("s")+`}]}}`)
			assert.Equal(t, tt.want, ask(t, w, get(atTheIstioGateway, "a.example.com/")))
		})
	}
}

func TestMatchesOfVirtualServices(t *testing.T) {
	t.Parallel()
	header := func(value string) map[string]string { return map[string]string{"X-Model": value} }
	tests := []struct {
		name, match string
		path        string
		header      map[string]string
		want        string
	}{
		{name: "exact", match: `{uri: {exact: /x}}`, path: "/x?y=z", want: "m/s:80 /x?y=z"},
		{name: "not exact", match: `{uri: {exact: /x}}`, path: "/x/", want: "no route"},
		{name: "a prefix by characters", match: `{uri: {prefix: /x}}`, path: "/xyz", want: "m/s:80 /xyz"},
		{name: "a prefix with a slash", match: `{uri: {prefix: /x/}}`, path: "/x", want: "no route"},
		{name: "a header", match: `{headers: {x-model: {exact: chat}}}`, path: "/", header: header("chat"), want: "m/s:80 /"},
		{
			name: "a header of another value", match: `{headers: {x-model: {exact: chat}}}`, path: "/", header: header("other"),
			want: "no route",
		},
		{name: "no header", match: `{headers: {x-model: {exact: chat}}}`, path: "/", want: "no route"},
		{name: "any of them", match: `{uri: {prefix: /y}}, {uri: {prefix: /x}}`, path: "/x", want: "m/s:80 /x"},
		{name: "all of one", match: `{uri: {prefix: /x}, headers: {x-model: {exact: chat}}}`, path: "/x", want: "no route"},
		{name: "an expression", match: `{uri: {regex: "/x.*"}}`, path: "/x", want: "not modeled"},
		{
			name: "a header by an expression", match: `{headers: {x-model: {regex: "ch.*"}}}`, path: "/", header: header("chat"),
			want: "not modeled",
		},
		{name: "a header that is there", match: `{headers: {x-model: {}}}`, path: "/", header: header("chat"), want: "not modeled"},
		{name: "a header of a token", match: `{headers: {"@request.auth.claims.a": {exact: b}}}`, path: "/", want: "not modeled"},
		{name: "the authority as a header", match: `{headers: {host: {exact: b}}}`, path: "/", want: "not modeled"},
		{name: "the method", match: `{method: {exact: POST}}`, path: "/", want: "not modeled"},
		{name: "any case", match: `{uri: {prefix: /x}, ignoreUriCase: true}`, path: "/x", want: "not modeled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, virtual("m/v", hosts+`http: [{match: [`+tt.match+`], `+toHost("s")+`}]`))
			r := get(atTheIstioGateway, "a.example.com"+tt.path)
			r.Header = tt.header
			assert.Equal(t, tt.want, ask(t, w, r))
		})
	}
}

func TestRulesOfVirtualServices(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, rule, give, want string }{
		{
			name: "a prefix with a slash", rule: `match: [{uri: {prefix: /m/chat/}}], rewrite: {uri: /}, ` + toHost("s"),
			give: "/m/chat/v1", want: "m/s:80 /v1",
		},
		{
			name: "a prefix without, and two slashes", rule: `match: [{uri: {prefix: /m/chat}}], rewrite: {uri: /}, ` + toHost("s"),
			give: "/m/chat/v1", want: "m/s:80 //v1",
		},
		{
			name: "an exact path", rule: `match: [{uri: {exact: /m/chat}}], rewrite: {uri: /}, ` + toHost("s"), give: "/m/chat",
			want: "m/s:80 /",
		},
		{name: "no path", rule: `rewrite: {uri: /y/}, ` + toHost("s"), give: "/m/chat", want: "m/s:80 /y/m/chat"},
		{
			name: "an expression", rule: `rewrite: {uriRegexRewrite: {match: '^/m', rewrite: '/'}}, ` + toHost("s"), give: "/m",
			want: "not modeled",
		},
		{name: "a short host", rule: `route: [{destination: {host: s, port: {number: 80}}}]`, give: "/", want: "m/s:80 /"},
		{
			name: "another domain", rule: `route: [{destination: {host: s.other.svc.example.org, port: {number: 80}}}]`, give: "/",
			want: "other/s:80 /",
		},
		{
			name: "a host outside the cluster", rule: `route: [{destination: {host: api.example.com, port: {number: 443}}}]`, give: "/",
			want: "/api.example.com:443 /",
		},
		{name: "no port", rule: `route: [{destination: {host: s}}]`, give: "/", want: "not modeled"},
		{name: "a subset", rule: `route: [{destination: {host: s, subset: v1, port: {number: 80}}}]`, give: "/", want: "not modeled"},
		{name: "no destination", rule: `name: r`, give: "/", want: "no backend"},
		{name: "a weight of one", rule: `route: [{weight: 100, destination: {host: s, port: {number: 80}}}]`, give: "/", want: "m/s:80 /"},
		{
			name: "two destinations",
			rule: `route: [{weight: 0, destination: {host: s}}, {weight: 1, destination: {host: t, port: {number: 81}}}]`, give: "/",
			want: "not modeled",
		},
		{
			name: "headers of the destination",
			rule: `route: [{destination: {host: s, port: {number: 80}}, headers: {request: {set: {a: b}}}}]`, give: "/",
			want: "not modeled",
		},
		{name: "headers that are removed", rule: `headers: {request: {remove: [a]}}, ` + toHost("s"), give: "/", want: "not modeled"},
		{name: "headers of the response", rule: `headers: {response: {set: {a: b}}}, ` + toHost("s"), give: "/", want: "not modeled"},
		{name: "the authority as a header", rule: `headers: {request: {set: {Host: b}}}, ` + toHost("s"), give: "/", want: "not modeled"},
		{
			name: "a fault", rule: `fault: {abort: {httpStatus: 500, percentage: {value: 1}}}, ` + toHost("s"), give: "/",
			want: "not modeled",
		},
		{name: "a redirect", rule: `redirect: {uri: /x}`, give: "/", want: "not modeled"},
		{name: "a delegate", rule: `delegate: {name: x}`, give: "/", want: "not modeled"},
		{name: "a mirror", rule: `mirror: {host: m}, ` + toHost("s"), give: "/", want: "not modeled"},
		{name: "retries", rule: `retries: {attempts: 1}, ` + toHost("s"), give: "/", want: "not modeled"},
		{name: "a negative timeout", rule: `timeout: -1s, ` + toHost("s"), give: "/", want: "invalid"},
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
	w := world(t,
		virtual("m/v",
			hosts+
				`http: [{rewrite: {authority: chat-engine.m.svc.cluster.local}, headers: {request: {set: {x-set: new}}}, timeout: 60s, `+
				`route: [{destination: {host: gateway.istio.svc.cluster.local, port: {number: 80}}}]}]`))
	r := get(atTheIstioGateway, "a.example.com/x")
	r.Header = map[string]string{"x-set": "old", "x-stays": "1"}
	got, err := w.AnswerRequest(r)
	require.NoError(t, err)
	assert.Equal(t, Answer{
		Backend: Backend{Kind: KindService, Namespace: "istio", Name: "gateway", Port: 80}, Path: "/x",
		Host: "chat-engine.m.svc.cluster.local", Header: map[string]string{"X-Set": "new", "X-Stays": "1"}, Timeout: new(time.Minute),
	}, got)
}
