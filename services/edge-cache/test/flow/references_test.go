//go:build system

package flow

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/edge-cache/internal/config"
)

// requireShown waits until the client sees Secrets, and no others.
func (e *edge) requireShown(want ...string) {
	e.t.Helper()
	require.EventuallyWithT(e.t, func(c *assert.CollectT) {
		list, err := e.client().CoreV1().Secrets("").List(e.t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		require.NoError(c, err)
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].Name)
		}
		assert.ElementsMatch(c, want, got)
	}, kubetest.Patience, tick)
}

// service makes a Service with an annotation.
func (w *world) service(name, annotation, value string) {
	w.t.Helper()
	_, err := w.direct.CoreV1().Services("default").Create(w.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotation: value}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// TestSecretsOfServicesAndConfigMaps shows the authority of a backend (haproxytech/kubernetes-ingress#409 and #542): without it, the
// controller connects without verification. A name that leads to nothing is a metric and a line of the log.
func TestSecretsOfServicesAndConfigMaps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.namespace("ingress")
	w.namespace("victim")
	for _, name := range []string{"backend-ca", "default-tls", "loose"} {
		w.secret(name)
	}
	w.service("pay", "haproxy.org/server-ca", "default/backend-ca")
	w.service("spy", "haproxy.org/server-crt", "victim/tls")
	settings := func(ns, value string) {
		_, err := w.direct.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"ssl-certificate": value},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	settings("ingress", "default/default-tls")
	settings("victim", "default/loose")
	e := w.prepare("edge", func(c *config.Config) { c.Client.Profile = "haproxytech" })
	core, logged := observer.New(zap.WarnLevel)
	e.log = zap.New(core)
	t.Cleanup(e.stop)
	e.start()
	e.ready()
	e.requireShown("backend-ca", "default-tls")
	w.service("late", "haproxy.org/server-ca", "default/late-ca")
	metric := func(problem string) float64 {
		return e.metric(fmt.Sprintf("fairlead_edgecache_unfollowed_references{problem=%q}", problem))
	}
	require.Eventually(t, func() bool { return metric("missing") == 1 && metric("other_namespace") == 1 }, kubetest.Patience, tick)
	lines := map[string]string{}
	for _, entry := range logged.FilterMessage("Object names a Secret or ConfigMap that the controller does not see").All() {
		fields := entry.ContextMap()
		lines[fields["object"].(string)] = fields["problem"].(string) + " " + fields["secrets"].(string)
	}
	assert.Equal(t, map[string]string{"default/late": "missing default/late-ca", "default/spy": "other_namespace victim/tls"}, lines)
	w.secret("late-ca")
	e.requireShown("backend-ca", "default-tls", "late-ca")
	require.Eventually(t, func() bool { return metric("missing") == 0 }, kubetest.Patience, tick)
	assert.Equal(t, 1, logged.FilterField(zap.String("object", "default/spy")).Len(), "each check finds it, and one logs it")
	require.NoError(t, w.direct.CoreV1().Services("default").Delete(t.Context(), "pay", metav1.DeleteOptions{}))
	require.NoError(t, w.direct.CoreV1().ConfigMaps("ingress").Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	e.requireShown("late-ca")

	w.network.set(linkCut)
	e.restart()
	e.ready()
	e.requireShown("late-ca")
	require.Eventually(t, func() bool { return metric("other_namespace") == 1 }, kubetest.Patience, tick, "also offline")
}

// TestErasure has a cache that ends before the Secret that it forgot has left the disk. The next one erases it, and later another one.
func TestErasure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	for _, name := range []string{"first", "second"} {
		w.secret(name)
		w.ingress(name, "edge", name)
	}
	e := w.edge("edge").ready()
	e.requireShown("first", "second")
	forget := func(name string) {
		require.NoError(t, w.direct.NetworkingV1().Ingresses("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	erased := func(name string) {
		require.Eventually(t, func() bool { return !e.onDisk("content of " + name) }, kubetest.Patience, 10*tick, name)
	}
	forget("first")
	e.requireShown("second")
	e.restart()
	e.ready()
	erased("first")
	require.True(t, e.onDisk("content of second"))
	forget("second")
	erased("second")
}

// TestReferencesThatNobodyFollows has a controller that lists no Secrets: their names are no problem.
func TestReferencesThatNobodyFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.ingress("web", "edge", "tls")
	e := w.edge("edge", func(c *config.Config) {
		c.Client.Profile, c.Client.Resources = "custom", []string{"discovery.k8s.io/v1/endpointslices", "networking.k8s.io/v1/ingresses"}
	}).ready()
	for _, problem := range []string{"missing", "namespace_not_cached"} { // a series is there after a check
		series := fmt.Sprintf("fairlead_edgecache_unfollowed_references{problem=%q}", problem)
		require.Eventually(t, func() bool { return e.metric(series) >= 0 }, kubetest.Patience, tick)
		assert.Zero(t, e.metric(series), problem)
	}
}

// TestObjectsOfTraefik shows what Traefik's custom resources name, among them authorities in ConfigMaps. Kinds that do not exist do not
// matter.
func TestObjectsOfTraefik(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	for _, name := range []string{"users", "client-ca", "loose"} {
		w.secret(name)
	}
	for _, name := range []string{"backend-ca", "loose"} {
		_, err := w.direct.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
	transports := w.define("traefik.io", "v1alpha1", "serverstransports", "serverstransport", "ServersTransport", "Namespaced")
	middlewares := w.define("traefik.io", "v1alpha1", "middlewares", "middleware", "Middleware", "Namespaced")
	object := func(kind string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "traefik.io/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "x"}, "spec": spec,
		}}
	}
	_, err := transports.Namespace("default").Create(t.Context(), object("ServersTransport", map[string]any{
		"rootCAs": []any{map[string]any{"configMap": "backend-ca"}}, "certificatesSecrets": []any{"client-ca"},
	}), metav1.CreateOptions{})
	require.NoError(t, err)
	e := w.edge("edge", func(c *config.Config) { c.Client.Profile = "traefik-crd" }).ready()
	e.requireReadiness("^ok")
	e.requireShown("client-ca")
	_, err = middlewares.Namespace("default").Create(t.Context(),
		object("Middleware", map[string]any{"basicAuth": map[string]any{"secret": "users"}}), metav1.CreateOptions{})
	require.NoError(t, err)
	e.requireShown("client-ca", "users")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		list, err := e.client().CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		require.NoError(c, err)
		require.Len(c, list.Items, 1)
		assert.Equal(c, "backend-ca", list.Items[0].Name)
	}, kubetest.Patience, tick)
}

// TestReferencesToOtherNamespaces has a cache of one namespace, and a Secret of the administrator in another one.
func TestReferencesToOtherNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	e := w.edge("edge", func(c *config.Config) {
		c.Client.Namespaces, c.Client.Secrets = []string{"default"}, []string{"elsewhere/tls"}
	}).ready()
	require.Eventually(t, func() bool {
		return e.metric(`fairlead_edgecache_unfollowed_references{problem="namespace_not_cached"}`) == 1
	}, kubetest.Patience, tick)
}

// TestSecretThatCannotBeRead has a role without get: the Secret of an Ingress that comes later is not shown, and a metric says so.
func TestSecretThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.secret("mine")
	w.grant("", rbacv1.PolicyRule{
		APIGroups: []string{"", "discovery.k8s.io", "networking.k8s.io"}, Verbs: []string{"list", "watch"},
		Resources: []string{"nodes", "services", "secrets", "endpointslices", "ingresses", "ingressclasses"},
	})
	e := w.edge("edge", func(c *config.Config) { w.serviceAccountKubeconfig(c.Upstream.Kubeconfig) }).ready()
	e.requireShown()
	w.ingress("mine", "edge", "mine")
	require.Eventually(t, func() bool {
		return e.metric(`fairlead_edgecache_unfollowed_references{problem="unreadable"}`) == 1
	}, kubetest.Patience, tick)
	e.requireShown()
}
