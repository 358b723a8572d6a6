package ingress_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

// middlewares names Middlewares of the default namespace.
func middlewares(names ...string) map[string]string {
	for i, name := range names {
		names[i] = metav1.NamespaceDefault + "-" + name + "@kubernetescrd"
	}
	return map[string]string{traefikPrefix + "router.middlewares": strings.Join(names, ",")}
}

// assertMissingMiddleware shows what an Ingress does whose Middleware is not there: nothing, but it says that it has an
// address. Another Ingress that takes the path as well gets its requests, with the path as it is.
func assertMissingMiddleware(t *testing.T, w *world) {
	w.create(t, ingress{name: "incomplete", class: traefikClass, path: "/p", annotations: middlewares("late")})
	w.create(t, ingress{name: "below", class: traefikClass, path: "/p", annotations: middlewares("late")})
	w.create(t, ingress{name: "whole-host", class: traefikClass, host: "below.test", service: other})
	w.settled(t, traefikClass)
	assert.Equal(t, "404", w.get(t, "incomplete.test", "/p/x").String())
	got := w.get(t, "below.test", "/p/x")
	assert.Equal(t, "/p/x", got.String())
	assert.Equal(t, other, got.echo.Name)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		addresses, err := w.loadBalancer(t.Context(), "incomplete")
		require.NoError(collect, err)
		require.Equal(collect, []string{address}, addresses)
	}, kubetest.Patience, tick)

	require.NoError(t, w.cluster.Apply(t.Context(), `
apiVersion: traefik.io/v1alpha1
kind: Middleware
metadata: {name: late}
spec: {stripPrefix: {prefixes: [/p]}}`))
	w.await(t, "incomplete.test", "/p/x", "/x")
	w.await(t, "below.test", "/p/x", "/x")
	assert.Equal(t, server, w.get(t, "below.test", "/p/x").echo.Name)

	_, err := w.cluster.Kubectl(t.Context(), "delete", "middleware", "late")
	require.NoError(t, err)
	w.await(t, "incomplete.test", "/p/x", "404")
}

// assertOtherAnnotations shows that each class knows its own annotations only.
func assertOtherAnnotations(t *testing.T, w *world) {
	w.create(t, ingress{name: "own-with-nginx", class: traefikClass, annotations: nginx(map[string]string{"rewrite-target": "/elsewhere", "proxy-read-timeout": "1"})})
	w.create(t, ingress{name: "nginx-with-own", class: nginxClass, annotations: middlewares("nobody")})
	for _, host := range []string{"own-with-nginx.test", "nginx-with-own.test"} {
		w.await(t, host, "/x?delay=1500ms", "/x?delay=1500ms")
	}
}

// assertNoPods is what is answered for a Service without pods, and for none.
func assertNoPods(t *testing.T, w *world) {
	_, err := w.cluster.Clientset().CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "empty"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "empty"}, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, class := range []string{traefikClass, nginxClass} {
		w.create(t, ingress{name: "no-pods-" + class, class: class, service: "empty"})
		w.create(t, ingress{name: "no-service-" + class, class: class, service: "nobody"})
	}
	w.await(t, "no-pods-traefik.test", "/", "503") // as the example's allowEmptyServices has it
	w.await(t, "no-pods-nginx.test", "/", "503")
	w.await(t, "no-service-nginx.test", "/", "503")
	w.settled(t, traefikClass)
	assert.Equal(t, "404", w.get(t, "no-service-traefik.test", "/").String())
}

// assertIngressAndRoute shows who wins where an Ingress and an HTTPRoute have the same host: the HTTPRoute on a path, the
// Ingress on the root.
func assertIngressAndRoute(t *testing.T, w *world) {
	require.NoError(t, w.cluster.Apply(t.Context(), `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shared}
spec:
  parentRefs: [{name: traefik, namespace: traefik}]
  hostnames: [shared-traefik.test, shared-nginx.test]
  rules:
  - matches: [{path: {type: PathPrefix, value: /}}, {path: {type: PathPrefix, value: /p}}]
    backendRefs: [{name: b, port: 80}]`))
	served := func(host, path, want string) {
		t.Helper()
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			got, err := w.try(t.Context(), question{host: host, target: path})
			require.NoError(collect, err)
			require.Equal(collect, want, got.echo.Name, "%s%s", host, path)
		}, kubetest.Patience, tick)
	}
	for _, class := range []string{traefikClass, nginxClass} {
		host := "shared-" + class + ".test"
		served(host, "/x", other)
		w.create(t, ingress{name: "shared-root-" + class, class: class, host: host})
		w.create(t, ingress{name: "shared-path-" + class, class: class, host: host, path: "/p"})
		served(host, "/x", server)
		w.settled(t, class)
		served(host, "/p/x", other)
	}
}

// assertDefaults is what Traefik's own Ingresses do where it runs without the two flags by which the example mends them.
func assertDefaults(t *testing.T, w *world) {
	flags := []string{"--providers.kubernetesIngress.allowEmptyServices=", "--providers.kubernetesIngress.strictPrefixMatching="}
	w.await(t, "no-pods-traefik.test", "/", "503")
	w.await(t, "strip.test", "/p/qx", "404")
	deployments := w.cluster.Clientset().AppsV1().Deployments(stack.TraefikNamespace)
	d, err := deployments.Get(t.Context(), stack.Traefik, metav1.GetOptions{})
	require.NoError(t, err)
	container := &d.Spec.Template.Spec.Containers[0]
	before := len(container.Args)
	container.Args = slices.DeleteFunc(container.Args, func(arg string) bool {
		return slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(arg, flag) })
	})
	require.Len(t, container.Args, before-len(flags))
	_, err = deployments.Update(t.Context(), d, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = w.cluster.Kubectl(t.Context(), "-n", stack.TraefikNamespace, "rollout", "status", "deployment/"+stack.Traefik, stack.WaitTimeout)
	require.NoError(t, err)
	w.client.CloseIdleConnections()

	w.await(t, "no-pods-traefik.test", "/", "404")
	w.await(t, "strip.test", "/p/qx", "/x")      // /p/q is a prefix of it, letter by letter
	w.await(t, "no-pods-nginx.test", "/", "503") // the other class goes on as it did, when its provider has begun
}
