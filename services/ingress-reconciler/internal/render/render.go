// Package render makes of a plan the objects that a cluster is to have: for each way in one HTTPRoute, Ingress or
// VirtualService, and what these need beside them.
//
// Each object has a name that follows from what it is for: the service, the slot, host, path and Gateway. When one of them
// changes there is another object, and the old one can stay until the new one works; when anything else changes, such as the
// component that takes the requests, the object changes in place. Names end in a hash, so that service "a-b" and service "a"
// never meet, and none is one that OME uses.
package render

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// Labels of what is made. None of them is OME's: it deletes what has its own.
const (
	LabelManagedBy = "fairlead.dev/managed-by"
	LabelService   = "fairlead.dev/inferenceservice" // its name, or a hash of it
	LabelSlot      = "fairlead.dev/slot"
	LabelComponent = "fairlead.dev/component" // what takes the requests; none on what takes none

	// Manager is the value of LabelManagedBy, and the manager of fields.
	Manager = "ingress-reconciler"

	annotationService = "fairlead.dev/inferenceservice" // the name where the label has a hash
	annotationClaim   = "fairlead.dev/claim"            // of a way in: what stays the service's while its plan is not known
)

// Claim returns the host and path that a route of ours serves, and reports false for other objects.
func Claim(resource schema.GroupVersionResource, o *unstructured.Unstructured) (ownership.Claim, bool) {
	if resource != HTTPRoutes && resource != Ingresses && resource != VirtualServices {
		return ownership.Claim{}, false
	}
	c, ok := ownership.Parse(o.GetAnnotations()[annotationClaim])
	c.Unordered = resource == VirtualServices && c.Header != ""
	return c, ok
}

// The kinds of what is made. VirtualServices are of a version that all releases of Istio serve.
var (
	HTTPRoutes      = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "httproutes"}
	Ingresses       = schema.GroupVersionResource{Group: networkingv1.GroupName, Version: "v1", Resource: "ingresses"}
	VirtualServices = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1beta1", Resource: "virtualservices"}
	Middlewares     = schema.GroupVersionResource{Group: "traefik.io", Version: "v1alpha1", Resource: "middlewares"}
	InferencePools  = schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"}
	Services        = schema.GroupVersionResource{Version: "v1", Resource: "services"}

	// Routes are the kinds that make ways in, by strategy.
	Routes = map[settings.Strategy]schema.GroupVersionResource{
		settings.HTTPRoute: HTTPRoutes, settings.Ingress: Ingresses, settings.VirtualService: VirtualServices,
	}
)

// Kinds are the names of what is made.
var Kinds = map[schema.GroupVersionResource]string{
	HTTPRoutes: "HTTPRoute", Ingresses: "Ingress", VirtualServices: "VirtualService", Middlewares: "Middleware", InferencePools: "InferencePool",
	Services: "Service",
}

// Object is an object that is wanted.
type Object struct {
	Resource schema.GroupVersionResource
	Slot     plan.Slot
	Object   *unstructured.Unstructured
	Exposure *plan.Exposure // what it is a way in for; nil for what stands beside
}

// Params is what objects follow from, beside the plan.
type Params struct {
	Service  *isvc.Service
	Settings *settings.Settings
}

// Render returns the objects of a plan: what others refer to comes first.
func Render(p *plan.Plan, in Params) ([]Object, error) {
	r := &renderer{Params: in}
	r.beside(p)
	for i := range p.Exposures {
		e := &p.Exposures[i]
		switch p.Strategy {
		case settings.HTTPRoute:
			r.add(HTTPRoutes, e.Slot, r.httpRoute(e), e)
		case settings.Ingress:
			r.ingress(e)
		case settings.VirtualService:
			r.add(VirtualServices, e.Slot, r.virtualService(e), e)
		}
	}
	return r.objects, r.err
}

type renderer struct {
	Params

	objects []Object
	err     error
}

// add adds a typed object, with what all objects have.
func (r *renderer) add(resource schema.GroupVersionResource, slot plan.Slot, typed runtime.Object, e *plan.Exposure) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		r.err = fmt.Errorf("render %T: %w", typed, err)
		return
	}
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	labels, annotations := r.labels(slot), u.GetAnnotations()
	if e != nil {
		labels[LabelComponent] = string(e.Role)
		annotations = with(annotations, map[string]string{annotationClaim: e.Claim().String()})
	}
	if labels[LabelService] != r.Service.Name {
		annotations = with(annotations, map[string]string{annotationService: r.Service.Name})
	}
	u.SetLabels(labels)
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	yes := true
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: isvc.Resource.GroupVersion().String(), Kind: "InferenceService", Name: r.Service.Name, UID: r.Service.UID, Controller: &yes,
	}})
	r.objects = append(r.objects, Object{Resource: resource, Slot: slot, Object: u, Exposure: e})
}

// meta is what names an object.
func (r *renderer) meta(name string, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: r.Service.Namespace, Name: name, Annotations: annotations}
}

// NameLabel returns the value of LabelService.
func NameLabel(service string) string {
	if len(service) <= validation.LabelValueMaxLength {
		return service
	}
	return digest(service)
}

func (r *renderer) labels(slot plan.Slot) map[string]string {
	labels := map[string]string{}
	for key, value := range r.Service.Labels {
		if !private(key) {
			labels[key] = value
		}
	}
	return with(labels, r.Settings.Labels, map[string]string{
		LabelManagedBy: Manager, LabelService: NameLabel(r.Service.Name), LabelSlot: string(slot),
	})
}

// tools are who keeps books in labels and annotations: on objects of ours they would take these for their own, and prune them.
var tools = []string{
	"app.kubernetes.io/", "kubectl.kubernetes.io/", "helm.sh/", "meta.helm.sh/", "argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/",
	"helm.toolkit.fluxcd.io/", "fleet.cattle.io/",
}

// private reports whether a label or annotation is of who made the InferenceService, or has a meaning on what is OME's.
func private(key string) bool {
	return key == "component" || settings.Reserved(key) || strings.HasPrefix(key, "networking.knative.dev/") || hasPrefix(key, tools)
}

func hasPrefix(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) })
}

// annotations returns those of a route: what is computed, those of the service with the prefixes that are for routes, those
// that are configured. Of two the later wins.
func (r *renderer) annotations(computed map[string]string) map[string]string {
	return with(computed, r.spread(r.Settings.AnnotationPrefixes), r.Settings.Annotations)
}

// spread returns the annotations of the service with some prefixes.
func (r *renderer) spread(prefixes []string) map[string]string {
	said := map[string]string{}
	for key, value := range r.Service.Annotations {
		if hasPrefix(key, prefixes) && !private(key) {
			said[key] = value
		}
	}
	return said
}

// with returns one map of several. Of values of one key the last one wins.
func with(all ...map[string]string) map[string]string {
	var out map[string]string
	for _, m := range all {
		if out == nil && len(m) > 0 {
			out = map[string]string{}
		}
		maps.Copy(out, m)
	}
	return out
}

const maxName = 63

// name returns the name of the object that is a way in. An Ingress is another one if its class is: the address that one has
// stays when its class changes.
func (r *renderer) name(s settings.Strategy, e *plan.Exposure) string {
	kind := string(s)
	if s == settings.Ingress {
		kind += "/" + ptr.Deref(r.Settings.IngressClass, "")
	}
	return Name(r.Service.Name, kind, string(e.Slot), e.Host, e.Path, e.Model.Header, e.Model.Name, e.Gateway.String())
}

// Name returns the name of an object of a service, of what it is for.
func Name(service string, identity ...string) string {
	suffix := "-fairlead-" + digest(service + "\n" + strings.Join(identity, "\n"))[:8]
	if most := maxName - len(suffix); len(service) > most {
		service = strings.TrimRight(service[:most], "-.")
	}
	return service + suffix
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// prefix returns a path as kinds want it that match by elements.
func prefix(path string) string {
	if path == "/" {
		return path
	}
	return strings.TrimSuffix(path, "/")
}

// Headers that tell a backend what it was meant to be. The names are OME's.
const (
	headerName      = "OMe-Isvc-Name"
	headerNamespace = "OME-Isvc-Namespace"
)
