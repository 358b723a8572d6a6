// Package semantics answers which backend a request reaches through a set of routing objects, and why.
//
// Its inputs are Gateways, HTTPRoutes, Ingresses, IngressClasses, VirtualServices, Middlewares and Namespaces (a World) and a
// Request. Its outputs are an Answer, or an Explanation with the rule that wins and the rules that lose to it. The package is
// pure, and the order of its inputs does not matter.
//
//	data plane                          file                                source of the model
//	Gateway API                         gatewayapi.go, gatewayrule.go       the specification, and Envoy Gateway
//	ingress-nginx, Traefik's NGINX      ingressnginx.go                     both
//	provider
//	Traefik's Ingress provider          traefik.go, middleware.go           Traefik, with and without strictPrefixMatching
//	Istio Gateways                      istio.go                            reference and source of pilot
//	any other ingress controller        none: ErrNotModeled
//
// Where two sources give different answers to a request, the answer is ErrAmbiguous: the objects do not decide between them.
//
// The whole-system test TestConformance compares the answers with Envoy Gateway and Traefik, not with ingress-nginx and Istio.
// An object that concerns the request and has a field that is not modeled is ErrNotModeled, never ignored. Objects that do
// not concern the request are not looked at. Services, endpoints, TLS, authentication, limits, load balancing and the headers
// that data planes add by themselves are not modeled: the answer is what they leave to the route.
//
// An answer takes time in the number of rules for the request's host, not in the number of objects.
package semantics

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	istiov1 "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// World is a set of objects that route requests. It does not change.
type World struct {
	gateways    map[types.NamespacedName]*gatewayv1.Gateway
	routes      map[types.NamespacedName]hostIndex[*gatewayv1.HTTPRoute] // by Gateway
	namespaces  map[string]map[string]string                             // labels
	ingresses   []*networkingv1.Ingress
	classes     []*networkingv1.IngressClass
	byClass     map[string]*classIndex
	middlewares map[string][]*unstructured.Unstructured       // by the name that annotations have for them
	istio       map[string]hostIndex[*istiov1.VirtualService] // by Gateway

	problems map[string]error // of objects that cannot be read in full, by identity
	seen     map[string]bool  // identities
}

// FromObjects returns a World of objects as they are read from the API server or from manifests. Objects of kinds that route
// no requests are ignored.
func FromObjects(objects []*unstructured.Unstructured) (*World, error) {
	w := &World{
		gateways: map[types.NamespacedName]*gatewayv1.Gateway{}, routes: map[types.NamespacedName]hostIndex[*gatewayv1.HTTPRoute]{},
		namespaces: map[string]map[string]string{}, byClass: map[string]*classIndex{}, middlewares: map[string][]*unstructured.Unstructured{},
		istio: map[string]hostIndex[*istiov1.VirtualService]{}, problems: map[string]error{}, seen: map[string]bool{},
	}
	if slices.Contains(objects, nil) {
		return nil, fmt.Errorf("an object is nil: %w", ErrInvalid)
	}
	for _, u := range slices.SortedStableFunc(slices.Values(objects), compareObjects) { // all that follows has one order
		if err := w.add(u); err != nil {
			return nil, fmt.Errorf("%s: %w", identity(u.GetKind(), u), err)
		}
	}
	for _, i := range w.ingresses { // their classes are known now
		w.addIngress(i)
	}
	return w, nil
}

func compareObjects(a, b *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

func (w *World) add(u *unstructured.Unstructured) error {
	group := u.GroupVersionKind().Group
	known := map[string]func(*unstructured.Unstructured) error{
		"Gateway." + gatewayv1.GroupName: w.addGateway, "HTTPRoute." + gatewayv1.GroupName: w.addHTTPRoute,
		"Ingress." + networkingv1.GroupName: w.queueIngress, "IngressClass." + networkingv1.GroupName: w.addClass,
		"VirtualService.networking.istio.io": w.addVirtualService, "Middleware.traefik.io": w.addMiddleware, "Namespace.": w.addNamespace,
	}
	add := known[u.GetKind()+"."+group]
	if add == nil {
		return nil
	}
	version := u.GroupVersionKind().Version
	if !slices.Contains([]string{"v1", "v1beta1", "v1alpha3"}, version) && u.GetKind() != "Middleware" {
		return fmt.Errorf("version %s: %w", version, ErrNotModeled)
	}
	id := identity(u.GetKind(), u)
	if w.seen[id] {
		return fmt.Errorf("it is there twice: %w", ErrInvalid)
	}
	w.seen[id] = true
	return add(u)
}

// identity names an object in messages.
func identity(kind string, o metav1.Object) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// decode reads an object into its type. Fields that the type does not have make no difference until the object concerns a
// request: they may be those of a later release.
func decode(w *World, u *unstructured.Unstructured, into any) error {
	content := make(map[string]any, len(u.Object))
	for key, value := range u.Object {
		if key != "status" { // it does not route requests
			content[key] = value
		}
	}
	strict := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, into, true)
	if strict == nil {
		return nil
	}
	w.problems[identity(u.GetKind(), u)] = strict
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, into); err != nil {
		return fmt.Errorf("decode: %w: %w", err, ErrInvalid)
	}
	return nil
}

// readable returns an error if an object has fields that are not known.
func (w *World) readable(kind string, o metav1.Object) error {
	if err := w.problems[identity(kind, o)]; err != nil {
		return fmt.Errorf("%s: %w: %w", identity(kind, o), err, ErrNotModeled)
	}
	return nil
}

func (w *World) addGateway(u *unstructured.Unstructured) error {
	g := &gatewayv1.Gateway{}
	if err := decode(w, u, g); err != nil {
		return err
	}
	w.gateways[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] = g
	return nil
}

func (w *World) addHTTPRoute(u *unstructured.Unstructured) error {
	route := &gatewayv1.HTTPRoute{}
	if err := decode(w, u, route); err != nil {
		return err
	}
	seen := map[types.NamespacedName]bool{}
	for i := range route.Spec.ParentRefs {
		p := &route.Spec.ParentRefs[i]
		parent := types.NamespacedName{Namespace: string(value(p.Namespace, gatewayv1.Namespace(route.Namespace))), Name: string(p.Name)}
		if seen[parent] {
			continue
		}
		seen[parent] = true
		if w.routes[parent] == nil {
			w.routes[parent] = hostIndex[*gatewayv1.HTTPRoute]{}
		}
		for _, h := range route.Spec.Hostnames {
			w.routes[parent].add(string(h), route)
		}
		if len(route.Spec.Hostnames) == 0 {
			w.routes[parent].add("", route)
		}
	}
	return nil
}

func (w *World) addNamespace(u *unstructured.Unstructured) error {
	n := &corev1.Namespace{}
	if err := decode(w, u, n); err != nil {
		return err
	}
	labels := map[string]string{corev1.LabelMetadataName: n.Name} // every namespace has it
	for key, value := range n.Labels {
		labels[key] = value
	}
	w.namespaces[n.Name] = labels
	return nil
}

func (w *World) queueIngress(u *unstructured.Unstructured) error {
	i := &networkingv1.Ingress{}
	if err := decode(w, u, i); err != nil {
		return err
	}
	w.ingresses = append(w.ingresses, i)
	return nil
}

func (w *World) addClass(u *unstructured.Unstructured) error {
	c := &networkingv1.IngressClass{}
	if err := decode(w, u, c); err != nil {
		return err
	}
	w.classes = append(w.classes, c)
	return nil
}

func (w *World) addMiddleware(u *unstructured.Unstructured) error {
	name := u.GetNamespace() + "-" + u.GetName()
	w.middlewares[name] = append(w.middlewares[name], u)
	return nil
}

// addVirtualService reads the specification by itself: the JSON of Istio's types ignores fields that it does not know.
func (w *World) addVirtualService(u *unstructured.Unstructured) error {
	v := &istiov1.VirtualService{}
	rest := u.DeepCopy()
	unstructured.RemoveNestedField(rest.Object, "spec")
	if err := decode(w, rest, v); err != nil {
		return err
	}
	text, err := json.Marshal(u.Object["spec"])
	if err != nil {
		return fmt.Errorf("decode: %w: %w", err, ErrInvalid)
	}
	if err := protojson.Unmarshal(text, &v.Spec); err != nil {
		w.problems[identity(u.GetKind(), u)] = err
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, &v.Spec); err != nil {
			return fmt.Errorf("decode: %w: %w", err, ErrInvalid)
		}
	}
	for _, gateway := range v.Spec.Gateways {
		if !strings.Contains(gateway, "/") {
			gateway = v.Namespace + "/" + gateway
		}
		if w.istio[gateway] == nil {
			w.istio[gateway] = hostIndex[*istiov1.VirtualService]{}
		}
		for _, host := range v.Spec.Hosts {
			w.istio[gateway].add(host, v)
		}
	}
	return nil
}

// value returns what a pointer points to, or a default for nil.
func value[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
