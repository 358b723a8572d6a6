//go:build system

package flow

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"fairlead.dev/pkg/kubetest"
)

// TestOutage loses the API server in each way while watches are open. They stay open, and get exactly the difference afterwards.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, state := range []string{linkCut, linkSwallow} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.node("in-1", "edge")
			for i := range 3 {
				w.createSlice(slice("default", "a", fmt.Sprintf("a-%d", i), "in-1"))
			}
			e := w.edge("edge").ready()
			events := follow(t, e.rest())
			w.network.set(state)
			slices := w.direct.DiscoveryV1().EndpointSlices("default")
			w.createSlice(slice("default", "a", "new", "in-1"))
			live, err := slices.Get(t.Context(), "a-0", metav1.GetOptions{})
			require.NoError(t, err)
			live.Endpoints = nil
			_, err = slices.Update(t.Context(), live, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.NoError(t, slices.Delete(t.Context(), "a-1", metav1.DeleteOptions{}))
			assert.Equal(t, http.StatusOK, ask(t, e.rest(), slicesPath, values("resourceVersion", "0"), "").code)
			require.Eventually(t, func() bool { return e.write(t) == http.StatusServiceUnavailable }, kubetest.Patience,
				100*time.Millisecond)
			assert.Equal(t, http.StatusOK, ask(t, e.rest(), slicesPath, values(), "").code)
			silentFor(t, events, time.Second)
			w.network.set(linkUp)
			if state == linkSwallow {
				w.network.set(linkCut) // old connections lost data for ever
				w.network.set(linkUp)
			}
			got := map[string]string{}
			var last uint64
			for range 3 {
				ev := next(t, events)
				got[ev.Object.Metadata.Name] = ev.Type
				assert.Greater(t, ev.rv(t), last)
				last = ev.rv(t)
			}
			assert.Equal(t, map[string]string{"new": "ADDED", "a-0": "MODIFIED", "a-1": "DELETED"}, got)
			silentFor(t, events, 500*time.Millisecond)
		})
	}
}

// TestRestoredBackup restores etcd to an earlier time. Nothing of the lost time survives, and virtual versions keep rising.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	w := newOwnWorld(t)
	w.node("in-1", "edge")
	w.createSlice(slice("default", "a", "before", "in-1"))
	file := filepath.Join(t.TempDir(), "snapshot.db")
	require.NoError(t, w.cluster.Snapshot(t.Context(), file))
	for i := range 20 {
		w.createSlice(slice("default", "a", fmt.Sprintf("lost-%d", i), "in-1"))
	}
	e := w.edge("edge").ready()
	i := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, i)
	e.converges(i)
	before, err := strconv.ParseUint(ask(t, e.rest(), slicesPath, values("resourceVersion", "0"), "").Metadata.ResourceVersion, 10, 64)
	require.NoError(t, err)
	require.NoError(t, w.cluster.Restore(t.Context(), file))
	e.converges(i)
	require.Eventually(t, func() bool { return len(i.GetStore().List()) <= 2 }, kubetest.Patience, tick)
	after, err := strconv.ParseUint(ask(t, e.rest(), slicesPath, values("resourceVersion", "0"), "").Metadata.ResourceVersion, 10, 64)
	require.NoError(t, err)
	assert.Greater(t, after, before)
	w.createSlice(slice("default", "a", "later", "in-1"))
	e.converges(i)
	services, err := e.client().CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, services.Items, 1)
}

// TestAnotherCluster replaces the cluster behind the address.
func TestAnotherCluster(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	for _, x := range []*world{w, other} {
		x.node("in-1", "edge")
		for i := range 3 {
			x.createSlice(slice("default", "a", fmt.Sprintf("same-%d", i), "in-1"))
		}
	}
	w.createSlice(slice("default", "a", "only-here", "in-1"))
	e := w.edge("edge").ready()
	i := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, i)
	e.converges(i)
	e.stop()
	w.writeKubeconfigTo(other, e.cfg.Upstream.Kubeconfig)
	e.world = other
	e.start()
	e.ready()
	e.converges(i)
}

// writeKubeconfigTo writes a kubeconfig of another world.
func (w *world) writeKubeconfigTo(other *world, path string) {
	w.t.Helper()
	other.writeKubeconfig(path, other.cluster.RESTConfig())
}

// TestRevokedRight takes a right away while everything is online, and gives it back.
func TestRevokedRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.createSlice(slice("default", "a", "a-0", "in-1"))
	rules := []rbacv1.PolicyRule{
		{
			APIGroups: []string{"", "networking.k8s.io", "discovery.k8s.io"}, Resources: []string{"*"},
			Verbs: []string{"get", "list", "watch"},
		},
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Rules: rules}
	_, err := w.direct.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = w.direct.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "edge"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edge"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "default"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	e := w.edge("edge")
	e.stop()
	w.serviceAccountKubeconfig(e.cfg.Upstream.Kubeconfig)
	e.start()
	e.ready()
	role.Rules = rules[:0]
	_, err = w.direct.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return ask(t, e.rest(), slicesPath, values(), "").code == http.StatusForbidden },
		kubetest.Patience, 100*time.Millisecond)
	role.Rules = rules
	_, err = w.direct.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return ask(t, e.rest(), slicesPath, values(), "").code == http.StatusOK }, kubetest.Patience,
		100*time.Millisecond)
}

// serviceAccountKubeconfig writes a kubeconfig with a token of the default service account.
func (w *world) serviceAccountKubeconfig(path string) {
	w.t.Helper()
	c := rest.AnonymousClientConfig(w.cluster.RESTConfig())
	c.BearerToken = w.token()
	w.writeKubeconfig(path, c)
}
