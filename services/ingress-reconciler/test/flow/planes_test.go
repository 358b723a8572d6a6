//go:build system

package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// planes emulates the controllers of data planes. It accepts every HTTPRoute and Ingress, except those that a test refuses.
type planes struct {
	client dynamic.Interface

	mu      sync.Mutex
	refused []string // names of Gateways that reject routes, and hosts whose Ingress gets no address
	seen    map[string]*unstructured.Unstructured
	hosts   map[string]map[string]bool // keys of objects that serve a host
	gaps    []string
	watched string
}

// watchGaps records gaps from now on: moments after which no object serves a host. It returns a function that returns the gaps.
func (p *planes) watchGaps(host string) func() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched, p.gaps = host, nil
	return func() []string {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.gaps
	}
}

// serve records whether an object serves its hosts.
func (p *planes) serve(u *unstructured.Unstructured, key string, serves bool) {
	for _, host := range hostsOf(u) {
		if p.hosts[host] == nil {
			p.hosts[host] = map[string]bool{}
		}
		before := len(p.hosts[host])
		if serves {
			p.hosts[host][key] = true
		} else {
			delete(p.hosts[host], key)
		}
		if host == p.watched && before > 0 && len(p.hosts[host]) == 0 {
			p.gaps = append(p.gaps, "after "+key)
		}
	}
}

func hostsOf(u *unstructured.Unstructured) []string {
	fields := map[string][]string{"HTTPRoute": {"spec", "hostnames"}, "VirtualService": {"spec", "hosts"}}[u.GetKind()]
	if fields == nil {
		rules, _, _ := unstructured.NestedSlice(u.Object, "spec", "rules")
		host, _ := rules[0].(map[string]any)["host"].(string)
		return []string{host}
	}
	hosts, _, _ := unstructured.NestedStringSlice(u.Object, fields...)
	return hosts
}

// taken reports whether a data plane has written the status of an object. A VirtualService has no status, and is always taken.
func taken(u *unstructured.Unstructured) bool {
	parents, _, _ := unstructured.NestedSlice(u.Object, "status", "parents")
	addresses, _, _ := unstructured.NestedSlice(u.Object, "status", "loadBalancer", "ingress")
	return u.GetKind() == "VirtualService" || len(parents)+len(addresses) > 0
}

func startPlanes(t testing.TB, client dynamic.Interface, discovery kube.ResourceDiscovery) *planes {
	t.Helper()
	p := &planes{client: client, seen: map[string]*unstructured.Unstructured{}, hosts: map[string]map[string]bool{}}
	background(t, func(ctx context.Context) error {
		acts := map[schema.GroupVersionResource]func(context.Context, *unstructured.Unstructured){
			render.Ingresses: p.address, render.HTTPRoutes: p.accept,
			render.VirtualServices: func(context.Context, *unstructured.Unstructured) {},
		}
		var all sync.WaitGroup
		for resource, act := range acts {
			informer := kube.NewOptionalInformer(kube.OptionalInformerParams{
				Log: zap.NewNop(), Discovery: discovery, Resource: resource, PollInterval: 200 * time.Millisecond,
				New: func() cache.SharedIndexInformer {
					return dynamicinformer.NewFilteredDynamicInformer(client, resource, "", 0, cache.Indexers{}, nil).Informer()
				},
			})
			informer.AddEventHandler(p.handler(ctx, act))
			all.Go(func() { informer.Run(ctx) })
		}
		all.Wait()
		return nil
	})
	return p
}

func (p *planes) handler(ctx context.Context, act func(context.Context, *unstructured.Unstructured)) cache.ResourceEventHandler {
	do := func(obj any) {
		u := obj.(*unstructured.Unstructured).DeepCopy()
		p.mu.Lock()
		key := u.GetKind() + "/" + u.GetNamespace() + "/" + u.GetName()
		p.seen[key] = u
		p.serve(u, key, taken(u))
		p.mu.Unlock()
		act(ctx, u)
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: do, UpdateFunc: func(_, obj any) { do(obj) }, DeleteFunc: func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			p.mu.Lock()
			key := u.GetKind() + "/" + u.GetNamespace() + "/" + u.GetName()
			delete(p.seen, key)
			p.serve(u, key, false)
			p.mu.Unlock()
		}
	}}
}

// refuse sets the Gateways and hosts that planes refuses from now on.
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

// accept writes the status of a route. If the write fails, the next event of the route repeats it.
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

// address writes the address of an Ingress.
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
