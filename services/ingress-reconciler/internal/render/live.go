package render

import (
	"cmp"

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

// purpose is what an object is for: a claim, and the program that serves it. An object keeps its name as long as its purpose
// stays the same, also across releases that compute names in another way. The admission webhook of ingress-nginx demands
// it: it refuses a second Ingress of the same host and path, so a new name could never replace the old one.
type purpose struct {
	strategy settings.Strategy
	claim    ownership.Claim
	server   string // identity of the class of an Ingress, or Gateway of Istio
}

// liveObjects are the objects of a service that exist, by purpose.
type liveObjects struct {
	byPurpose map[purpose]*unstructured.Unstructured
	byClaim   map[ownership.Claim]*unstructured.Unstructured // Ingresses of any class
}

// newLiveObjects indexes the Ingresses and VirtualServices that an owner controls. Of several for one purpose the oldest counts.
func newLiveObjects(objects []*unstructured.Unstructured, owner types.UID, classes []*networkingv1.IngressClass) liveObjects {
	l := liveObjects{byPurpose: map[purpose]*unstructured.Unstructured{}, byClaim: map[ownership.Claim]*unstructured.Unstructured{}}
	for _, o := range objects {
		if controller := metav1.GetControllerOf(o); controller == nil || controller.UID != owner {
			continue
		}
		var p purpose
		switch o.GroupVersionKind().GroupKind() {
		case schema.GroupKind{Group: Ingresses.Group, Kind: Kinds[Ingresses]}:
			p.strategy, p.server = settings.Ingress, ingressclass.Of(classes, o).Identity()
		case schema.GroupKind{Group: VirtualServices.Group, Kind: Kinds[VirtualServices]}:
			p.strategy, p.server = settings.VirtualService, istioGateway(o)
		default:
			continue
		}
		claim, found := Claim(Routes[p.strategy], o)
		if !found {
			continue
		}
		p.claim = claim
		if p.strategy == settings.Ingress {
			keepOldest(l.byClaim, claim, o)
		}
		keepOldest(l.byPurpose, p, o)
	}
	return l
}

// liveObject returns the object that serves an exposure now, nil if there is none. Without a class, and without a default class
// in the cluster, that is any Ingress of the claim.
func (r *renderer) liveObject(s settings.Strategy, e *plan.Exposure) *unstructured.Unstructured {
	if s == settings.Ingress && e.Class.Name == "" {
		return r.live.byClaim[e.Claim()]
	}
	return r.live.byPurpose[purpose{strategy: s, claim: e.Claim(), server: r.server(s, e)}]
}

func keepOldest[K comparable](all map[K]*unstructured.Unstructured, key K, o *unstructured.Unstructured) {
	if known := all[key]; known == nil || older(o, known) {
		all[key] = o
	}
}

func older(a, b *unstructured.Unstructured) bool {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(x.Compare(y.Time), cmp.Compare(a.GetName(), b.GetName())) < 0
}

// istioGateway returns the only Gateway that a VirtualService names, or nothing.
func istioGateway(o *unstructured.Unstructured) string {
	if all, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "gateways"); len(all) == 1 {
		return all[0]
	}
	return ""
}
