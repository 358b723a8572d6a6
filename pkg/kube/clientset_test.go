package kube

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

var _ Clientset = (*fake.Clientset)(nil)

// roundTripper answers requests.
type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestClientset(t *testing.T) {
	t.Parallel()
	var asked []string
	server := roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		answer := httptest.NewRecorder()
		answer.Header().Set("Content-Type", "application/json")
		_, err := answer.WriteString(`{}`)
		return answer.Result(), err
	})
	client, err := NewClientset(&rest.Config{Transport: server, QPS: 1000, Burst: 1000, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)

	_, err = client.CoreV1().ConfigMaps("ns").Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = client.CoordinationV1().Leases("ns").Get(t.Context(), "b", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.Discovery().ServerResourcesForGroupVersionWithContext(t.Context(), "example.com/v1")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"GET /api/v1/namespaces/ns/configmaps/a",
		"GET /apis/coordination.k8s.io/v1/namespaces/ns/leases/b",
		"POST /apis/authentication.k8s.io/v1/tokenreviews",
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
		"GET /apis/example.com/v1",
	}, asked)
}

// One limit holds for the requests of all groups together.
func TestClientsetSharesItsLimit(t *testing.T) {
	t.Parallel()
	client, err := NewClientset(&rest.Config{Host: "https://localhost", QPS: 0.001, Burst: 1})
	require.NoError(t, err)
	assert.True(t, client.CoreV1().RESTClient().GetRateLimiter().TryAccept())
	assert.False(t, client.CoordinationV1().RESTClient().GetRateLimiter().TryAccept())
}

func TestClientsetWithoutCertificates(t *testing.T) {
	t.Parallel()
	_, err := NewClientset(&rest.Config{Host: "https://localhost", TLSClientConfig: rest.TLSClientConfig{CAFile: "missing.crt"}, Timeout: time.Second})
	require.ErrorContains(t, err, "make client of the API server: ")
	require.ErrorContains(t, err, "missing.crt")
}
