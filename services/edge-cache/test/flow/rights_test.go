//go:build system

package flow

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/edge-cache/internal/config"
)

// grant gives the default service account rights in a namespace, or in the cluster for "".
func (w *world) grant(namespace string, rules ...rbacv1.PolicyRule) {
	w.t.Helper()
	o := metav1.ObjectMeta{Name: "edge", Namespace: namespace}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "default"}}
	api := w.direct.RbacV1()
	var err error
	if namespace == "" {
		_, err = api.ClusterRoles().Create(w.t.Context(), &rbacv1.ClusterRole{ObjectMeta: o, Rules: rules}, metav1.CreateOptions{})
		require.NoError(w.t, err)
		_, err = api.ClusterRoleBindings().Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: o, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edge"}, Subjects: subjects,
		}, metav1.CreateOptions{})
	} else {
		_, err = api.Roles(namespace).Create(w.t.Context(), &rbacv1.Role{ObjectMeta: o, Rules: rules}, metav1.CreateOptions{})
		require.NoError(w.t, err)
		_, err = api.RoleBindings(namespace).Create(w.t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: o, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "edge"}, Subjects: subjects,
		}, metav1.CreateOptions{})
	}
	require.NoError(w.t, err)
}

// TestRightsInOneNamespace runs a cache for one namespace with what the chart then grants: it can read nothing in any other namespace.
func TestRightsInOneNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	read := []string{"get", "list", "watch"}
	for _, namespace := range []string{"team", "closed"} {
		w.namespace(namespace)
		w.createSlice(slice(namespace, "a", "a-0", "in-1"))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "certificate"}}
		_, err := w.direct.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.grant("",
		rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"},
		},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingressclasses"}, Verbs: read})
	w.grant("team",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services", "secrets"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses"}, Verbs: read})
	e := w.edge("edge", func(c *config.Config) {
		c.Client.Namespaces, c.Client.Secrets = []string{"team"}, []string{"team/certificate", "closed/certificate"}
		w.serviceAccountKubeconfig(c.Upstream.Kubeconfig)
	})
	e.requireReadiness("^ok") // every store has what it needs
	e.online()
	inTeam, closed := "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices", "/apis/discovery.k8s.io/v1/namespaces/closed/"+
		"endpointslices"
	assert.Equal(t, []string{"a-0"}, e.confirmedList(inTeam))
	assert.Equal(t, http.StatusOK, ask(t, e.rest(), "/api/v1/namespaces/team/secrets/certificate", values(), "").code)
	assert.Equal(t, http.StatusForbidden, ask(t, e.rest(), closed, values(), "").code)
	assert.Equal(t, http.StatusForbidden, ask(t, e.rest(), "/api/v1/namespaces/closed/secrets/certificate", values(), "").code)
}
