package commands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Manifests of clusters from public reports, in short form.
const (
	chatService = `
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat, namespace: models, uid: u, creationTimestamp: "2026-01-01T00:00:00Z", annotations: {}}
spec: {engine: {}}
---
`
	openGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: gateways}
spec: {gatewayClassName: envoy, listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}
---
`
	classes = `
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx}, spec: {controller: k8s.io/ingress-nginx}}
---
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: traefik}, spec: {controller: traefik.io/ingress-controller}}
---
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: haproxy}, spec: {controller: haproxy.org/ingress-controller}}
---
`
	domain       = "ingressDomain: example.org\n"
	byHTTPRoute  = domain + "omeIngressGateway: gateways/public\n"
	byIngress    = domain + "strategy: ingress\ningressClassName: "
	byIstio      = domain + "strategy: virtualservice\ningressGateway: istio/public\n"
	istioGateway = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: istio}
spec: {selector: {istio: x}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*/*"]}]}
---
`
)

// foreign returns a route of namespace web for a host and path, older than the service unless a year is given.
func foreign(kind, host, path string, year int, more string) string {
	meta := fmt.Sprintf(`metadata: {name: legacy, namespace: web, creationTimestamp: "%d-01-01T00:00:00Z"%s}`, year, more)
	switch kind {
	case "HTTPRoute":
		return fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, %s,
			spec: {parentRefs: [{name: public, namespace: gateways}], hostnames: [%s],
			rules: [{matches: [{path: {type: PathPrefix, value: %s}}], backendRefs: [{name: legacy, port: 80}]}]}}`, meta, host, path)
	case "VirtualService":
		return fmt.Sprintf(`{apiVersion: networking.istio.io/v1beta1, kind: VirtualService, %s,
			spec: {gateways: [istio/public], hosts: [%s],
			http: [{match: [{uri: {prefix: %s}}], route: [{destination: {host: legacy.web.svc.cluster.local, port: {number: 80}}}]}]}}`,
			meta, host, path)
	}
	return fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: Ingress, %s,
		spec: {ingressClassName: %s, rules: [{host: %s, http: {paths: [
		{path: %s, pathType: Prefix, backend: {service: {name: legacy, port: {number: 80}}}}]}}]}}`, meta, kind, host, path)
}

// messages returns the messages of plan.
func messages(t *testing.T, config, manifests string, args ...string) string {
	t.Helper()
	_, log, _ := run(t, manifests, append([]string{"plan", "--config", file(t, config), "-f", "-"}, args...)...)
	return log
}

// A data plane can send the requests for a host to a route of somebody else: the condition says so.
func TestRoutesOfOthers(t *testing.T) {
	t.Parallel()
	const host, conflict = "chat.models.example.org", "condition False HostConflict: "
	const leftOver = `, ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u, controller: true}]`
	tests := []struct {
		name, config, other string
		gateway             string // more of the listener
		want                []string
		not                 string
	}{
		{
			name: "an older HTTPRoute", config: byHTTPRoute, other: foreign("HTTPRoute", host, "/", 2025, ""),
			want: []string{
				conflict,
				"HTTPRoute web/legacy answers chat.models.example.org/, not this program's route (this program's route loses: its " +
					"object is younger)",
			},
		},
		{
			name: "an older HTTPRoute for another host", config: byHTTPRoute,
			other: foreign("HTTPRoute", "other.example.org", "/", 2025, ""), not: "legacy",
		},
		{
			name: "a wildcard is less specific", config: byHTTPRoute, other: foreign("HTTPRoute", "'*.models.example.org'", "/", 2025, ""),
			not: "legacy",
		},
		{
			name: "an older HTTPRoute for the paths of the API", config: byHTTPRoute, other: foreign("HTTPRoute", host, "/v1", 2025, ""),
			not: conflict, want: []string{"HostConflict: HTTPRoute web/legacy answers chat.models.example.org/v1/chat/completions"},
		},
		{
			name: "an older HTTPRoute for another path of the API", config: byHTTPRoute,
			other: strings.Replace(foreign("HTTPRoute", host, "/v1/models", 2025, ""), "matches: [{", "matches: [{method: GET, ", 1),
			not:   conflict,
			want:  []string{"HostConflict: HTTPRoute web/legacy answers chat.models.example.org/v1/models (this program's route loses: "},
		},
		{
			name: "Envoy Gateway prefers a regular expression", config: byHTTPRoute,
			other: strings.Replace(foreign("HTTPRoute", host, "/.*", 2025, ""), "PathPrefix", "RegularExpression", 1),
			want: []string{
				conflict,
				"HTTPRoute web/legacy answers chat.models.example.org/, not this program's route (the data plane can choose either route)",
			},
		},
		{
			name: "without hostnames at a listener for the host", config: byHTTPRoute, gateway: "hostname: " + host + ", ",
			want:  []string{conflict, "its object is younger"},
			other: strings.Replace(foreign("HTTPRoute", host, "/", 2025, ""), "hostnames: ["+host+"],", "", 1),
		},
		{
			name: "without hostnames at a listener for all hosts", config: byHTTPRoute, not: "legacy",
			other: strings.Replace(foreign("HTTPRoute", host, "/", 2025, ""), "hostnames: ["+host+"],", "", 1),
		},
		{
			name: "a canary of ingress-nginx is a part of another Ingress", config: byIngress + "haproxy\n", not: conflict,
			other: foreign("haproxy", host, "/", 2025, `, annotations: {nginx.ingress.kubernetes.io/canary: "true"}`),
		},
		{
			name: "a younger Ingress of a controller that is not modeled", config: byIngress + "haproxy\n",
			other: foreign("haproxy", host, "/", 2099, ""), not: conflict,
		},
		{
			name: "an HTTPRoute that is being deleted", config: byHTTPRoute,
			other: foreign("HTTPRoute", host, "/", 2025, `, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [a/b]`), not: "legacy",
		},
		{name: "an HTTPRoute for another path", config: byHTTPRoute, other: foreign("HTTPRoute", host, "/docs", 2025, ""), not: "legacy"},
		{
			name: "a label does not hide it", config: byHTTPRoute,
			other: foreign("HTTPRoute", host, "/", 2025, ", labels: {fairlead.dev/managed-by: ingress-reconciler}"),
			want:  []string{conflict},
		},
		{
			name: "a left-over of OME", config: byHTTPRoute,
			other: strings.Replace(foreign("HTTPRoute", host, "/", 2025, leftOver), "namespace: web", "namespace: models", 1),
			not:   conflict, want: []string{"HTTPRoute models/legacy of OME answers", "ingress-reconciler adopt deletes it"},
		},
		{
			name: "an older Ingress", config: byIngress + "nginx\n", other: foreign("nginx", host, "/", 2025, ""),
			want: []string{conflict, "Ingress web/legacy"},
		},
		{name: "an Ingress of another class", config: byIngress + "nginx\n", other: foreign("traefik", host, "/", 2025, ""), not: "legacy"},
		{
			name: "Traefik can choose", config: byIngress + "traefik\n", other: foreign("traefik", host, "/", 2025, ""),
			want: []string{conflict, "Ingress web/legacy", "the data plane can choose either route"},
		},
		{
			name: "a controller that is not modeled", config: byIngress + "haproxy\n", other: foreign("haproxy", host, "/", 2025, ""),
			want: []string{conflict, "it has the same path and is older"},
		},
		{
			name: "an older VirtualService", config: byIstio, other: foreign("VirtualService", host, "/", 2025, ""),
			want: []string{conflict, "VirtualService web/legacy"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			log := messages(t, tt.config,
				chatService+strings.Replace(openGateway, "{name: http, ", "{name: http, "+tt.gateway, 1)+istioGateway+classes+tt.other)
			for _, want := range append(tt.want, "would be created") {
				assert.Contains(t, log, want)
			}
			if tt.not != "" {
				assert.NotContains(t, log, tt.not)
			}
		})
	}
}

// A rewrite of ingress-nginx changes how all paths of its host match, also those of other Ingresses.
func TestRewritesOfIngressNGINX(t *testing.T) {
	t.Parallel()
	const byPath = byIngress + "nginx\npathTemplate: /{{ .Namespace }}/{{ .Name }}\n"
	const refused = "PathRewriteUnsupported: a rewrite of path /models/chat/ makes ingress-nginx match all paths of host example.org as " +
		"regular expressions, and Ingress web/legacy has paths there: remove pathTemplate, or choose another host"
	tests := []struct{ name, config, manifests, want, not string }{
		{
			name: "the host of a portal", config: byPath, manifests: foreign("nginx", "example.org", "/Docs", 2025, ""), want: refused,
			not: "http://example.org/models/chat/ reaches",
		},
		{
			name: "an annotation of a tenant", config: byIngress + "nginx\n", want: refused, not: "http://example.org/models/chat/ reaches",
			manifests: "\n---\n" +
				strings.Replace(chatService, "annotations: {}", "annotations: {ome.io/ingress-path-template: '/models/chat'}", 1) +
				foreign("nginx", "example.org", "/Docs", 2025, ""),
		},
		{
			name: "a class in the older annotation", config: byPath,
			manifests: strings.Replace(foreign("x", "example.org", "/Docs", 2025, ", annotations: {kubernetes.io/ingress.class: nginx}"),
				"ingressClassName: x, ", "", 1),
			want: refused,
		},
		{
			name: "another host", config: byPath, manifests: foreign("nginx", "portal.example.org", "/Docs", 2025, ""),
			want: "http://example.org/models/chat/ reaches", not: refused,
		},
		{
			name: "a proof of cert-manager", config: byPath, want: "http://example.org/models/chat/ reaches", not: "PathRewriteUnsupported",
			manifests: foreign("nginx", "example.org", "/.well-known/acme-challenge/x", 2025,
				`, labels: {acme.cert-manager.io/http01-solver: "true"}`),
		},
		{
			name: "another controller", config: byPath, manifests: foreign("traefik", "example.org", "/Docs", 2025, ""),
			want: "http://example.org/models/chat/ reaches", not: refused,
		},
		{
			name: "Traefik", config: strings.Replace(byPath, "nginx", "traefik", 1),
			manifests: foreign("traefik", "example.org", "/Docs", 2025, ""), want: "http://example.org/models/chat/ reaches", not: refused,
		},
		{
			name: "an existing route stays", config: byPath, want: "http://example.org/models/chat/ reaches the engine",
			manifests: foreign("nginx", "example.org", "/Docs", 2025, "") + `
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: chat-fairlead-0
  namespace: models
  labels: {fairlead.dev/managed-by: ingress-reconciler, fairlead.dev/slot: entry, fairlead.dev/component: engine}
  annotations: {fairlead.dev/claim: example.org/models/chat/}
  ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u, controller: true}]
spec: {ingressClassName: nginx}
`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			manifests := chatService + classes + tt.manifests
			if strings.Contains(tt.manifests, "kind: InferenceService, metadata") ||
				strings.Contains(tt.manifests, "kind: InferenceService\n") {
				manifests = tt.manifests + "\n---\n" + classes
			}
			log := messages(t, tt.config, manifests)
			assert.Contains(t, log, tt.want)
			if tt.not != "" {
				assert.NotContains(t, log, tt.not)
			}
		})
	}
}

// engineService returns the engine's Service with one port.
func engineService(port, more string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: chat-engine, namespace: models,
	labels: {ome.io/inferenceservice: chat, component: engine}%s,
		ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u, controller: true}]},
		spec: {selector: {app: chat-engine}, ports: [%s]}}
---
`, more, port)
}

const readyChat = `
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat, namespace: models, uid: u, creationTimestamp: "2026-01-01T00:00:00Z", annotations: {}}
spec: {engine: {}}
status: {conditions: [{type: EngineReady, status: "True"}]}
---
`

// OME's runtimes for gpt-oss and llama-4 have a port for gRPC only.
func TestBackendsThatSpeakOnlyGRPC(t *testing.T) {
	t.Parallel()
	const (
		grpc   = "{name: grpc1, port: 8080}"
		h2c    = "{name: grpc1, port: 8080, appProtocol: kubernetes.io/h2c}"
		only   = "GRPCOnly: port grpc1 of Service chat-engine speaks only gRPC: clients of the REST API cannot use it"
		cannot = "condition False GRPCOnly: "
	)
	tests := []struct{ name, config, port, more, want, not, out string }{
		{
			name: "an HTTPRoute speaks HTTP/1.1", config: byHTTPRoute, port: grpc,
			want: "and the data plane speaks HTTP/1.1 to it: set servicePortAppProtocols: {grpc1: kubernetes.io/h2c} in the " +
				"InferenceService",
		},
		{name: "an HTTPRoute and appProtocol", config: byHTTPRoute, port: h2c, want: only, not: cannot},
		{
			name: "ingress-nginx", config: byIngress + "nginx\n", port: grpc, want: only, not: cannot,
			out: "nginx.ingress.kubernetes.io/backend-protocol: GRPC\n",
		},
		{name: "haproxy", config: byIngress + "haproxy\n", port: grpc, want: only, not: cannot, out: "haproxy.org/server-proto: h2\n"},
		{
			name: "Traefik", config: byIngress + "traefik\n", port: grpc,
			want: "annotate the InferenceService with traefik.ingress.kubernetes.io/service.serversscheme: h2c",
		},
		{
			name: "Traefik with its annotation", config: byIngress + "traefik\n", port: grpc,
			more: ", annotations: {traefik.ingress.kubernetes.io/service.serversscheme: h2c}", want: only, not: cannot,
		},
		{name: "Istio", config: byIstio, port: grpc, want: only, not: cannot},
		{name: "Istio and appProtocol", config: byIstio, port: h2c, want: only, not: cannot},
		{
			name: "an HTTP port beside it", config: byHTTPRoute,
			port: "{name: grpc, port: 9000, appProtocol: kubernetes.io/h2c}, {name: rest, port: 8080}", not: "gRPC", out: "port: 8080\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, log, _ := run(t, readyChat+engineService(tt.port, tt.more)+openGateway+istioGateway+classes, "plan", "--config",
				file(t, tt.config), "-f", "-")
			assert.Contains(t, log, tt.want)
			assert.Contains(t, out, tt.out)
			if tt.not != "" {
				assert.NotContains(t, log, tt.not)
			}
		})
	}
}

// OME's Service of mode MultiNodeRayVLLM has a selector that its pods do not match.
func TestServicesThatSelectNoPods(t *testing.T) {
	t.Parallel()
	slice := func(endpoints string) string {
		return `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {name: chat-engine-x, namespace: models,
			labels: {kubernetes.io/service-name: chat-engine, ome.io/inferenceservice: chat, component: engine}}, endpoints: [` +
			endpoints + `]}`
	}
	const warning = "NoPods: Service chat-engine selects no pods, so requests fail: no pod has the labels app=chat-engine"
	for name, tt := range map[string]struct {
		isvc, slice string
		want        bool
	}{
		"no endpoint":                     {readyChat, slice(""), true},
		"an endpoint that is not ready":   {readyChat, slice("{addresses: [10.0.0.1], conditions: {ready: false}}"), false},
		"no EndpointSlice yet":            {readyChat, "", false},
		"no replicas, as the owner wants": {strings.Replace(readyChat, "engine: {}", "engine: {minReplicas: 0}", 1), slice(""), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := messages(t, byHTTPRoute, tt.isvc+engineService("{name: http1, port: 8080}", "")+openGateway+tt.slice)
			assert.Equal(t, tt.want, strings.Contains(log, warning), log)
		})
	}
}

// TLS can end before the Gateway, and its port can be mapped: the explicit scheme and port win, in all three kinds.
func TestURLsOfClients(t *testing.T) {
	t.Parallel()
	gateway := strings.Replace(openGateway, "port: 80", "port: 8080", 1)
	istio := strings.Replace(istioGateway, "number: 80", "number: 8080", 1)
	tests := []struct{ name, config, want string }{
		{"the listener", "", "http://chat.models.example.org:8080/"},
		{"TLS at the load balancer", "urlScheme: https\n", "https://chat.models.example.org/"},
		{"a NodePort", "urlPort: 30080\n", "http://chat.models.example.org:30080/"},
		{"both", "urlScheme: https\nurlPort: 8443\n", "https://chat.models.example.org:8443/"},
		{"the default port", "urlScheme: https\nurlPort: 443\n", "https://chat.models.example.org/"},
	}
	for _, tt := range tests {
		for _, config := range []string{byHTTPRoute, byIstio, byIngress + "nginx\n"} {
			want := tt.want
			if config == byIngress+"nginx\n" { // an Ingress has no listener
				want = strings.Replace(want, ":8080/", "/", 1)
			}
			assert.Contains(t, messages(t, config+tt.config, chatService+gateway+istio+classes), "models/chat: "+want+" reaches",
				tt.name+" "+config)
		}
	}
	annotated := strings.Replace(chatService, "annotations: {}", "annotations: {ome.io/ingress-url-scheme: https}", 1)
	assert.Contains(t, messages(t, byHTTPRoute, annotated+gateway), "models/chat: https://chat.models.example.org/ reaches",
		"also by annotation")
	tls := messages(t, byIngress+"nginx\ntlsSecretName: x\n", chatService+classes)
	assert.Contains(t, tls, "https://chat.models.example.org/")
	_, _, err := run(t, chatService, "plan", "--config", file(t, byHTTPRoute+"urlPort: 70000\n"), "-f", "-")
	assert.ErrorContains(t, err, "urlPort: 70000 is not a port")
}

// OME's documentation has annotations that OME does not read. A service that its owner marked as private is not public.
func TestAnnotationsOfOMEsDocumentation(t *testing.T) {
	t.Parallel()
	for annotation, want := range map[string]string{
		`ome.io/disable-ingress: "true"`:  `Disabled: the owner of the service set the annotation ome.io/disable-ingress: "true"`,
		`ome.io/disable-ingress: "false"`: "http://chat.models.example.org/ reaches",
		"ome.io/ingress-class: nginx": "AnnotationIgnored: annotation ome.io/ingress-class has no effect: an administrator " +
			"sets ingressClassName",
		`ome.io/ingress-disable-creation: "true"`: "AnnotationIgnored: annotation ome.io/ingress-disable-creation turns off OME's " +
			"routes only",
	} {
		log := messages(t, byHTTPRoute, strings.Replace(chatService, "annotations: {}", "annotations: {"+annotation+"}", 1)+openGateway)
		assert.Contains(t, log, want)
		assert.Equal(t, !strings.HasPrefix(want, "Disabled"), strings.Contains(log, "would be created"), annotation)
	}
	for value, private := range map[string]bool{`"True"`: true, `"yes"`: true, `"1"`: true, `"False"`: false, `""`: false} {
		log := messages(t, byHTTPRoute,
			strings.Replace(chatService, "annotations: {}",
				"annotations: {ome.io/disable-ingress: "+value+", ome.io/ingress-url-scheme: ftp}", 1)+openGateway)
		assert.Equal(t, private, strings.Contains(log, "condition False Disabled"), value+log)
	}
	log := messages(t, byHTTPRoute+"overrides: [{names: [chat], enabled: true}]\n",
		strings.Replace(chatService, "annotations: {}", `annotations: {ome.io/disable-ingress: "true"}`, 1)+openGateway)
	assert.NotContains(t, log, "would be created", "no override makes it public")
}

// A Gateway of Gateway API 1.5 can leave its listeners to ListenerSets.
func TestListenerSets(t *testing.T) {
	t.Parallel()
	const set = `{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {name: team-a, namespace: team-a},
	spec: {parentRef: {name: public, namespace: gateways},
		listeners: [{name: ai, hostname: '*.models.example.org', port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: ai}]},
		allowedRoutes: {namespaces: {from: %s}}}]}}`
	config := file(t, domain+"omeIngressGateway: team-a/team-a\n")
	for allowed, want := range map[string]string{
		"All": "condition Unknown ParentStatusNotAvailable: https://chat.models.example.org/; ListenerSet team-a/team-a: no controller " +
			"has reported a status yet",
		"Same": "condition False ListenerNotAllowed: ",
	} {
		out, log, _ := run(t, chatService+openGateway+fmt.Sprintf(set, allowed), "plan", "--config", config, "-f", "-")
		assert.Contains(t, log, want)
		assert.Contains(t, out, "    kind: ListenerSet\n    name: team-a\n    namespace: team-a\n")
	}
	for parent, want := range map[string]bool{
		"{kind: ListenerSet, name: team-a, namespace: team-a}": true, "{name: team-a, namespace: team-a}": false,
		"{name: public, namespace: gateways}": false,
	} {
		other := strings.Replace(foreign("HTTPRoute", "chat.models.example.org", "/", 2025, ""), "{name: public, namespace: gateways}",
			parent, 1)
		_, log, _ := run(t, chatService+openGateway+fmt.Sprintf(set, "All")+"\n---\n"+other, "plan", "--config", config, "-f", "-")
		assert.Equal(t, want, strings.Contains(log, "condition False HostConflict: "), log)
	}
}

// A Traefik without its provider kubernetesCRD answers 404 for an Ingress with a Middleware (traefik#11510). The class says what it reads.
func TestRewritesOfTraefikNeedItsCustomResources(t *testing.T) {
	t.Parallel()
	const unknown = "PathRewriteUnsupported: IngressClass hangzhou does not say whether its controller reads traefik.io/v1alpha1: if it " +
		"does not, requests for path " +
		"/models/chat/ get 404. Annotate the IngressClass with fairlead.dev/custom-resources: traefik.io/v1alpha1, or none"
	const refused = "PathRewriteUnsupported: IngressClass hangzhou cannot rewrite path /models/chat/ on host llm.example.org: "
	for metadata, want := range map[string]bool{
		"labels: {fairlead.dev/pool: hangzhou}": false,
		"labels: {fairlead.dev/pool: hangzhou}, annotations: {fairlead.dev/custom-resources: traefik.io/v1alpha1}": true,
		"annotations: {fairlead.dev/custom-resources: none}":                                                       false,
		"labels: {app.kubernetes.io/managed-by: Helm}":                                                             true,
	} {
		class := "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: hangzhou, " + metadata +
			"}, spec: {controller: traefik.io/ingress-controller}}"
		out, log, _ := run(t, chatService+class, "plan", "--config", file(t, byIngress+"hangzhou\nperISVCSubdomain: false\n"), "-f", "-")
		assert.Equal(t, want, strings.Contains(out, "kind: Middleware"), metadata)
		assert.Equal(t, !want, strings.Contains(log, refused), metadata+log)
		assert.Equal(t, strings.Contains(metadata, "Helm"), strings.Contains(log, unknown), metadata+log)
		assert.Equal(t, want, strings.Contains(log, "condition Unknown LoadBalancerPending"), metadata+log)
	}
}

// cert-manager gives a Certificate to one Ingress: of several services of a namespace on one host, the oldest Ingress requests it.
func TestOneCertificateForASharedHost(t *testing.T) {
	t.Parallel()
	config := file(t, byIngress+"nginx\nperISVCSubdomain: false\ntlsIssuer: ClusterIssuer/letsencrypt\n")
	embed := strings.NewReplacer("name: chat", "name: embed", "uid: u,", "uid: e,").Replace(chatService)
	const issuer = "cert-manager.io/cluster-issuer: letsencrypt"
	out, _, _ := run(t, chatService+classes, "plan", "--config", config, "-f", "-")
	assert.Equal(t, 1, strings.Count(out, issuer), "the first service requests it")
	existing := strings.Replace(out, "  name: chat-fairlead", "  creationTimestamp: \"2026-01-01T00:00:00Z\"\n  name: chat-fairlead", 1)

	out, log, _ := run(t, chatService+embed+classes+existing, "plan", "--config", config, "-f", "-")
	assert.Equal(t, 1, strings.Count(out, issuer), "the next one uses its Secret"+log)
	assert.Equal(t, 2, strings.Count(out, "secretName: llm.example.org-tls\n"))
	assert.Contains(t, log, "models/embed: Ingress ")
	assert.NotRegexp(t, "models/chat: Ingress .* would be created", log, "the first exists")

	out, _, _ = run(t, embed+chatService+classes, "plan", "--config", config, "-f", "-")
	assert.Equal(t, 1, strings.Count(out, issuer), "of two new services one requests it")

	out, _, _ = run(t, embed+classes, "plan", "--config", config, "-f", "-")
	assert.Equal(t, 1, strings.Count(out, issuer), "without the first, the next one requests it")
}
