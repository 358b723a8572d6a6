// Package render turns a plan into Kubernetes objects: one HTTPRoute, Ingress or VirtualService for each exposure, and the objects
// that they refer to.
//
// The name of an object follows from its purpose: the service, the slot, the host and path, and the Gateway or ingress
// controller that serves it. A change to one of them creates a new object, and the old object can stay until the new object works.
// Any other change, such as a change of the component that receives requests, updates the object in place. An existing object
// keeps its name while its purpose is unchanged. Names end in a hash, so names for service "a-b" and for service "a" never
// collide, and OME never computes the same name.
package render

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// Labels of the objects. None of them is a label of OME: OME deletes objects with its own labels.
const (
	LabelManagedBy = "fairlead.dev/managed-by"
	LabelService   = "fairlead.dev/inferenceservice" // the name of the InferenceService, or a hash of it
	LabelSlot      = "fairlead.dev/slot"
	LabelComponent = "fairlead.dev/component" // the component that receives requests, on routes

	// Manager is the value of LabelManagedBy, and the field manager.
	Manager = "ingress-reconciler"

	annotationService = "fairlead.dev/inferenceservice" // the full name if the label has a hash
	annotationClaim   = "fairlead.dev/claim"            // host, path and model that an object serves
)

// IsRoute reports whether the objects of a resource route requests.
func IsRoute(resource schema.GroupVersionResource) bool {
	return resource == HTTPRoutes || resource == Ingresses || resource == VirtualServices
}

// RouteHosts returns the hosts of an HTTPRoute, Ingress or VirtualService, sorted.
func RouteHosts(u *unstructured.Unstructured) []string {
	var hosts []string
	switch u.GetKind() {
	case Kinds[HTTPRoutes]:
		hosts, _, _ = unstructured.NestedStringSlice(u.Object, "spec", "hostnames")
	case Kinds[VirtualServices]:
		hosts, _, _ = unstructured.NestedStringSlice(u.Object, "spec", "hosts")
	case Kinds[Ingresses]:
		EachIngressPath(u, func(host string, _ map[string]any) {
			if host != "" {
				hosts = append(hosts, host)
			}
		})
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// TLSSecrets returns the TLS Secrets of an Ingress, by host.
func TLSSecrets(u *unstructured.Unstructured) map[string]string {
	secrets := map[string]string{}
	if u.GetKind() != Kinds[Ingresses] {
		return secrets
	}
	for _, t := range nestedSlice(u.Object, "spec", "tls") {
		tls, _ := t.(map[string]any)
		secret, _ := tls["secretName"].(string)
		for _, h := range nestedSlice(tls, "hosts") {
			if host, ok := h.(string); ok && secret != "" {
				secrets[host] = secret
			}
		}
	}
	return secrets
}

// ParseClaim returns the host, path and model that an object serves. It returns false for objects that are not routes.
func ParseClaim(resource schema.GroupVersionResource, o *unstructured.Unstructured) (ownership.Claim, bool) {
	if !IsRoute(resource) {
		return ownership.Claim{}, false
	}
	c, ok := ownership.Parse(o.GetAnnotations()[annotationClaim])
	c.Unordered = resource == VirtualServices && c.Header != ""
	return c, ok
}

// Resources of the objects. All releases of Istio serve this version of VirtualServices.
var (
	HTTPRoutes      = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "httproutes"}
	Ingresses       = schema.GroupVersionResource{Group: networkingv1.GroupName, Version: "v1", Resource: "ingresses"}
	VirtualServices = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1beta1", Resource: "virtualservices"}
	Middlewares     = ingressclass.Middlewares
	InferencePools  = schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"}
	Services        = schema.GroupVersionResource{Version: "v1", Resource: "services"}

	// Routes are the resources of routes, by strategy.
	Routes = map[settings.Strategy]schema.GroupVersionResource{
		settings.HTTPRoute: HTTPRoutes, settings.Ingress: Ingresses, settings.VirtualService: VirtualServices,
	}
)

// Kinds are the kinds of the objects.
var Kinds = map[schema.GroupVersionResource]string{
	HTTPRoutes: "HTTPRoute", Ingresses: "Ingress", VirtualServices: "VirtualService", Middlewares: "Middleware",
	InferencePools: "InferencePool", Services: "Service",
}

// Object is one object of a plan.
type Object struct {
	Resource schema.GroupVersionResource
	Slot     plan.Slot
	Object   *unstructured.Unstructured
	Exposure *plan.Exposure // that the object serves; nil for an object that is not a route
}

// Params is the input of Render in addition to the plan.
type Params struct {
	Service  *isvc.Service
	Settings *settings.Settings

	// Live are the existing objects of the service. They keep their names while their purposes are unchanged.
	Live []*unstructured.Unstructured
	// Requester returns the oldest existing Ingress of any service with a TLS Secret for a host, nil if none exists. A nil Requester means
	// that none exists.
	Requester func(host, secret string) *unstructured.Unstructured
	// Classes are the IngressClasses of the cluster.
	Classes []*networkingv1.IngressClass
}

// Render returns the objects of a plan. Each object comes after the objects that it refers to.
func Render(p *plan.Plan, in Params) ([]Object, error) {
	r := &renderer{Params: in, live: newLiveObjects(in.Live, in.Service.UID, in.Classes)}
	r.addPoolAndFallback(p)
	for i := range p.Exposures {
		e := &p.Exposures[i]
		switch p.Strategy {
		case settings.HTTPRoute:
			r.addObject(HTTPRoutes, e.Slot, r.httpRoute(e), e)
		case settings.Ingress:
			r.addIngress(e)
		case settings.VirtualService:
			r.addObject(VirtualServices, e.Slot, r.virtualService(p, e), e)
		}
	}
	return r.objects, r.err
}

type renderer struct {
	Params

	live    liveObjects
	objects []Object
	err     error
}

// addObject adds an object with the labels, annotations and owner reference that all objects have.
func (r *renderer) addObject(resource schema.GroupVersionResource, slot plan.Slot, typed runtime.Object, e *plan.Exposure) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		r.err = fmt.Errorf("render %T: %w", typed, err)
		return
	}
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	labels, annotations := r.objectLabels(slot), u.GetAnnotations()
	if e != nil {
		labels[LabelComponent] = string(e.Role)
		annotations = settings.MergeMaps(annotations, map[string]string{annotationClaim: e.Claim().String()})
	}
	if labels[LabelService] != r.Service.Name {
		annotations = settings.MergeMaps(annotations, map[string]string{annotationService: r.Service.Name})
	}
	u.SetLabels(labels)
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	isController := true
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: isvc.Resource.GroupVersion().String(), Kind: "InferenceService", Name: r.Service.Name, UID: r.Service.UID,
		Controller: &isController,
	}})
	r.objects = append(r.objects, Object{Resource: resource, Slot: slot, Object: u, Exposure: e})
}

// objectMeta returns the metadata that differs between objects.
func (r *renderer) objectMeta(name string, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: r.Service.Namespace, Name: name, Annotations: annotations}
}

// NameLabel returns the value of LabelService.
func NameLabel(service string) string {
	if len(service) <= validation.LabelValueMaxLength {
		return service
	}
	return hashText(service)
}

func (r *renderer) objectLabels(slot plan.Slot) map[string]string {
	return settings.MergeMaps(map[string]string{}, r.Settings.Copied.Labels, r.Settings.Labels, map[string]string{
		LabelManagedBy: Manager, LabelService: NameLabel(r.Service.Name), LabelSlot: string(slot),
	})
}

// routeAnnotations returns the annotations of an HTTPRoute or VirtualService. The administrator's annotations override copied ones.
func (r *renderer) routeAnnotations() map[string]string {
	return settings.MergeMaps(r.Settings.Copied.Annotations, r.Settings.Annotations)
}

const maxName = 63

// objectName returns the name of the object for an exposure. Another ingress controller, or another Istio Gateway, results in another
// object: the old address works until clients use the new address. Another IngressClass with the same controller does not change
// the name.
func (r *renderer) objectName(s settings.Strategy, e *plan.Exposure) string {
	if live := r.liveObject(s, e); live != nil {
		return live.GetName()
	}
	kind := string(s)
	if server := r.dataPlane(s, e); server != "" {
		kind += "/" + server
	}
	return BuildName(r.Service.Name, kind, string(e.Slot), e.Host, e.Path, e.Model.Header, e.Model.Name, e.Gateway.String())
}

// dataPlane identifies the data plane of an Ingress or VirtualService. The Gateway of the exposure identifies that of an HTTPRoute.
func (r *renderer) dataPlane(s settings.Strategy, e *plan.Exposure) string {
	switch s {
	case settings.Ingress:
		return e.Class.Identity()
	case settings.VirtualService:
		return r.Settings.IstioGateway
	}
	return ""
}

// BuildName returns the name for an object of a service. The identity lists everything that distinguishes the object.
func BuildName(service string, identity ...string) string {
	suffix := "-fairlead-" + hashText(service + "\n" + strings.Join(identity, "\n"))[:8]
	if most := maxName - len(suffix); len(service) > most {
		service = strings.TrimRight(service[:most], "-.")
	}
	return service + suffix
}

func hashText(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// trimSlash returns a path in the form for APIs that match path elements: without a trailing slash.
func trimSlash(path string) string {
	return cmp.Or(strings.TrimSuffix(path, "/"), "/")
}

// Headers that tell a backend which InferenceService a request was routed to. The names are OME's.
const (
	headerName      = "OMe-Isvc-Name"
	headerNamespace = "OME-Isvc-Namespace"
)
