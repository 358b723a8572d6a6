package gateways

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/informers"
)

// finalizerWriter records the routes that lose a finalizer.
type finalizerWriter struct {
	fakeStatuses

	released []string
}

func (w *finalizerWriter) RemoveFinalizer(_ context.Context, route *gatewayv1.HTTPRoute, _ string) error {
	w.released = append(w.released, route.Name)
	return nil
}

// TestReleaseFinalizers has two deleted routes, of which one was deleted after the plan: the load balancer still has its rules.
func TestReleaseFinalizers(t *testing.T) {
	t.Parallel()
	var objects []*unstructured.Unstructured
	for _, name := range []string{"before", "after"} {
		object := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: "+name+
			", namespace: models, uid: "+name+", deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: ["+okeFinalizer+"]}\n"+
			"spec: {parentRefs: [{name: web, namespace: infra}]}\n"), &object))
		objects = append(objects, &unstructured.Unstructured{Object: object})
	}
	caches, err := options.Declare().Read(kit.Snapshot{Objects: objects})
	require.NoError(t, err)
	planned := &gatewayplan.Plan{Gateways: []*gatewayplan.ResolvedGateway{{Gateway: &gatewayv1.Gateway{}}}}
	planned.Gateways[0].Name, planned.Gateways[0].Namespace = "web", "infra"
	for _, route := range informers.ListAll[gatewayv1.HTTPRoute](caches.Routes) {
		if route.Name == "after" {
			planned.Routes = append(planned.Routes, &gatewayplan.Route{HTTPRoute: route})
		}
	}
	writer := &finalizerWriter{}
	r := New(Params{Caches: caches, Writer: writer, OKE: true})
	require.NoError(t, r.releaseFinalizers(t.Context(), planned, &actor.LayoutReport{}, false))
	assert.Empty(t, writer.released, "the report is of an earlier plan")
	require.NoError(t, r.releaseFinalizers(t.Context(), planned, &actor.LayoutReport{}, true))
	assert.Equal(t, []string{"before"}, writer.released)
}
