package controller

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// handOver reports whether OME serves the host and path of an object of a service that OME must expose. Until then the object stays:
// OME may be slow, down, or unable to create its route. If a webhook refuses OME's Ingress because of this one, the paths change so that
// both can exist.
func (r *run) handOver(ctx context.Context, l *observe.Live) bool {
	claim, ok := l.RouteClaim()
	if !ok || r.servedByOME(claim.Host, claim.Path) {
		return true
	}
	r.notes = append(r.notes,
		"no accepted route of OME serves "+claim.Host+claim.Path+": "+l.Object.GetKind()+" "+l.Object.GetName()+" stays")
	if l.Resource != render.Ingresses {
		return false
	}
	c := ingressclass.ClassOfIngress(r.observed.Input.Classes, l.Object).Controller
	if next := yieldRootPath(l.Object, c); next != nil && r.onlyOMEUsesHost(claim.Host) {
		_, result, err := r.reconciler.Applier.Apply(ctx, l.Resource, next, l.Object)
		r.countWrite(ctx, l.Resource, next.GetName(), string(result), err)
	}
	return false
}

// yieldRootPath returns an Ingress with paths that let OME create its own for the host, nil if no change is needed.
func yieldRootPath(live *unstructured.Unstructured, c *ingressclass.Controller) *unstructured.Unstructured {
	if c == nil || c.YieldRoot == nil {
		return nil
	}
	annotations, changed := live.GetAnnotations(), false
	delete(annotations, apply.HashAnnotation)
	delete(annotations, observe.AnnotationSuperseded)
	rules, _, _ := unstructured.NestedSlice(live.Object, "spec", "rules") // a copy
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		http, _ := rule["http"].(map[string]any)
		paths, _ := http["paths"].([]any)
		for _, p := range paths {
			if path, _ := p.(map[string]any); path["path"] == "/" {
				c.YieldRoot(path, annotations)
				changed = true
			}
		}
	}
	if !changed {
		return nil
	}
	spec, _, _ := unstructured.NestedMap(live.Object, "spec")
	spec["rules"] = rules
	next := &unstructured.Unstructured{Object: map[string]any{"apiVersion": live.GetAPIVersion(), "kind": live.GetKind(), "spec": spec}}
	next.SetNamespace(live.GetNamespace())
	next.SetName(live.GetName())
	next.SetLabels(live.GetLabels())
	next.SetAnnotations(annotations)
	next.SetOwnerReferences(live.GetOwnerReferences())
	return next
}

// onlyOMEUsesHost reports whether no Ingress of an owner other than OME uses a host.
func (r *run) onlyOMEUsesHost(host string) bool {
	uid := r.observed.Input.Service.UID
	return !slices.ContainsFunc(r.reconciler.Observer.ForeignRoutes(render.Ingresses, host), func(u *unstructured.Unstructured) bool {
		return !metav1.IsControlledBy(u, &metav1.ObjectMeta{UID: uid})
	})
}

// servedByOME reports whether an accepted route that OME created answers requests for a host and path.
func (r *run) servedByOME(host, path string) bool {
	in := &r.observed.Input
	for _, resource := range render.Routes {
		for _, u := range r.reconciler.Observer.ForeignRoutes(resource, host) {
			if !metav1.IsControlledBy(u, &metav1.ObjectMeta{UID: in.Service.UID}) ||
				!slices.ContainsFunc(render.PathPrefixes(u, host), func(p string) bool { return strings.HasPrefix(path, p) }) {
				continue
			}
			v, wait := gatewayapi.Verdict{Acceptance: gatewayapi.Accepted}, time.Duration(0) // of a VirtualService
			switch resource {
			case render.HTTPRoutes:
				v = routeVerdict(u, gatewayapi.Gateway{})
			case render.Ingresses:
				v, wait = ingressVerdict(u, ingressclass.ClassOfIngress(in.Classes, u), r.reconciler.Clock.Now())
			}
			if v.Acceptance == gatewayapi.Accepted {
				return true
			}
			if wait > 0 {
				r.requestRequeue(wait, "OME's Ingress for "+host+" has no address")
			}
		}
	}
	return false
}
