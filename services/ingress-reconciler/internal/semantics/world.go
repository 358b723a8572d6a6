// Package semantics determines the backend that a request reaches through a set of routing objects, and explains why.
//
// The input is a World of Gateways, HTTPRoutes, Ingresses, IngressClasses, VirtualServices, Middlewares and Namespaces, and a
// Request. The output is an Answer, or an Explanation with the rule that wins and the rules that lose to it. The package is pure,
// and the order of the objects does not matter.
//
//	data plane                          file                                source of the model
//	Gateway API                         gatewayapi.go, gatewayrule.go       the specification, and Envoy Gateway
//	ingress-nginx, Traefik's NGINX      ingressnginx.go                     both
//	provider
//	Traefik's Ingress provider          traefik.go, middleware.go           Traefik, with and without strictPrefixMatching
//	Istio Gateways                      istio.go                            Istio's reference, and the source of pilot
//	any other ingress controller        none: ErrNotModeled
//
// If two sources give different answers to a request, the result is ErrAmbiguous, because the objects do not determine the answer.
//
// The subtest conformance in deploy/local/e2e/ingress compares answers with Envoy Gateway and Traefik. No test compares them with
// ingress-nginx or Istio.
//
// If an object that could match the request has a field that is not modeled, the result is ErrNotModeled: the package never ignores
// such a field. Fields of other objects do not matter. The package does not model Services, endpoints, TLS, authentication, limits,
// load balancing, and headers that data planes add.
//
// The time for an answer depends on the number of rules for the host of the request, not on the number of objects.
package semantics

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// World is an immutable set of objects that route requests.
type World struct {
	gateways    map[types.NamespacedName]*gatewayv1.Gateway
	routes      map[types.NamespacedName]hostIndex[*gatewayv1.HTTPRoute] // by Gateway
	namespaces  map[string]map[string]string                             // labels
	ingresses   []*networkingv1.Ingress
	classes     []*networkingv1.IngressClass
	byClass     map[string]*classIndex
	middlewares map[string][]*unstructured.Unstructured       // by their name in annotations
	istio       map[string]hostIndex[*istiov1.VirtualService] // by Gateway

	problems map[string]error // decoding problems, such as unknown fields, by identity
	seen     map[string]bool  // identities of all objects
}

// FromObjects returns a World of objects from the API server or from manifests. It ignores objects of kinds that do not route
// requests.
func FromObjects(objects []*unstructured.Unstructured) (*World, error) {
	w := &World{
		gateways: map[types.NamespacedName]*gatewayv1.Gateway{}, routes: map[types.NamespacedName]hostIndex[*gatewayv1.HTTPRoute]{},
		namespaces: map[string]map[string]string{}, byClass: map[string]*classIndex{},
		middlewares: map[string][]*unstructured.Unstructured{}, istio: map[string]hostIndex[*istiov1.VirtualService]{},
		problems: map[string]error{}, seen: map[string]bool{},
	}
	if slices.Contains(objects, nil) {
		return nil, fmt.Errorf("an object is nil: %w", ErrInvalid)
	}
	for _, u := range slices.SortedStableFunc(slices.Values(objects), compareObjects) { // a stable order
		if err := w.addObject(u); err != nil {
			return nil, fmt.Errorf("%s: %w", objectIdentity(u.GetKind(), u), err)
		}
	}
	for _, i := range w.ingresses { // after all IngressClasses have been added
		w.addIngress(i)
	}
	return w, nil
}

func compareObjects(a, b *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetNamespace(), b.GetNamespace()),
		cmp.Compare(a.GetName(), b.GetName()))
}

func (w *World) addObject(u *unstructured.Unstructured) error {
	group := u.GroupVersionKind().Group
	known := map[string]func(*unstructured.Unstructured) error{
		"Gateway." + gatewayv1.GroupName: w.addGateway, "HTTPRoute." + gatewayv1.GroupName: w.addHTTPRoute,
		"Ingress." + networkingv1.GroupName:      func(u *unstructured.Unstructured) error { return appendDecoded(w, u, &w.ingresses) },
		"IngressClass." + networkingv1.GroupName: func(u *unstructured.Unstructured) error { return appendDecoded(w, u, &w.classes) },
		"VirtualService.networking.istio.io":     w.addVirtualService,
		"Middleware.traefik.io":                  w.addMiddleware, "Namespace.": w.addNamespace,
	}
	add := known[u.GetKind()+"."+group]
	if add == nil {
		return nil
	}
	version := u.GroupVersionKind().Version
	if !slices.Contains([]string{"v1", "v1beta1", "v1alpha3"}, version) && u.GetKind() != "Middleware" {
		return fmt.Errorf("version %s: %w", version, ErrNotModeled)
	}
	id := objectIdentity(u.GetKind(), u)
	if w.seen[id] {
		return fmt.Errorf("duplicate object: %w", ErrInvalid)
	}
	w.seen[id] = true
	return add(u)
}

// objectIdentity returns the name of an object for messages.
func objectIdentity(kind string, o metav1.Object) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// decodeObject decodes an object into its Go type. It only records unknown fields, which a later release may define: readable returns them
// as an error if a request could match the object.
func decodeObject[T any](w *World, u *unstructured.Unstructured) (*T, error) {
	content := make(map[string]any, len(u.Object))
	for key, value := range u.Object {
		if key != "status" { // the status does not route requests
			content[key] = value
		}
	}
	decoded := new(T)
	strict := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, decoded, true)
	if strict == nil {
		return decoded, nil
	}
	w.problems[objectIdentity(u.GetKind(), u)] = strict
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, decoded); err != nil {
		return nil, fmt.Errorf("decode: %w: %w", err, ErrInvalid)
	}
	return decoded, nil
}

// checkReadable returns an error if an object has unknown fields.
func (w *World) checkReadable(kind string, o metav1.Object) error {
	if err := w.problems[objectIdentity(kind, o)]; err != nil {
		return fmt.Errorf("%s: %w: %w", objectIdentity(kind, o), err, ErrNotModeled)
	}
	return nil
}

func (w *World) addGateway(u *unstructured.Unstructured) error {
	g, err := decodeObject[gatewayv1.Gateway](w, u)
	if err != nil {
		return err
	}
	w.gateways[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] = g
	return nil
}

func (w *World) addHTTPRoute(u *unstructured.Unstructured) error {
	route, err := decodeObject[gatewayv1.HTTPRoute](w, u)
	if err != nil {
		return err
	}
	seen := map[types.NamespacedName]bool{}
	for i := range route.Spec.ParentRefs {
		p := &route.Spec.ParentRefs[i]
		parent := types.NamespacedName{
			Namespace: string(ptr.Deref(p.Namespace, gatewayv1.Namespace(route.Namespace))), Name: string(p.Name),
		}
		if seen[parent] {
			continue
		}
		seen[parent] = true
		for _, h := range route.Spec.Hostnames {
			indexHost(w.routes, parent, string(h), route)
		}
		if len(route.Spec.Hostnames) == 0 {
			indexHost(w.routes, parent, "", route)
		}
	}
	return nil
}

func (w *World) addNamespace(u *unstructured.Unstructured) error {
	labels := map[string]string{corev1.LabelMetadataName: u.GetName()} // the API server sets this label on every namespace
	maps.Copy(labels, u.GetLabels())
	w.namespaces[u.GetName()] = labels
	return nil
}

// appendDecoded decodes an object, and appends it to a list.
func appendDecoded[T any](w *World, u *unstructured.Unstructured, list *[]*T) error {
	decoded, err := decodeObject[T](w, u)
	*list = append(*list, decoded)
	return err
}

func (w *World) addMiddleware(u *unstructured.Unstructured) error {
	name := u.GetNamespace() + "-" + u.GetName()
	w.middlewares[name] = append(w.middlewares[name], u)
	return nil
}

// addVirtualService decodes the specification separately, because the JSON decoder of Istio's types ignores unknown fields.
func (w *World) addVirtualService(u *unstructured.Unstructured) error {
	rest := u.DeepCopy()
	unstructured.RemoveNestedField(rest.Object, "spec")
	v, err := decodeObject[istiov1.VirtualService](w, rest)
	if err != nil {
		return err
	}
	text, err := json.Marshal(u.Object["spec"])
	if err != nil {
		return fmt.Errorf("decode: %w: %w", err, ErrInvalid)
	}
	if err := protojson.Unmarshal(text, &v.Spec); err != nil {
		w.problems[objectIdentity(u.GetKind(), u)] = err
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, &v.Spec); err != nil {
			return fmt.Errorf("decode: %w: %w", err, ErrInvalid)
		}
	}
	for _, gateway := range v.Spec.Gateways {
		if !strings.Contains(gateway, "/") {
			gateway = v.Namespace + "/" + gateway
		}
		for _, host := range v.Spec.Hosts {
			indexHost(w.istio, gateway, host, v)
		}
	}
	return nil
}
