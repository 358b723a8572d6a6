package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/apply"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
)

const traefikWorld = world + `---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: traefik, uid: traefik}
spec: {controller: traefik.io/ingress-controller}
`

// observerOf returns an Observer of traefikWorld. change can change the served kinds, and returns the kinds that may be written.
func observerOf(t *testing.T, change func(s *kit.Snapshot, writable []string) []string) *observe.Observer {
	t.Helper()
	var snapshot kit.Snapshot
	for text := range strings.SplitSeq(traefikWorld, "---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &u.Object))
		snapshot.Objects = append(snapshot.Objects, u)
	}
	caches, err := informers.Declare(change(&snapshot, config.Default().Sources.Kinds)).Read(snapshot)
	require.NoError(t, err)
	return observe.New(caches)
}

func TestKindsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	const shared = "ingressDomain: example.com\nperISVCSubdomain: false\ningressClassName: traefik\n"
	tests := []struct{ name, resource, config, message string }{
		{name: "the kind of the strategy", resource: "ingresses", config: "ingressDomain: example.com", message: "--kinds"},
		{
			name: "a kind that the Ingress refers to", resource: "middlewares", config: shared,
			message: "install the CRD, or add middlewares to --kinds",
		},
	}
	for _, tt := range tests {
		for _, absent := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, world, tt.config)
				r.Observer = observerOf(t, func(s *kit.Snapshot, writable []string) []string {
					if absent {
						s.Served = func(g schema.GroupVersionResource) bool { return g.Resource != tt.resource }
						return writable
					}
					return slices.DeleteFunc(writable, func(k string) bool { return k == tt.resource })
				})
				var written []string
				r.applier.EXPECT().Apply(mock.Anything, mock.Anything, mock.Anything, mock.Anything).RunAndReturn(
					func(_ context.Context, g schema.GroupVersionResource, o, _ *unstructured.Unstructured,
					) (*unstructured.Unstructured, apply.Result, error) {
						written = append(written, g.Resource)
						return o, apply.Created, nil
					}).Maybe()
				r.recorder.EXPECT().Event(mock.Anything, "Warning", "APIUnavailable",
					mock.MatchedBy(func(m string) bool { return strings.Contains(m, tt.message) })).Once()
				status := r.expectStatus(nil)
				err := r.Reconcile(t.Context(), chat)
				require.ErrorContains(t, err, "requeue after 20s", "no event reports that the kind appears")
				assert.Equal(t, "False APIUnavailable", *status)
				assert.NotContains(t, written, tt.resource)
			})
		}
	}
}
