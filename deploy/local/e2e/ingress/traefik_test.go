// Package ingress_test finds out what ingress controllers do with the objects that users and our ingress-reconciler write,
// in the embedded Kubernetes: renderers rely on what is shown here.
package ingress_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
)

// TestTraefik is one Traefik that reads HTTPRoutes, Ingresses of its own and Ingresses with the annotations of ingress-nginx.
func TestTraefik(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: what Traefik does changes with its version only")
	}
	takeTurn(t)
	c := cluster.Start(t, stack.PublishTraefik("127.0.0.1:0"))
	g, gctx := errgroup.WithContext(t.Context())
	g.Go(func() error { return stack.InstallTraefik(gctx, c) })
	g.Go(func() error { return stack.InstallEcho(gctx, c, tag, server, other) })
	require.NoError(t, g.Wait())
	w := newWorld(c, c.Published[0])
	w.apply(t, "rewrite.yaml")
	w.await(t, "strip.test", "/p/q/", "/")
	w.await(t, "regex.test", "/p/q/", "/")
	w.await(t, "replace.test", "/p/q/", "/")

	t.Run("addresses", func(t *testing.T) { assertAddresses(t, w) })
	t.Run("features", func(t *testing.T) { assertFeatures(t, w) })
	t.Run("side by side", func(t *testing.T) {
		for _, tt := range []struct {
			name   string
			assert func(*testing.T, *world)
		}{
			{name: "hosts", assert: assertHosts},
			{name: "rewrites", assert: assertRewrites},
			{name: "streams", assert: assertStreams},
			{name: "bodies", assert: assertBodies},
			{name: "routes", assert: assertRoutes},
			{name: "a route that changes", assert: assertChangingRoute},
			{name: "a Middleware that is missing", assert: assertMissingMiddleware},
			{name: "a class that changes", assert: assertChangingClass},
			{name: "annotations of the other class", assert: assertOtherAnnotations},
			{name: "no pods, no service", assert: assertNoPods},
			{name: "an Ingress and an HTTPRoute of one host", assert: assertIngressAndRoute},
			{name: "nginx rewrites", assert: assertNginxRewrites},
			{name: "nginx hosts with and without regex", assert: assertNginxHost},
			{name: "nginx timeouts", assert: assertNginxTimeouts},
			{name: "nginx bodies", assert: assertNginxBodies},
			{name: "nginx buffering", assert: assertNginxBuffering},
			{name: "nginx redirects", assert: assertNginxRedirects},
			{name: "long waits", assert: assertLongWaits},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				tt.assert(t, w)
			})
		}
	})
	t.Run("defaults", func(t *testing.T) { assertDefaults(t, w) })
}
