package commands

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/golden"
)

// requested runs plan --request on files: the example of the repository and additional manifests.
func requested(t *testing.T, manifests string, args ...string) (out, log string, err error) {
	t.Helper()
	return run(t, manifests, append([]string{
		"plan", "--config", examples + "/values.yaml", "-f", examples + "/service.yaml", "-f", examples + "/gateway.yaml", "-f", "-",
		"--request",
	}, args...)...)
}

const (
	chatURL = "http://chat.models.llm.example.com"
	// other is a route of another owner, for a longer path of the same host.
	other = `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: other, namespace: models,
	creationTimestamp: "2026-01-01T00:00:00Z"}, spec: {parentRefs: [{name: public, namespace: gateways}],
		hostnames: [chat.models.llm.example.com], rules: [{matches: [{path: {type: PathPrefix, value: /v1}, headers: [{name: X-Model,
		value: a}]}], backendRefs: [{name: canary, port: 80}]}]}}`
	// same is an older route for the same host and path.
	same = `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: zz, namespace: models,
	creationTimestamp: "2026-01-01T00:00:00Z"}, spec: {parentRefs: [{name: public, namespace: gateways}],
		hostnames: [chat.models.llm.example.com], rules: [{backendRefs: [{name: canary, port: 80}]}]}}`
	// second is another Gateway for all hosts.
	second = "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: second, namespace: gateways}, spec: " +
		"{gatewayClassName: x, listeners: [{name: http, port: 8080, protocol: HTTP}]}}"
)

func TestRequest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, manifests string
		args            []string
		err             error
	}{
		{name: "answered", args: []string{"GET", chatURL + "/v1/models?a=b"}},
		{name: "in one word", args: []string{"GET " + chatURL}},
		{name: "won-by-header", manifests: other, args: []string{"POST", chatURL + "/v1/x", "-H", "x-model: a"}},
		{name: "header-of-another", manifests: other, args: []string{"POST", chatURL + "/v1/x", "-H", "x-model: b"}},
		{name: "lost-to-an-older-route", manifests: same, args: []string{"GET", chatURL + "/"}},
		{name: "no-route", args: []string{"GET", "http://nobody.example.com/"}, err: ErrNoRoute},
		{name: "two-entrances", manifests: second, args: []string{"GET", chatURL + "/"}},
		{name: "one-of-two-entrances", manifests: second, args: []string{"GET", chatURL + "/", "--entrance", "gateways/public"}},
		{name: "no-such-entrance", args: []string{"GET", chatURL + "/", "--entrance", "nginx"}, err: ErrNoRoute},
		{name: "port-without-listener", args: []string{"GET", chatURL + ":30080/"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, _, err := requested(t, tt.manifests, tt.args...)
			require.ErrorIs(t, err, tt.err)
			document, _, err := requested(t, tt.manifests, append(tt.args, "-o", "json")...)
			require.ErrorIs(t, err, tt.err)
			assert.True(t, json.Valid([]byte(document)))
			golden.File(t, "testdata/request/"+strings.ReplaceAll(tt.name, " ", "-")+".txt", []byte(out+"\n"+document))
		})
	}
}

func TestHostileRequests(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 101 {
		many = append(many, "-H", fmt.Sprintf("X-%d: a", i))
	}
	tests := []struct {
		name, want string
		args       []string
	}{
		{name: "method in lower case", args: []string{"get", chatURL}, want: "method get: methods are case-sensitive: use GET"},
		{name: "method with a space", args: []string{"GE T", chatURL}, want: errNoRequest.Error()},
		{name: "method with a sign", args: []string{"GET\x00", chatURL}, want: `method "GET\x00" does not consist of letters`},
		{name: "no URL", args: []string{"GET"}, want: errNoRequest.Error()},
		{name: "two URLs", args: []string{"GET", chatURL, chatURL}, want: errNoRequest.Error()},
		{
			name: "no scheme", args: []string{"GET", "chat.example.com/"},
			want: `URL "chat.example.com/" is not of the form http://host/path or https://host/path`,
		},
		{
			name: "another scheme", args: []string{"GET", "ftp://chat.example.com/"},
			want: `URL "ftp://chat.example.com/" is not of the form http://host/path or https://host/path`,
		},
		{
			name: "no host", args: []string{"GET", "http:///a"},
			want: `URL "http:///a" is not of the form http://host/path or https://host/path`,
		},
		{
			name: "credentials", args: []string{"GET", "http://a:b@c/"},
			want: `URL "http://a:b@c/" is not of the form http://host/path or https://host/path`,
		},
		{name: "port too large", args: []string{"GET", "http://a:99999/"}, want: `URL "http://a:99999/": 99999 is not a port`},
		{
			name: "control character", args: []string{"GET", "http://a/\n"},
			want: `URL: parse "http://a/\n": net/url: invalid control character in URL`,
		},
		{
			name: "long URL", args: []string{"GET", "http://a/" + strings.Repeat("a", maxURL)},
			want: "the URL has 8201 bytes: at most 8192 are allowed",
		},
		{name: "dots", args: []string{"GET", chatURL + "/a/../b"}, want: `Gateway gateways/public port 80: path "/a/../b"`},
		{name: "escapes", args: []string{"GET", chatURL + "/%2e"}, want: `path "/%2e" is not absolute, or can be written in another way`},
		{name: "many headers", args: append([]string{"GET", chatURL}, many...), want: "101 headers: at most 100 are allowed"},
		{
			name: "long header", args: []string{"GET", chatURL, "-H", "A: " + strings.Repeat("a", maxHeader)},
			want: "has 8195 bytes: at most 8192 are allowed",
		},
		{name: "header without a name", args: []string{"GET", chatURL, "-H", ": a"}, want: `header ": a" is not of the form 'Name: value'`},
		{
			name: "header without a value", args: []string{"GET", chatURL, "-H", "X-Model"},
			want: `header "X-Model" is not of the form 'Name: value'`,
		},
		{
			name: "header with a space", args: []string{"GET", chatURL, "-H", "X Model: a"},
			want: `header "X Model: a" is not of the form 'Name: value'`,
		},
		{
			name: "header with a line break", args: []string{"GET", chatURL, "-H", "X: a\r\nY: b"},
			want: `header "X: a\r\nY: b" has a control character`,
		},
		{name: "header Host", args: []string{"GET", chatURL, "-H", "host: a"}, want: "header Host: put the host into the URL"},
		{name: "header twice", args: []string{"GET", chatURL, "-H", "X-A: a", "-H", "x-a: b"}, want: "header X-A is given twice"},
		{name: "host that is none", args: []string{"GET", "http://a_b/"}, want: "a_b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := requested(t, "", tt.args...)
			require.ErrorContains(t, err, strings.TrimPrefix(tt.want, "Gateway gateways/public port 80: "))
			require.NotErrorIs(t, err, ErrNoRoute)
			out, _, _ := requested(t, "", append(tt.args, "-o", "json")...)
			assert.Contains(t, golden.Decode[map[string]string](t, []byte(out)), "error")
		})
	}
}

// In a cluster, plan --request uses the existing objects. With --planned it uses the planned objects.
func TestRequestInACluster(t *testing.T) {
	t.Parallel()
	service := `{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: chat, namespace: models, uid: u-1, ` +
		`creationTimestamp: "2026-01-01T00:00:00Z"}, spec: {engine: {}}, status: {conditions: [{type: EngineReady, status: "True"}]}}`
	backend := `{apiVersion: v1, kind: Service, metadata: {name: chat-engine, namespace: models, labels: {ome.io/inferenceservice: ` +
		`chat, component: engine}, ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u-1, ` +
		`controller: true}]}, spec: {ports: [{port: 8080}]}}`
	gateway := "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: public, namespace: gateways}, spec: " +
		"{gatewayClassName: x, listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}}"
	config := file(t, "ingressDomain: llm.example.com\nomeIngressGateway: gateways/public\n")
	args := []string{"plan", "--config", config, "--request", "GET", chatURL + "/v1/x", "-H", "X-Model: a", "-o", "json"}
	answered := func(out string) string {
		a := golden.Decode[answer](t, []byte(out))
		require.NotNil(t, a.Backend, out)
		return a.Object.Name + " " + a.Backend.Name
	}
	_, kubeconfig := startAPIServer(t, []string{"virtualservices"}, service, backend, gateway, same)
	out, log, err := run(t, "", append(args, kubeconfig)...)
	require.NoError(t, err, log)
	assert.Equal(t, "zz canary", answered(out))
	assert.Contains(t, log, "virtualservices.networking.istio.io: skipped, because this user may not list them\n")

	out, log, err = run(t, "", append(args, kubeconfig, "--planned")...)
	require.NoError(t, err, log)
	assert.Equal(t, "zz canary", answered(out), "a planned object is younger than an existing object")

	_, kubeconfig = startAPIServer(t, nil, service, backend, gateway, strings.ReplaceAll(same, "chat.models.llm", "other"))
	out, _, err = run(t, "", append(args, kubeconfig)...)
	require.ErrorIs(t, err, ErrNoRoute)
	assert.Contains(t, out, "no route")
	out, log, err = run(t, "", append(args, kubeconfig, "--planned")...)
	require.NoError(t, err, log)
	assert.Equal(t, "chat-fairlead-12b6f8a0 chat-engine", answered(out))

	t.Log("A live object that the plan replaces, and a live object that the plan does not contain")
	stale := `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: %s, namespace: models,
	creationTimestamp: "2026-01-01T00:00:00Z", labels: {fairlead.dev/managed-by: ingress-reconciler, fairlead.dev/slot: entry,
	fairlead.dev/component: engine},
		ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u-1, controller: true}]},
		spec: {parentRefs: [{name: public, namespace: gateways}], hostnames: [chat.models.llm.example.com],
		rules: [{backendRefs: [{name: stale, port: 80}]}]}}`
	for _, name := range []string{"chat-fairlead-12b6f8a0", "chat-fairlead-00000000"} {
		_, kubeconfig = startAPIServer(t, nil, service, backend, gateway, fmt.Sprintf(stale, name))
		out, _, err = run(t, "", append(args, kubeconfig)...)
		require.NoError(t, err)
		assert.Equal(t, name+" stale", answered(out))
		out, _, err = run(t, "", append(args, kubeconfig, "--planned")...)
		require.NoError(t, err)
		assert.Equal(t, "chat-fairlead-12b6f8a0 chat-engine", answered(out))
	}
}
