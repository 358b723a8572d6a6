package gatewayplan

import (
	"slices"

	"k8s.io/utils/ptr"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"fairlead.dev/services/backendset-syncer/internal/informers"
)

// reference is one end of a reference between objects.
type reference struct{ group, kind, namespace, name string }

// permitsReference reports whether an object may refer to another one: in its namespace, or by a ReferenceGrant.
func (b *planBuilder) permitsReference(from, to reference) bool {
	if from.namespace == to.namespace {
		return true
	}
	grants := informers.GrantsOfNamespace(b.planner.caches.Grants, to.namespace)
	return slices.ContainsFunc(grants, func(g *gatewayv1beta1.ReferenceGrant) bool {
		return slices.ContainsFunc(g.Spec.From, func(f gatewayv1beta1.ReferenceGrantFrom) bool {
			return string(f.Group) == from.group && string(f.Kind) == from.kind && string(f.Namespace) == from.namespace
		}) && slices.ContainsFunc(g.Spec.To, func(t gatewayv1beta1.ReferenceGrantTo) bool {
			return string(t.Group) == to.group && string(t.Kind) == to.kind && (t.Name == nil || string(ptr.Deref(t.Name, "")) == to.name)
		})
	})
}
