package semantics

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// lines returns the candidates of an explanation, the winner first.
func lines(e Explanation) []string {
	var all []string
	if e.Winner != nil {
		all = append(all, e.Winner.String())
	}
	for _, c := range e.Losers {
		all = append(all, c.String())
	}
	return all
}

func TestExplain(t *testing.T) {
	t.Parallel()
	const nginx, traefik = "k8s.io/ingress-nginx", "traefik.io/ingress-controller"
	tests := []struct {
		name string
		give []string
		at   Entrance
		want []string
	}{
		{
			name: "Gateway API", at: atThePublicGateway,
			give: []string{
				gateway(everywhere),
				route("m/wild@1", `hostnames: ["*.example.com"], rules: [{matches: [`+prefix("/v1/x")+`], `+to("wild")+`}]`),
				route("m/a@3",
					`hostnames: [a.example.com], rules: [{matches: [`+prefix("/v1")+`], `+to("younger")+`}, {matches: [`+prefix("/")+`], `+
						to("short")+`}]`),
				route("m/b@2",
					`hostnames: [a.example.com], rules: [{matches: [`+prefix("/v1")+
						`, {path: {value: /v1}, headers: [{name: X-Model, value: chat}], method: POST}], `+to("older")+`}]`),
				route("m/c", `hostnames: [c.example.com], rules: [{`+to("c")+`}]`),
			},
			want: []string{
				"HTTPRoute m/b, rule 0: PathPrefix /v1, method POST, header X-Model: chat -> Service m/older:80",
				"HTTPRoute m/b, rule 0: PathPrefix /v1 -> Service m/older:80: it does not match the method",
				"HTTPRoute m/a, rule 0: PathPrefix /v1 -> Service m/younger:80: it does not match the method",
				"HTTPRoute m/a, rule 1: PathPrefix / -> Service m/short:80: its path is shorter",
				"HTTPRoute m/wild, rule 0: PathPrefix /v1/x -> Service m/wild:80: its hostname is less specific",
			},
		},
		{
			name: "ingress-nginx", at: atOurClass,
			give: []string{
				class(nginx), ingress("a", "", onHost("a.example.com", at("Prefix", "/", "short"))),
				ingress("b", "", onHost("a.example.com", at("Prefix", "/v1", "long"))),
				ingress("x", "", onHost("a.example.com", at("Exact", "/v2", "exact"))),
				ingress("c", "", onHost("*.example.com", at("Prefix", "/", "wild"))),
			},
			want: []string{
				"Ingress ns/b, rule 0: Prefix /v1 on host a.example.com -> Service ns/long:80",
				"Ingress ns/a, rule 0: Prefix / on host a.example.com -> Service ns/short:80: its path is shorter",
			},
		},
		{
			name: "Traefik", at: atOurClass,
			give: []string{
				class(traefik), ingress("a", "", onHost("a.example.com", at("Prefix", "/", "short"))),
				ingress("b", "", onHost("a.example.com", at("Prefix", "/v1", "long"))),
			},
			want: []string{
				"Ingress ns/b, rule 0: Prefix /v1 on host a.example.com -> Service ns/long:80",
				"Ingress ns/a, rule 0: Prefix / on host a.example.com -> Service ns/short:80: its priority is 40, and the winner's 42",
			},
		},
		{
			name: "Istio", at: atTheIstioGateway,
			give: []string{
				virtual("m/a@2",
					hosts+`http: [{match: [{uri: {prefix: /v1/}, headers: {x-model: {exact: chat}}}], `+toHost("younger")+`}]`),
				virtual("m/b@1",
					hosts+`http: [{match: [{uri: {prefix: /v1}}], `+toHost("older")+`}, {match: [{uri: {exact: /v1/x}}], `+toHost("exact")+
						`}, {`+toHost("all")+`}]`),
			},
			want: []string{
				"VirtualService m/b, rule 0: uri prefix /v1 -> Service m/older:80",
				"VirtualService m/b, rule 1: uri exact /v1/x -> Service m/exact:80: its rule comes later in the object",
				"VirtualService m/a, rule 0: uri prefix /v1/, header x-model: chat -> Service m/younger:80: its object is younger",
				"VirtualService m/b, rule 2: any uri -> Service m/all:80: rules for everything come last",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := get(tt.at, "a.example.com/v1/x")
			r.Method, r.Header = "POST", map[string]string{"X-Model": "chat"}
			got, err := world(t, tt.give...).ExplainRequest(r)
			require.NoError(t, err)
			assert.Equal(t, tt.at, got.Entrance)
			assert.Equal(t, tt.want, lines(got))
			assert.Equal(t, got.Winner.Backend, got.Answer.Backend)
		})
	}
}

// ExplainRequest returns partial results together with an error.
func TestExplainWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	w := world(t, gateway(everywhere), route("m/a", `hostnames: [a.example.com], rules: [{matches: [`+prefix("/v1")+`]}]`))
	got, err := w.ExplainRequest(get(atThePublicGateway, "a.example.com/v1"))
	require.ErrorIs(t, err, ErrNoBackend)
	require.ErrorContains(t, err, "HTTPRoute m/a: rule 0: PathPrefix /v1: ")
	assert.Equal(t, []string{"HTTPRoute m/a, rule 0: PathPrefix /v1"}, lines(got))

	got, err = w.ExplainRequest(get(atThePublicGateway, "a.example.com/v2"))
	require.EqualError(t, err, "Gateway g/public, host a.example.com, path /v2: no route")
	assert.Nil(t, got.Winner)
}

func TestExplainNamesAtMostSoMany(t *testing.T) {
	t.Parallel()
	documents := []string{class("traefik.io/ingress-controller")}
	path := "/"
	for range 20 {
		path += "a"
		documents = append(documents, ingress("i"+path[1:], "", onHost("a.example.com", at("Prefix", path, "s"))))
	}
	got, err := world(t, documents...).ExplainRequest(get(atOurClass, "a.example.com"+path))
	require.NoError(t, err)
	assert.Len(t, got.Losers, maxLosers)
}

func TestEntrances(t *testing.T) {
	t.Parallel()
	w := world(t,
		gateway(`{name: http, port: 80, protocol: HTTP, hostname: "*.example.com"}`),
		`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: g, name: other}, spec: {listeners: [{name: `+
			`http, port: 80, protocol: HTTP, hostname: "*.example.org"}, {name: tcp, port: 81, protocol: TCP}]}}`,
		class("k8s.io/ingress-nginx"), ingress("i", "", onHost("a.example.com", at("Prefix", "/", "s"))),
		virtual("m/v", hosts+`http: [{`+toHost("s")+`}]`),
	)
	got, err := w.EntrancesFor("A.example.com:8080")
	require.NoError(t, err)
	public := Entrance{Gateway: types.NamespacedName{Namespace: "g", Name: "public"}}
	assert.Equal(t, []Entrance{public, atOurClass, atTheIstioGateway}, got)
	got, err = w.EntrancesFor("b.example.com")
	require.NoError(t, err)
	assert.Equal(t, []Entrance{public}, got)
	_, err = w.EntrancesFor("*.example.com")
	require.ErrorIs(t, err, ErrInvalid)
}

func TestEntranceInMessages(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "Gateway g/public", atThePublicGateway.String())
	assert.Equal(t, "Gateway g/public port 80", Entrance{Gateway: atThePublicGateway.Gateway, Port: 80}.String())
	assert.Equal(t, "IngressClass ours", atOurClass.String())
	assert.Equal(t, "Istio Gateway istio/public", atTheIstioGateway.String())
	assert.Equal(t, "InferencePool m/p", Backend{Kind: KindInferencePool, Namespace: "m", Name: "p"}.String())
}
