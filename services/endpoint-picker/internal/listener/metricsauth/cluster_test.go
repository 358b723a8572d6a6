//go:build system

package metricsauth

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	namespace  = metav1.NamespaceDefault
	pickerName = "picker-endpoint-picker" // as the chart has it for a release called picker
)

// token returns a token of a service account, which is made if it is not there.
func token(t *testing.T, client kubernetes.Interface, name string) string {
	t.Helper()
	accounts := client.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		_, err = accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	request, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// A real API server, real tokens, and a picker that may no more than its chart lets it.
func TestGuardWithARealAPIServer(t *testing.T) {
	t.Parallel()
	kube := cluster.Start(t, cluster.ControlPlaneOnly)
	admin := kube.Clientset()
	roles, err := kube.Helm(t.Context(), "template", "picker", filepath.Join("..", "..", "..", "..", "..", "charts", "endpoint-picker"),
		"--namespace", namespace, "--set", "pool.name=pool,metrics.auth=true", "--show-only", "templates/rbac.yaml")
	require.NoError(t, err)
	require.NoError(t, kube.Apply(t.Context(), roles))
	reader := "default:" + pickerName + ":metrics-reader"
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "prometheus"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	own, prometheus, curious := token(t, admin, pickerName), token(t, admin, "prometheus"), token(t, admin, "curious")
	require.Eventually(t, func() bool { // a guard caches what an API server says that does not know the roles yet
		status, _ := ask(guarded(t, kube, own), prometheus, "/metrics")
		return status == http.StatusOK
	}, kubetest.Patience, 100*time.Millisecond)
	picker := guarded(t, kube, own)
	tests := []struct {
		name  string
		token string
		path  string
		want  int
	}{
		{name: "one with the chart's role", token: prometheus, path: "/metrics", want: http.StatusOK},
		{name: "elsewhere", token: prometheus, path: "/debug/pprof/heap", want: http.StatusForbidden},
		{name: "an account without a role", token: curious, path: "/metrics", want: http.StatusForbidden},
		{name: "a broken signature", token: prometheus[:len(prometheus)-8], path: "/metrics", want: http.StatusUnauthorized},
		{name: "no token of any kind", token: "x", path: "/metrics", want: http.StatusUnauthorized},
	}
	for _, tt := range tests {
		status, text := ask(picker, tt.token, tt.path)
		assert.Equal(t, tt.want, status, "%s: %s", tt.name, text)
	}
	status, _ := ask(guarded(t, kube, curious), prometheus, "/metrics")
	assert.Equal(t, http.StatusServiceUnavailable, status, "a picker that may not ask")
}

// guarded returns a page behind a guard that asks with a token of its own.
func guarded(t *testing.T, kube *cluster.Cluster, own string) http.Handler {
	t.Helper()
	config := rest.AnonymousClientConfig(kube.RESTConfig())
	config.BearerToken = own
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return New(Params{
		Log: zaptest.NewLogger(t), Tokens: client.AuthenticationV1().TokenReviews(), Access: client.AuthorizationV1().SubjectAccessReviews(), Clock: clock.RealClock{},
	}).Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") }))
}

func ask(handler http.Handler, token, path string) (status int, text string) {
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, request)
	return w.Code, w.Body.String()
}
