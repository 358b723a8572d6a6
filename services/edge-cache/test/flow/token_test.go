//go:build system

package flow

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/edge-cache/internal/config"
)

// token returns a new token of the service account default/default, which it creates: only controllers create it by themselves.
func (w *world) token() string {
	w.t.Helper()
	_, err := w.direct.CoreV1().ServiceAccounts("default").Create(w.t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(w.t, err)
	}
	made, err := w.direct.CoreV1().ServiceAccounts("default").CreateToken(w.t.Context(), "default", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	require.NoError(w.t, err)
	return made.Status.Token
}

// TestFilesOfTheUpstreamAreReadAgain replaces an invalid token and an invalid authority by valid ones, while the cache runs.
func TestFilesOfTheUpstreamAreReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.createSlice(slice("default", "a", "a-0", "in-1"))
	_, err := w.cluster.Kubectl(t.Context(), "create", "clusterrolebinding", "edge", "--clusterrole=cluster-admin",
		"--serviceaccount=default:default")
	require.NoError(t, err)
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	require.NoError(t, os.WriteFile(token, []byte("expired"), 0o600))
	otherCA, _ := newAuthority(t)
	require.NoError(t, os.WriteFile(ca, otherCA, 0o600))
	e := w.edge("edge", func(c *config.Config) {
		c.Upstream = config.Upstream{Server: "https://" + w.network.address(), CAFile: ca, TokenFile: token}
	})
	time.Sleep(500 * time.Millisecond)
	require.NoError(t, os.WriteFile(ca, authority(t, w), 0o600))
	time.Sleep(500 * time.Millisecond)
	require.NoError(t, os.WriteFile(token, []byte(w.token()), 0o600))
	e.ready()
	i := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, i)
	e.converges(i)
}

// authority returns the authority of an API server.
func authority(t *testing.T, w *world) []byte {
	t.Helper()
	c := w.cluster.RESTConfig()
	if len(c.CAData) > 0 {
		return c.CAData
	}
	raw, err := os.ReadFile(c.CAFile)
	require.NoError(t, err)
	return raw
}
