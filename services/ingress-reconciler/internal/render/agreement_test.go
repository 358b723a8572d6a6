package render_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/semantics"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// world contains one Gateway of each kind.
type world struct {
	gateway *gatewayv1.Gateway
	class   *networkingv1.IngressClass
}

func newWorld(controller string) *world {
	all := gatewayv1.NamespacesFromAll
	return &world{
		gateway: &gatewayv1.Gateway{
			TypeMeta:   metav1.TypeMeta{APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "gateways", Name: "public"},
			Spec: gatewayv1.GatewaySpec{Listeners: []gatewayv1.Listener{{
				Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType,
				AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &all}},
			}}},
		},
		class: &networkingv1.IngressClass{
			TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"},
			ObjectMeta: metav1.ObjectMeta{
				Name: "default", Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"},
			},
			Spec: networkingv1.IngressClassSpec{Controller: controller},
		},
	}
}

// strategies are the configurations of each strategy that the evaluator models, and the entrances of their requests.
var strategies = []struct {
	name, config, controller string
	entrance                 semantics.Entrance
}{
	{
		name: "httproute", config: "omeIngressGateway: gateways/public",
		entrance: semantics.Entrance{Gateway: types.NamespacedName{Namespace: "gateways", Name: "public"}},
	},
	{
		name: "virtualservice", config: "strategy: virtualservice\ningressGateway: istio/public",
		entrance: semantics.Entrance{IstioGateway: "istio/public"},
	},
	{name: "ingress-nginx", controller: "k8s.io/ingress-nginx", entrance: semantics.Entrance{IngressClass: "default"}},
	{name: "traefik", controller: "traefik.io/ingress-controller", entrance: semantics.Entrance{IngressClass: "default"}},
}

// expose renders a service of these components.
func (w *world) expose(t *testing.T, name, config string, roles []isvc.Role, labels map[string]string) []*unstructured.Unstructured {
	t.Helper()
	yes := true
	s := &isvc.Service{Namespace: "models", Name: name, UID: types.UID(name), Labels: labels, Components: map[isvc.Role]*isvc.Component{}}
	in := &plan.Input{
		Service: s, Classes: []*networkingv1.IngressClass{w.class},
		Gateways: map[types.NamespacedName]gatewayapi.Gateway{{Namespace: "gateways", Name: "public"}: {Gateway: w.gateway}},
	}
	for _, r := range roles {
		s.Components[r] = &isvc.Component{}
		s.Conditions = append(s.Conditions,
			isvc.Condition{Type: strings.ToUpper(string(r[:1])) + string(r[1:]) + "Ready", Status: metav1.ConditionTrue})
		in.Services = append(in.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "models", Name: backend.ServiceName(name, r), Labels: map[string]string{backend.LabelComponent: string(r)},
				OwnerReferences: []metav1.OwnerReference{{UID: s.UID, Controller: &yes}},
			},
			Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: "http1", Port: 8080}}},
		})
	}
	d, err := settings.Parse([]byte(config))
	require.NoError(t, err)
	in.Settings, err = (&settings.Config{Document: d, ClusterDomain: "cluster.local"}).ResolveSettings(s)
	require.NoError(t, err)
	p := plan.Build(in)
	objects, err := render.Render(&p, render.Params{Service: s, Settings: &in.Settings})
	require.NoError(t, err)
	var all []*unstructured.Unstructured
	for _, o := range objects {
		all = append(all, o.Object)
	}
	return all
}

// ask returns the destination of a request, as "service:port path", or the reason why it has none. It fails if the ages of the
// objects matter.
func (w *world) ask(t *testing.T, objects []*unstructured.Unstructured, request semantics.Request) string {
	t.Helper()
	oldestFirst := w.askByAge(t, objects, request)
	reversed := slices.Clone(objects)
	slices.Reverse(reversed)
	assert.Equal(t, oldestFirst, w.askByAge(t, reversed, request), "with the ages reversed")
	return oldestFirst
}

// askByAge returns the destination for objects that were created in the order of the list.
func (w *world) askByAge(t *testing.T, objects []*unstructured.Unstructured, request semantics.Request) string {
	t.Helper()
	objects = slices.Clone(objects)
	for _, typed := range []runtime.Object{w.gateway, w.class} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		require.NoError(t, err)
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	for i, o := range objects {
		objects[i] = o.DeepCopy()
		objects[i].SetCreationTimestamp(metav1.NewTime(time.Unix(int64(i), 0)))
	}
	known, err := semantics.FromObjects(objects)
	require.NoError(t, err)
	explained, err := known.ExplainRequest(request)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s:%d %s", explained.Answer.Backend.Name, explained.Answer.Backend.Port, explained.Answer.Path)
}

func TestRequestsReachTheEntry(t *testing.T) {
	t.Parallel()
	const e, d, r = isvc.Engine, isvc.Decoder, isvc.Router
	for _, roles := range [][]isvc.Role{{e}, {e, d}, {r, e}, {r, e, d}, {r}, {d}, {r, d}} {
		for _, strategy := range strategies {
			for _, shared := range []string{"", "perISVCSubdomain: false\n"} {
				for _, local := range []string{"", "cluster-local"} {
					for _, hosts := range []string{"", "componentHosts: true\n"} {
						t.Run(fmt.Sprint(roles, strategy.name, shared, local, hosts), func(t *testing.T) {
							t.Parallel()
							w := newWorld(strategy.controller)
							config := "ingressDomain: example.com\n" + shared + hosts + strategy.config
							objects := w.expose(t, "chat", config, roles, map[string]string{"networking.knative.dev/visibility": local})
							for _, name := range []string{"chat", "chat-router", "chat-engine", "chat-decoder"} {
								request := semantics.Request{
									Entrance: strategy.entrance, Host: name + ".models.example.com", Path: "/v1/chat/completions",
									Method: http.MethodPost,
								}
								if shared != "" {
									request.Host, request.Path = "llm.example.com", "/models/"+name+request.Path
								}
								want := wanted(name, roles, hosts != "")
								if local != "" {
									want = ""
								}
								got := w.ask(t, objects, request)
								if want == "" {
									assert.NotContains(t, got, ":8080", name)
									continue
								}
								assert.Equal(t, want+":8080 /v1/chat/completions", got, name)
							}
						})
					}
				}
			}
		}
	}
}

// wanted returns the Service that receives the requests for a name, or "" if none does.
func wanted(name string, roles []isvc.Role, hosts bool) string {
	entry := isvc.Role("")
	for _, r := range []isvc.Role{isvc.Router, isvc.Engine} {
		if entry == "" && slices.Contains(roles, r) {
			entry = r
		}
	}
	role := isvc.Role(strings.TrimPrefix(name, "chat-"))
	switch {
	case entry == "":
		return ""
	case name == "chat":
		return "chat-" + string(entry)
	case hosts && role != entry && slices.Contains(roles, role):
		return name
	}
	return ""
}

// TestStrategiesAgree requests paths near the paths of services whose names have a common prefix.
func TestStrategiesAgree(t *testing.T) {
	t.Parallel()
	tests := []struct {
		path, want string
	}{
		{path: "/models/chat/v1/chat/completions", want: "chat-engine:8080 /v1/chat/completions"},
		{path: "/models/chat/", want: "chat-engine:8080 /"},
		{path: "/models/chat2/v1/models", want: "chat2-engine:8080 /v1/models"},
		{path: "/models/chat.2/v1/models", want: ""},
		{path: "/models/chatter/v1/models", want: ""},
		{path: "/models/", want: ""},
		{path: "/v1/models", want: ""},
	}
	for _, strategy := range strategies {
		for _, tt := range tests {
			t.Run(strategy.name+tt.path, func(t *testing.T) {
				t.Parallel()
				w := newWorld(strategy.controller)
				config := "ingressDomain: example.com\nperISVCSubdomain: false\n" + strategy.config
				objects := append(w.expose(t, "chat", config, []isvc.Role{isvc.Engine}, nil),
					w.expose(t, "chat2", config, []isvc.Role{isvc.Engine}, nil)...)
				got := w.ask(t, objects,
					semantics.Request{Entrance: strategy.entrance, Host: "llm.example.com", Path: tt.path, Method: http.MethodGet})
				if tt.want == "" {
					assert.NotContains(t, got, ":8080")
					return
				}
				assert.Equal(t, tt.want, got)
			})
		}
	}
}

func TestManyModelsOnOneHost(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies[:2] {
		t.Run(strategy.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld("")
			config := "ingressDomain: example.com\nmodelBasedRoutingHeaderName: X-Gateway-Model-Name\n" + strategy.config
			objects := append(w.expose(t, "chat", config, []isvc.Role{isvc.Engine}, nil),
				w.expose(t, "code", config, []isvc.Role{isvc.Router, isvc.Engine}, nil)...)
			for model, want := range map[string]string{
				"chat": "chat-engine:8080 /v1/completions", "code": "code-router:8080 /v1/completions",
			} {
				assert.Equal(t, want, w.ask(t, objects, semantics.Request{
					Entrance: strategy.entrance, Host: "llm.example.com", Path: "/v1/completions", Method: http.MethodPost,
					Header: map[string]string{"X-Gateway-Model-Name": model},
				}))
			}
			assert.NotContains(t,
				w.ask(t, objects,
					semantics.Request{
						Entrance: strategy.entrance, Host: "llm.example.com", Path: "/v1/completions", Method: http.MethodPost,
					}),
				":8080")
		})
	}
}

// TestLongerPathsWin tests a model, a path and a longer path on one host. Within one service, the longest path receives the requests,
// even if the data plane orders routes differently.
func TestLongerPathsWin(t *testing.T) {
	t.Parallel()
	const nested = `
perISVCSubdomain: false
sharedHostPrefix: ''
componentHosts: true
pathTemplate: '/models/chat/{{ if eq .Name "chat" }}v2{{ else }}v2/{{ .Name }}{{ end }}'
`
	tests := []struct{ path, model, want string }{
		{path: "/models/chat/v1/models", want: "chat-router:8080 /v1/models"},
		{path: "/models/chat/v2/v1/models", want: "chat-router:8080 /v1/models"},
		{path: "/models/chat/v2/chat-engine/v1/models", want: "chat-engine:8080 /v1/models"},
		{path: "/models/chat-engine/v1/models", want: "chat-engine:8080 /v1/models"},
		{path: "/models/chat/v1/models", model: "chat", want: "chat-router:8080 /v1/models"},
		{path: "/models/chat/v2/chat-engine/v1/models", model: "chat", want: "chat-engine:8080 /v1/models"},
		{path: "/v1/models", model: "chat", want: "chat-router:8080 /v1/models"},
		{path: "/v1/models", model: "other"},
		{path: "/v1/models"},
	}
	for _, strategy := range strategies {
		config := "ingressDomain: example.com\n" + nested + strategy.config
		if strategy.controller == "" {
			config += "\nmodelBasedRoutingHeaderName: X-Gateway-Model-Name"
		}
		for _, tt := range tests {
			if tt.model != "" && strategy.controller != "" {
				continue // an Ingress cannot select by a header
			}
			t.Run(strategy.name+tt.path+tt.model, func(t *testing.T) {
				t.Parallel()
				w := newWorld(strategy.controller)
				objects := w.expose(t, "chat", config, []isvc.Role{isvc.Router, isvc.Engine}, nil)
				request := semantics.Request{
					Entrance: strategy.entrance, Host: "example.com", Path: tt.path, Method: http.MethodGet, Header: map[string]string{},
				}
				if tt.model != "" {
					request.Header["X-Gateway-Model-Name"] = tt.model
				}
				got := w.ask(t, objects, request)
				if tt.want == "" {
					assert.NotContains(t, got, ":8080")
					return
				}
				assert.Equal(t, tt.want, got)
			})
		}
	}
}

// TestModelsAndPathsOfOtherServices tests services whose models and paths share a host. The Gateway API prefers the longer path to the
// header match.
func TestModelsAndPathsOfOtherServices(t *testing.T) {
	t.Parallel()
	w, strategy := newWorld(""), strategies[0]
	require.Equal(t, "httproute", strategy.name)
	config := "ingressDomain: example.com\nperISVCSubdomain: false\nmodelBasedRoutingHeaderName: X-Gateway-Model-Name\n" + strategy.config
	objects := append(w.expose(t, "chat", config, []isvc.Role{isvc.Engine}, nil),
		w.expose(t, "code", config, []isvc.Role{isvc.Engine}, nil)...)
	for path, want := range map[string]string{
		"/v1/models": "chat-engine:8080 /v1/models", "/models/code/v1/models": "code-engine:8080 /v1/models",
		"/models/chat/v1/models": "chat-engine:8080 /v1/models",
	} {
		assert.Equal(t, want, w.ask(t, objects, semantics.Request{
			Entrance: strategy.entrance, Host: "llm.example.com", Path: path, Header: map[string]string{"X-Gateway-Model-Name": "chat"},
		}))
	}
}
