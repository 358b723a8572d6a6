package render

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// purpose identifies the claim that an object serves and the data plane that serves it. An object keeps its name while its purpose
// is unchanged, even if a later release computes names differently. ingress-nginx requires this: its admission webhook rejects a
// second Ingress with the same host and path, so an Ingress with a new name could never replace the old Ingress.
type purpose struct {
	strategy settings.Strategy
	claim    ownership.Claim
	server   string // identity of the class of an Ingress, or name of an Istio Gateway
}

// liveObjects indexes the existing objects of a service.
type liveObjects struct {
	byPurpose map[purpose]*unstructured.Unstructured
	byClaim   map[ownership.Claim]*unstructured.Unstructured // Ingresses of any class
}

// newLiveObjects indexes the Ingresses and VirtualServices that an owner controls. If several have the same purpose, it uses the
// oldest.
func newLiveObjects(objects []*unstructured.Unstructured, owner types.UID, classes []*networkingv1.IngressClass) liveObjects {
	l := liveObjects{byPurpose: map[purpose]*unstructured.Unstructured{}, byClaim: map[ownership.Claim]*unstructured.Unstructured{}}
	for _, o := range objects {
		if controller := metav1.GetControllerOf(o); controller == nil || controller.UID != owner {
			continue
		}
		var p purpose
		switch o.GroupVersionKind().GroupKind() {
		case schema.GroupKind{Group: Ingresses.Group, Kind: Kinds[Ingresses]}:
			p.strategy, p.server = settings.Ingress, ingressclass.ClassOfIngress(classes, o).Identity()
		case schema.GroupKind{Group: VirtualServices.Group, Kind: Kinds[VirtualServices]}:
			p.strategy, p.server = settings.VirtualService, istioGateway(o)
		default:
			continue
		}
		claim, found := ParseClaim(Routes[p.strategy], o)
		if !found {
			continue
		}
		p.claim = claim
		if p.strategy == settings.Ingress {
			storeOldest(l.byClaim, claim, o)
		}
		storeOldest(l.byPurpose, p, o)
	}
	return l
}

// liveObject returns the existing object for an exposure, nil if none exists. Without a class, and without a default class in the
// cluster, any Ingress of the claim matches.
func (r *renderer) liveObject(s settings.Strategy, e *plan.Exposure) *unstructured.Unstructured {
	if s == settings.Ingress && e.Class.Name == "" {
		return r.live.byClaim[e.Claim()]
	}
	return r.live.byPurpose[purpose{strategy: s, claim: e.Claim(), server: r.dataPlane(s, e)}]
}

func storeOldest[K comparable](objects map[K]*unstructured.Unstructured, key K, o *unstructured.Unstructured) {
	if known := objects[key]; known == nil || IsOlder(o, known) {
		objects[key] = o
	}
}

// IsOlder reports whether an object is older than another one.
func IsOlder(a, b *unstructured.Unstructured) bool { return ownership.CompareAge(a, b) < 0 }

// istioGateway returns the Gateway of a VirtualService, or "" unless it names exactly one.
func istioGateway(o *unstructured.Unstructured) string {
	if gateways, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "gateways"); len(gateways) == 1 {
		return gateways[0]
	}
	return ""
}
