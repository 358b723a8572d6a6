package render

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	istioapi "istio.io/api/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// given is the input of a golden test: a service whose components are ready and have Services, and other objects.
type given struct {
	Config   map[string]any                   `json:"config"`
	Service  map[string]any                   `json:"service"` // InferenceService; its components are those of the specification
	Ports    map[isvc.Role]corev1.ServicePort `json:"ports"`
	Knative  []isvc.Role                      `json:"knative"`
	Class    string                           `json:"class"`     // controller of the default IngressClass
	Classes  []*networkingv1.IngressClass     `json:"-"`         // instead of Class
	Listener []gatewayv1.Listener             `json:"listeners"` // of Gateway gateways/public
	Features []gatewayv1.FeatureName          `json:"features"`
	Pools    []string                         `json:"pools"`
	Pickers  map[string]int32                 `json:"pickers"`   // Services, and their ports
	Selector map[isvc.Role]map[string]string  `json:"selectors"` // of OME's Services; empty: by app
}

// rendered is the result of a golden test.
type rendered struct {
	Reasons []string         `json:"reasons,omitempty"` // why a component is not exposed
	URLs    []string         `json:"urls,omitempty"`
	Objects []map[string]any `json:"objects,omitempty"`
}

func TestRender(t *testing.T) {
	t.Parallel()
	golden.Run(t, "testdata", func(t *testing.T, in given) rendered {
		var out rendered
		p, params := in.plan(t)
		for _, r := range p.Reasons {
			out.Reasons = append(out.Reasons, strings.TrimSpace(fmt.Sprintf("%s %s: %s", r.Role, r.Reason, r.Message)))
		}
		for _, e := range p.Exposures {
			out.URLs = append(out.URLs, e.URL)
		}
		for _, o := range render(t, p, params) {
			out.Objects = append(out.Objects, o.Object.Object)
		}
		return out
	})
}

// plan builds the plan.
func (in *given) plan(t *testing.T) (*plan.Plan, Params) {
	t.Helper()
	u := &unstructured.Unstructured{Object: in.Service}
	u.SetNamespace("models")
	u.SetUID("6d5f4c1e-0000-4000-8000-000000000000")
	s, err := isvc.Read(u)
	require.NoError(t, err)
	input := &plan.Input{
		Service: s, Knative: map[isvc.Role]bool{}, Live: map[plan.Slot][]isvc.Role{}, Pools: map[string]*inferencev1.InferencePool{},
		Labels: map[string]string{},
	}
	for _, r := range in.Knative {
		input.Knative[r] = true
	}
	for _, r := range isvc.Roles {
		if s.Components[r] == nil {
			continue
		}
		s.Conditions = append(s.Conditions,
			isvc.Condition{Type: strings.ToUpper(string(r[:1])) + string(r[1:]) + "Ready", Status: metav1.ConditionTrue})
		if !input.Knative[r] {
			input.Services = append(input.Services, in.service(s, r))
		}
	}
	input.Classes = in.Classes
	if in.Class != "" {
		input.Classes = []*networkingv1.IngressClass{{
			ObjectMeta: metav1.ObjectMeta{
				Name: "default", Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"},
			},
			Spec: networkingv1.IngressClassSpec{Controller: in.Class},
		}}
	}
	if in.Listener != nil {
		input.Gateways = in.gateways()
	}
	for _, name := range in.Pools {
		input.Pools[name] = &inferencev1.InferencePool{}
	}
	for name, port := range in.Pickers {
		input.Pickers = map[string]*corev1.Service{name: {Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}}}}
	}
	text, err := yaml.Marshal(in.Config)
	require.NoError(t, err)
	d, err := settings.Parse(text)
	require.NoError(t, err)
	input.Settings, err = (&settings.Config{Document: d, ClusterDomain: "cluster.local"}).ResolveSettings(s)
	require.NoError(t, err)
	p := plan.Build(input)
	return &p, Params{Service: s, Settings: &input.Settings, Classes: input.Classes}
}

// service returns the Service that OME creates for a component.
func (in *given) service(s *isvc.Service, r isvc.Role) *corev1.Service {
	port, found := in.Ports[r]
	if !found {
		port = corev1.ServicePort{Name: "http1", Port: 8080}
	}
	selector := in.Selector[r]
	if selector == nil {
		selector = map[string]string{"app": backend.ServiceName(s.Name, r)}
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: backend.ServiceName(s.Name, r), Labels: map[string]string{
				backend.LabelComponent: string(r), backend.LabelService: s.Name,
			},
			OwnerReferences: []metav1.OwnerReference{{UID: s.UID, Controller: new(true)}},
		},
		Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{port}, Selector: selector},
	}
}

func (in *given) gateways() map[types.NamespacedName]gatewayapi.Gateway {
	class := &gatewayv1.GatewayClass{}
	for _, f := range in.Features {
		class.Status.SupportedFeatures = append(class.Status.SupportedFeatures, gatewayv1.SupportedFeature{Name: f})
	}
	return map[types.NamespacedName]gatewayapi.Gateway{{Namespace: "gateways", Name: "public"}: {
		Gateway: &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: "gateways", Name: "public"}, Spec: gatewayv1.GatewaySpec{Listeners: in.Listener},
		},
		Class: class,
	}}
}

// render renders a plan, and checks the properties that all objects must have.
func render(t *testing.T, p *plan.Plan, params Params) []Object {
	t.Helper()
	objects, err := Render(p, params)
	require.NoError(t, err)
	again, err := Render(p, params)
	require.NoError(t, err)
	require.Equal(t, encoded(t, objects), encoded(t, again), "Render returns the same objects again")
	names := map[string]bool{}
	for _, o := range objects {
		assertObject(t, &o, params.Service)
		name := o.Resource.String() + " " + o.Object.GetName()
		assert.False(t, names[name], "duplicate object %s", name)
		names[name] = true
	}
	return objects
}

func encoded(t *testing.T, objects []Object) []string {
	t.Helper()
	var texts []string
	for _, o := range objects {
		text, err := json.Marshal(o.Object)
		require.NoError(t, err)
		texts = append(texts, string(text))
	}
	return texts
}

func assertObject(t *testing.T, o *Object, s *isvc.Service) {
	t.Helper()
	assertStrict(t, o)
	u, name := o.Object, o.Object.GetName()
	assert.Equal(t, s.Namespace, u.GetNamespace())
	assert.Equal(t, o.Resource.GroupVersion().String(), u.GetAPIVersion())
	assert.Empty(t, validation.IsDNS1035Label(name), name)
	for _, r := range isvc.Roles {
		assert.NotEqual(t, backend.ServiceName(s.Name, r), name, "OME uses this name")
	}
	assert.NotEqual(t, s.Name, name, "OME uses this name")
	for key, value := range u.GetLabels() {
		assert.Empty(t, validation.IsQualifiedName(key), key)
		assert.Empty(t, validation.IsValidLabelValue(value), "%s: %s", key, value)
		assert.NotEqual(t, "component", key)
		assert.NotContains(t, key, "ome.io/")
	}
	for key := range u.GetAnnotations() {
		assert.Empty(t, validation.IsQualifiedName(strings.ToLower(key)), key)
		assert.NotContains(t, key, "ome.io/")
	}
	assert.Equal(t, Manager, u.GetLabels()[LabelManagedBy])
	assert.Equal(t, NameLabel(s.Name), u.GetLabels()[LabelService])
	assert.Equal(t, string(o.Slot), u.GetLabels()[LabelSlot])
	assert.Equal(t, o.Exposure != nil, u.GetLabels()[LabelComponent] != "")
	owner := metav1.GetControllerOf(u)
	require.NotNil(t, owner)
	assert.Equal(t, s.UID, owner.UID)
	assert.Nil(t, owner.BlockOwnerDeletion)
	assert.NotContains(t, u.Object, "status")
	assert.NotContains(t, u.Object["metadata"], "creationTimestamp")
}

// assertStrict checks that the Go type of an object has all fields of the object.
func assertStrict(t *testing.T, o *Object) {
	t.Helper()
	typed := map[string]any{
		"HTTPRoute": &gatewayv1.HTTPRoute{}, "Ingress": &networkingv1.Ingress{}, "InferencePool": &inferencev1.InferencePool{},
		"Service": &corev1.Service{},
	}[o.Object.GetKind()]
	switch {
	case typed != nil:
		text, err := json.Marshal(o.Object.Object)
		require.NoError(t, err)
		unknown, err := kjson.UnmarshalStrict(text, typed, kjson.DisallowUnknownFields)
		require.NoError(t, err)
		require.Empty(t, unknown)
	case o.Object.GetKind() == "VirtualService":
		text, err := json.Marshal(o.Object.Object["spec"])
		require.NoError(t, err)
		spec := &istioapi.VirtualService{}
		require.NoError(t, protojson.Unmarshal(text, spec))
		require.False(t, proto.Equal(spec, &istioapi.VirtualService{}))
	default:
		require.Equal(t, "Middleware", o.Object.GetKind(), "an unchecked kind")
	}
}

// strategies are configurations, by strategy.
var strategies = map[string]string{
	"httproute": "omeIngressGateway: gateways/public", "ingress": "strategy: ingress",
	"virtualservice": "strategy: virtualservice\ningressGateway: istio/public",
}

// serve renders a service with an engine, a decoder and a router under a configuration.
func serve(t *testing.T, name, config string, change ...func(*given)) []Object {
	t.Helper()
	in := given{
		Config: golden.Decode[map[string]any](t, []byte("ingressDomain: example.com\ncomponentHosts: true\n"+config)),
		Service: golden.Decode[map[string]any](t,
			[]byte("{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: \""+name+
				"\"}, spec: {engine: {}, decoder: {}, router: {}}}")),
		Class: "traefik.io/ingress-controller",
	}
	for _, f := range change {
		f(&in)
	}
	p, params := in.plan(t)
	return render(t, p, params)
}

func names(objects []Object) []string {
	var all []string
	for _, o := range objects {
		all = append(all, o.Object.GetKind()+" "+o.Object.GetName())
	}
	return all
}

func TestNamesOfAnyLength(t *testing.T) {
	t.Parallel()
	for strategy, config := range strategies {
		for _, n := range []int{1, 45, 46, 56, 57, 63, 64, 200, 253} {
			t.Run(fmt.Sprintf("%s %d", strategy, n), func(t *testing.T) {
				t.Parallel()
				a, b := strings.Repeat("n", n), strings.Repeat("n", n-1)+"m"
				config := config + "\nperISVCSubdomain: false\nfallbackService: {enabled: true}\n"
				if strategy == "httproute" {
					config += "inferencePool: {endpointPickerRef: {name: picker}}"
				}
				own, others := names(serve(t, a, config)), names(serve(t, b, config))
				require.NotEmpty(t, own)
				for _, name := range own {
					assert.NotContains(t, others, name, "names with the same beginning")
				}
			})
		}
	}
}

func TestTheNameIsKeptWhereTheLabelHasAHash(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 64)
	for _, o := range serve(t, long, "domainTemplate: long.example.com") {
		assert.Equal(t, long, o.Object.GetAnnotations()["fairlead.dev/inferenceservice"])
		assert.Len(t, o.Object.GetLabels()[LabelService], 32)
	}
	for _, o := range serve(t, "chat", "") {
		assert.NotContains(t, o.Object.GetAnnotations(), "fairlead.dev/inferenceservice")
	}
}

func TestServicesNeverMeet(t *testing.T) {
	t.Parallel()
	for _, config := range strategies {
		config += "\nfallbackService: {enabled: true}"
		seen := map[string]string{}
		for _, service := range []string{"a", "a-engine", "a-router", "a-fairlead", "a-fairlead-engine", "a-entry"} {
			for _, name := range names(serve(t, service, config)) {
				assert.Empty(t, seen[name], "%s belongs to %s and to %s", name, seen[name], service)
				seen[name] = service
			}
		}
	}
}

// Names depend on the purpose of an object, not on its backend.
func TestANewNameIsANewWayIn(t *testing.T) {
	t.Parallel()
	entry := func(config string, change ...func(*given)) string {
		return names(serve(t, "chat", config, change...))[0]
	}
	const gateway = "omeIngressGateway: gateways/public"
	was := entry(gateway)
	assert.NotEqual(t, was, entry("omeIngressGateway: gateways/inner"))
	assert.NotEqual(t, was, entry("omeIngressGateway: gateways/public/http"))
	assert.NotEqual(t, was, entry(gateway+"\ndomainTemplate: a.example.com"))
	assert.NotEqual(t, was, entry(gateway+"\nperISVCSubdomain: false"))
	assert.Equal(t, was, entry(gateway+"\ndefaultRouteTimeoutSeconds: 7\nannotations: {a: b}\nlabels: {c: d}"))
	assert.Equal(t, was, entry(gateway, func(in *given) {
		delete(in.Service["spec"].(map[string]any), "router")
	}), "the component is not part of the name")
	assert.NotEqual(t, was[len("HTTPRoute "):], entry("strategy: ingress")[len("Ingress "):])
}

// Every object gets the copied labels, and each kind its own annotations. Package settings decides what to copy.
func TestCopiedMetadata(t *testing.T) {
	t.Parallel()
	copied := `copyAnnotations: [example.com/route, example.com/both]
labels: {team: admin}
annotations: {example.com/both: admin}
fallbackService: {enabled: true, copyAnnotations: [example.com/lb, example.com/both], annotations: {example.com/both: admin-too}}
`
	for strategy, config := range strategies {
		objects := serve(t, "chat", copied+config, func(in *given) {
			meta := in.Service["metadata"].(map[string]any)
			meta["labels"] = map[string]any{"tier": "gold", "team": "tenant", "component": "engine", "example.com/other": "x"}
			meta["annotations"] = map[string]any{
				"example.com/route": "r", "example.com/lb": "l", "example.com/both": "tenant", "other": "x",
			}
		})
		require.Len(t, objects, 4, strategy)
		for _, o := range objects {
			labels, annotations := o.Object.GetLabels(), o.Object.GetAnnotations()
			assert.Equal(t, "gold", labels["tier"])
			assert.Equal(t, "admin", labels["team"], "the administrator's value overrides the tenant's")
			assert.NotContains(t, labels, "component")
			assert.NotContains(t, labels, "example.com/other")
			assert.NotContains(t, annotations, "other")
			if o.Exposure == nil {
				assert.Equal(t, "l", annotations["example.com/lb"])
				assert.Equal(t, "admin-too", annotations["example.com/both"], "the administrator's value overrides the tenant's")
				assert.NotContains(t, annotations, "example.com/route")
				continue
			}
			assert.Equal(t, "r", annotations["example.com/route"])
			assert.Equal(t, "admin", annotations["example.com/both"], "the administrator's value overrides the tenant's")
			assert.NotContains(t, annotations, "example.com/lb")
		}
	}
}

// Annotations for other hosts, priorities, certificates or configuration text have no effect.
func TestAnnotationsOfAHostileTenant(t *testing.T) {
	t.Parallel()
	const issuer = "cert-manager.io/cluster-issuer"
	hostile := map[string]any{
		"nginx.ingress.kubernetes.io/server-alias": "chat.victim.example.com", "nginx.ingress.kubernetes.io/configuration-snippet": "x",
		"nginx.ingress.kubernetes.io/canary": "true", "nginx.ingress.kubernetes.io/auth-url": "http://evil.example",
		"konghq.com/host-aliases": "chat.victim.example.com", "haproxy-ingress.github.io/server-alias-regex": ".*",
		"external-dns.alpha.kubernetes.io/hostname": "login.bank.example", "external-dns.alpha.kubernetes.io/target": "203.0.113.9",
		issuer: "prod", "cert-manager.io/issuer": "prod", "nginx.org/server-snippets": "x",
		"traefik.ingress.kubernetes.io/router.priority": "99999", "alb.ingress.kubernetes.io/group.name": "victim",
		"service.beta.kubernetes.io/load-balancer-source-ranges": "0.0.0.0/0", "nginx.ingress.kubernetes.io/limit-rps": "5",
	}
	for _, controller := range ingressclass.Controllers() {
		t.Run(controller.Name, func(t *testing.T) {
			t.Parallel()
			objects := serve(t, "eve", "strategy: ingress\ntlsIssuer: ClusterIssuer/admin\nfallbackService: {enabled: true, type: "+
				"LoadBalancer}", func(in *given) {
				in.Class = controller.SpecControllers[0]
				in.Service["metadata"].(map[string]any)["annotations"] = hostile
			})
			require.NotEmpty(t, objects)
			for _, o := range objects {
				got := o.Object.GetAnnotations()
				for key := range hostile {
					switch {
					case key == "nginx.ingress.kubernetes.io/limit-rps" && o.Exposure != nil:
						assert.Equal(t, "5", got[key], "the annotation is safe")
					case key == issuer && o.Exposure != nil:
						assert.Equal(t, "admin", got[key], "the administrator's issuer")
					default:
						assert.NotContains(t, got, key)
					}
				}
			}
		})
	}
}

// The administrator's annotations override computed annotations, and computed annotations override the tenant's.
func TestPrecedenceOfAnnotations(t *testing.T) {
	t.Parallel()
	const prefix = "nginx.ingress.kubernetes.io/"
	const timeout, size, target, limit = prefix +
		"proxy-read-timeout", prefix + "proxy-body-size", prefix + "rewrite-target", prefix + "limit-rps"
	objects := serve(t, "chat", "perISVCSubdomain: false\ncopyAnnotations: [nginx.ingress.kubernetes.io/*]\nannotations: {"+size+": 1g, "+
		target+": /}", func(in *given) {
		in.Class = "k8s.io/ingress-nginx"
		in.Service["metadata"].(map[string]any)["annotations"] = map[string]any{timeout: "60", size: "2g", target: "/x", limit: "5"}
	})
	got := objects[0].Object.GetAnnotations()
	assert.Equal(t, "604800", got[timeout], "the computed annotation overrides the tenant's")
	assert.Equal(t, "1g", got[size], "the administrator's annotation overrides the computed annotation")
	assert.Equal(t, "/$2", got[target], "the rewrite annotation is always computed")
	assert.Equal(t, "5", got[limit])
}

// cert-manager rejects an Ingress that names an Issuer and a ClusterIssuer.
func TestTheConfiguredIssuerIsAlone(t *testing.T) {
	t.Parallel()
	tenants := map[string]any{
		"cert-manager.io/issuer": "tenant", "cert-manager.io/issuer-kind": "Other", "cert-manager.io/issuer-group": "other.example.com",
		"cert-manager.io/cluster-issuer": "tenant", "cert-manager.io/common-name": "tenant",
	}
	annotations := func(config string) map[string]string {
		return serve(t, "chat", "strategy: ingress\ncopyAnnotations: [cert-manager.io/*]\n"+config, func(in *given) {
			in.Service["metadata"].(map[string]any)["annotations"] = tenants
		})[0].Object.GetAnnotations()
	}
	got := annotations("tlsIssuer: Issuer/admin")
	delete(got, "fairlead.dev/claim")
	assert.Equal(t, map[string]string{"cert-manager.io/issuer": "admin", "cert-manager.io/common-name": "tenant"}, got)
	got = annotations("tlsSecretName: other")
	assert.Equal(t, "tenant", got["cert-manager.io/cluster-issuer"], "without a configured issuer, the copied annotation is kept")
}

func TestMiddlewaresOfTheAdministrator(t *testing.T) {
	t.Parallel()
	const key = "traefik.ingress.kubernetes.io/router.middlewares"
	objects := serve(t, "chat", "perISVCSubdomain: false\nannotations: {"+key+": auth@file}")
	require.Equal(t, "Middleware", objects[0].Object.GetKind(), "an object comes after the objects that it refers to")
	assert.Equal(t, "auth@file,models-"+objects[0].Object.GetName()+"@kubernetescrd", objects[1].Object.GetAnnotations()[key])
}

func TestReferencedObjectsComeFirst(t *testing.T) {
	t.Parallel()
	objects := serve(t, "chat", "omeIngressGateway: gateways/public\ninferencePool: {endpointPickerRef: {name: "+
		"picker}}\nfallbackService: {enabled: true}", func(in *given) {
		in.Pickers = map[string]int32{"picker": 9002}
		delete(in.Service["spec"].(map[string]any), "router")
	})
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.Object.GetKind())
	}
	assert.Equal(t, []string{"InferencePool", "Service", "HTTPRoute", "HTTPRoute"}, kinds)
}

func TestNothingComesOfNothing(t *testing.T) {
	t.Parallel()
	objects, err := Render(&plan.Plan{}, Params{Service: &isvc.Service{}, Settings: &settings.Settings{}})
	require.NoError(t, err)
	assert.Empty(t, objects)
}
