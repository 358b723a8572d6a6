//go:build system

package flow

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/deploy/emulators/ingressnginx"
	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

const (
	nginxIngress = "ingress chat.models.example.com/ -> chat-engine"
	nginxAllowed = "True Programmed: http://chat.models.example.com/; %s: accepted"
)

// startNginx creates IngressClasses, and starts a proxy that emulates the admission webhook of ingress-nginx. It returns the option for
// the reconciler to connect through the proxy.
func (r *rig) startNginx() func(*config.Config) {
	r.t.Helper()
	for _, name := range []string{"nginx", "nginx-internal"} {
		r.apply(fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: %s, annotations: "+
			"{ingressclass.kubernetes.io/is-default-class: %q}}, spec: {controller: k8s.io/ingress-nginx}}",
			name, fmt.Sprint(name == "nginx")))
	}
	proxy, err := ingressnginx.New(r.cluster.RESTConfig())
	require.NoError(r.t, err)
	background(r.t, proxy.Run)
	kubeconfig := filepath.Join(r.t.TempDir(), "kubeconfig")
	require.NoError(r.t, proxy.WriteKubeconfig(kubeconfig))
	r.admits, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(r.t, err)
	return func(c *config.Config) { c.Kube.Kubeconfig = kubeconfig }
}

func (r *rig) uidOf(namespace, name string) types.UID {
	r.t.Helper()
	u, err := r.client.Resource(isvc.Resource).Namespace(namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	require.NoError(r.t, err)
	return u.GetUID()
}

// The webhook rejects a second Ingress with the same host and path, so a new Ingress could never replace the old one.
func TestAClassOfTheSameControllerChangesInPlace(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, ingress)
		r.start(r.startNginx())
		r.service(ns, "chat", "engine")
		r.awaitCondition("chat", fmt.Sprintf(nginxAllowed, "the default IngressClass"))
		uid := r.uids()[nginxIngress]
		for _, tt := range []struct{ config, at, class string }{
			{config: "ingressClassName: nginx", at: "IngressClass nginx", class: "nginx"},
			{config: "ingressClassName: nginx-internal", at: "IngressClass nginx-internal", class: "nginx-internal"},
			{config: "ingressClassName: ''", at: "the default IngressClass", class: "nginx"},
		} {
			r.configure("ingressDomain: example.com\nstrategy: ingress\nholdSeconds: 1\n" + tt.config + "\n")
			r.awaitCondition("chat", fmt.Sprintf(nginxAllowed, tt.at))
			r.has(nginxIngress)
			assert.Equal(t, uid, r.uids()[nginxIngress], tt.config)
			list, err := r.cluster.Clientset().NetworkingV1().Ingresses(ns).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Len(t, list.Items, 1)
			require.NotNil(t, list.Items[0].Spec.IngressClassName, "no controller serves an Ingress without a class")
			assert.Equal(t, tt.class, *list.Items[0].Spec.IngressClassName)
		}
		r.settles()
	})
}

// The name of the Ingress is from a release in which names depended on the name of the class.
func TestAnIngressOfAnEarlierReleaseKeepsItsName(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, ingress)
		nginx := r.startNginx()
		r.service(ns, "chat", "engine")
		r.apply(fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: chat-fairlead-fcf94e91
  namespace: models
  annotations: {fairlead.dev/claim: chat.models.example.com/}
  labels: {fairlead.dev/managed-by: ingress-reconciler, fairlead.dev/inferenceservice: chat, fairlead.dev/slot: entry,
    fairlead.dev/component: engine}
  ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: %s, controller: true}]
spec:
  ingressClassName: nginx
  rules: [{host: chat.models.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: chat-engine,
    port: {number: 8080}}}}]}}]
`, r.uidOf(ns, "chat")))
		uid := r.uids()[nginxIngress]
		require.NotEmpty(t, uid)
		r.start(nginx)
		r.awaitCondition("chat", fmt.Sprintf(nginxAllowed, "the default IngressClass"))
		r.has(nginxIngress)
		assert.Equal(t, uid, r.uids()[nginxIngress])
		r.settles()
	})
}

func TestAnIngressThatTheWebhookRefuses(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, ingress)
		nginx := r.startNginx()
		r.apply(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: chat, namespace: models},
		spec: {ingressClassName: nginx,
		rules: [{host: chat.models.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: old,
		port: {number: 80}}}}]}}]}}`)
		r.start(nginx)
		r.service(ns, "chat", "engine")
		r.eventually(func() (string, bool) {
			got := r.condition(ns, "chat")
			return got, assert.Contains(quiet{}, got, "NotWritten") &&
				assert.Contains(quiet{}, got, `host "chat.models.example.com" and path "/" is already defined in ingress models/chat`)
		}, "the condition names the owner of the host")
		r.delete(render.Ingresses, ns, "chat")
		r.awaitCondition("chat", fmt.Sprintf(nginxAllowed, "the default IngressClass"))
	})
}
