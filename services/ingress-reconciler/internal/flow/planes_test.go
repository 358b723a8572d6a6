package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/render"
)

func httpClient(r *rig) (*http.Client, error) { return rest.HTTPClientFor(r.cluster.RESTConfig()) }

// planes are stand-ins for the controllers of data planes: they accept every HTTPRoute and Ingress, but those by whom they
// are told not to.
type planes struct {
	client dynamic.Interface

	mu      sync.Mutex
	refused []string // names of Gateways that refuse, and of hosts whose Ingress gets no address
	seen    map[string]*unstructured.Unstructured
}

func startPlanes(t *testing.T, client dynamic.Interface) *planes {
	t.Helper()
	p := &planes{client: client, seen: map[string]*unstructured.Unstructured{}}
	background(t, func(ctx context.Context) error {
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
		_, err := factory.ForResource(render.Ingresses).Informer().AddEventHandler(p.handler(ctx, p.address))
		require.NoError(t, err)
		_, err = factory.ForResource(render.HTTPRoutes).Informer().AddEventHandler(p.handler(ctx, p.accept))
		require.NoError(t, err)
		factory.StartWithContext(ctx)
		<-ctx.Done()
		factory.Shutdown()
		return nil
	})
	return p
}

func (p *planes) handler(ctx context.Context, act func(context.Context, *unstructured.Unstructured)) cache.ResourceEventHandler {
	do := func(obj any) {
		u := obj.(*unstructured.Unstructured).DeepCopy()
		p.mu.Lock()
		p.seen[u.GetKind()+"/"+u.GetNamespace()+"/"+u.GetName()] = u
		p.mu.Unlock()
		act(ctx, u)
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: do, UpdateFunc: func(_, obj any) { do(obj) }, DeleteFunc: func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			p.mu.Lock()
			delete(p.seen, u.GetKind()+"/"+u.GetNamespace()+"/"+u.GetName())
			p.mu.Unlock()
		}
	}}
}

// refuse has these Gateways and hosts refused from now on, and no others.
func (p *planes) refuse(ctx context.Context, names ...string) {
	p.mu.Lock()
	p.refused = names
	all := make([]*unstructured.Unstructured, 0, len(p.seen))
	for _, u := range p.seen {
		all = append(all, u)
	}
	p.mu.Unlock()
	for _, u := range all {
		if u.GetKind() == "Ingress" {
			p.address(ctx, u)
		} else {
			p.accept(ctx, u)
		}
	}
}

func (p *planes) refuses(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.refused, name)
}

// accept writes the status of a route. A failure is one of the next write's.
func (p *planes) accept(ctx context.Context, route *unstructured.Unstructured) {
	parents, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
	var statuses []any
	for _, parent := range parents {
		status, reason := "True", "Accepted"
		if p.refuses(parent.(map[string]any)["name"].(string)) {
			status, reason = "False", "NotAllowedByListeners"
		}
		condition := func(kind, status, reason string) any {
			return map[string]any{
				"type": kind, "status": status, "reason": reason, "message": "by the test", "observedGeneration": route.GetGeneration(),
				"lastTransitionTime": "2026-01-01T00:00:00Z",
			}
		}
		statuses = append(statuses, map[string]any{
			"parentRef": parent, "controllerName": "example.com/test",
			"conditions": []any{condition("Accepted", status, reason), condition("ResolvedRefs", "True", "ResolvedRefs")},
		})
	}
	p.status(ctx, route, map[string]any{"parents": statuses})
}

// address gives an Ingress one.
func (p *planes) address(ctx context.Context, ingress *unstructured.Unstructured) {
	rules, _, _ := unstructured.NestedSlice(ingress.Object, "spec", "rules")
	balancer := map[string]any{}
	if len(rules) > 0 && !p.refuses(rules[0].(map[string]any)["host"].(string)) {
		balancer["ingress"] = []any{map[string]any{"ip": "192.0.2.1"}}
	}
	p.status(ctx, ingress, map[string]any{"loadBalancer": balancer})
}

func (p *planes) status(ctx context.Context, u *unstructured.Unstructured, status map[string]any) {
	resource := render.HTTPRoutes
	if u.GetKind() == "Ingress" {
		resource = render.Ingresses
	}
	objects := p.client.Resource(resource).Namespace(u.GetNamespace())
	next := u.DeepCopy()
	next.Object["status"] = status
	if live, err := objects.Get(ctx, u.GetName(), metav1.GetOptions{}); err != nil || equalJSON(live.Object["status"], status) {
		return
	} else {
		next.SetResourceVersion(live.GetResourceVersion())
	}
	_, _ = objects.UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: "data-plane"})
}

func equalJSON(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}
