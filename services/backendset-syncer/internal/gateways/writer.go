package gateways

import (
	"context"
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/services/backendset-syncer/internal/informers"
)

// Writer writes statuses, if they differ. It fails with a conflict if the object has changed since it was read.
type Writer struct {
	client dynamic.Interface
	owner  string // field manager
}

// NewWriter returns a Writer.
func NewWriter(client dynamic.Interface, owner string) *Writer {
	return &Writer{client: client, owner: owner}
}

// WriteClass writes the status of a GatewayClass.
func (w *Writer) WriteClass(ctx context.Context, c *gatewayv1.GatewayClass, next gatewayv1.GatewayClassStatus) error {
	if apiequality.Semantic.DeepEqual(c.Status.Conditions, next.Conditions) {
		return nil
	}
	return w.patchStatus(ctx, informers.GatewayClasses, &c.ObjectMeta, map[string]any{"conditions": next.Conditions})
}

// WriteGateway writes the status of a Gateway.
func (w *Writer) WriteGateway(ctx context.Context, g *gatewayv1.Gateway, next gatewayv1.GatewayStatus) error {
	if apiequality.Semantic.DeepEqual(g.Status, next) {
		return nil
	}
	status := map[string]any{"conditions": next.Conditions, "listeners": next.Listeners, "addresses": next.Addresses}
	return w.patchStatus(ctx, informers.Gateways, &g.ObjectMeta, status)
}

// WriteRoute writes the parents in the status of a route.
func (w *Writer) WriteRoute(ctx context.Context, r *gatewayv1.HTTPRoute, parents []gatewayv1.RouteParentStatus) error {
	if apiequality.Semantic.DeepEqual(r.Status.Parents, parents) {
		return nil
	}
	return w.patchStatus(ctx, informers.HTTPRoutes, &r.ObjectMeta, map[string]any{"parents": parents})
}

// RemoveFinalizer removes a finalizer of a route.
func (w *Writer) RemoveFinalizer(ctx context.Context, r *gatewayv1.HTTPRoute, finalizer string) error {
	others := slices.DeleteFunc(slices.Clone(r.Finalizers), func(f string) bool { return f == finalizer })
	err := apply.PatchLatest(ctx, w.client.Resource(informers.HTTPRoutes), r, w.owner,
		apply.Change{Metadata: map[string]any{"finalizers": others}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove finalizer of HTTPRoute %s/%s: %w", r.Namespace, r.Name, err)
	}
	return nil
}

// patchStatus replaces fields of the status of an object.
func (w *Writer) patchStatus(ctx context.Context, resource schema.GroupVersionResource, m *metav1.ObjectMeta, status map[string]any) error {
	err := apply.PatchLatest(ctx, w.client.Resource(resource), m, w.owner, apply.Change{Status: status})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write status of %s %s/%s: %w", resource.Resource, m.Namespace, m.Name, err)
	}
	return nil
}
