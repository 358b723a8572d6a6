package api

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/upstream"
)

// answers is an API server that gives the same answer to everything.
type answers struct {
	offline bool
	code    int
	body    string
}

func (a answers) IsOnline() bool { return !a.offline }

func (a answers) Do(context.Context, upstream.Request) (*http.Response, error) {
	r := httptest.NewRecorder()
	r.Header().Set("Content-Type", "application/json")
	r.WriteHeader(a.code)
	_, _ = io.WriteString(r, a.body)
	return r.Result(), nil
}

// kept are documents in memory.
type kept map[string]CachedResponse

func (k kept) LoadResponse(key string) (CachedResponse, bool) { d, found := k[key]; return d, found }
func (k kept) SaveResponse(key string, d CachedResponse)      { k[key] = d }
func (k kept) DeleteResponse(key string)                      { delete(k, key) }

// TestReadsThatAreKept answers with what the API server says about the request, else with an answer from before, else with the reason.
func TestReadsThatAreKept(t *testing.T) {
	t.Parallel()
	before := kept{"/apis?|": {ContentType: "application/json", Body: []byte("before")}}
	large := strings.Repeat("x", maxCachedBody+1000)
	tests := []struct {
		name   string
		server answers
		kept   kept
		code   int
		want   string
	}{
		{"an answer", answers{code: 200, body: "now"}, before, 200, "now"},
		{"forbidden", answers{code: 403, body: "no"}, before, 403, "no"},
		{"an error, and an answer from before", answers{code: 500, body: "etcd failed"}, before, 200, "before"},
		{"an error", answers{code: 500, body: "etcd failed"}, nil, 503, "none now: API server: 500 InternalServerError: etcd failed"},
		{"offline, and an answer from before", answers{offline: true}, before, 200, "before"},
		{"offline", answers{offline: true}, nil, 503, "none now: it has not answered the last probe"},
		{"a large answer", answers{code: 200, body: large}, nil, 200, large},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			documents := kept{}
			for key, d := range tt.kept {
				documents[key] = d
			}
			s := New(Params{Backend: tt.server, Responses: documents, Token: "t", Limits: DefaultLimits(), Observer: &edge{}})
			r := httptest.NewRequest(http.MethodGet, "/apis", nil)
			r.Header.Set("Authorization", "Bearer t")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			assert.Equal(t, tt.code, w.Code)
			assert.Contains(t, w.Body.String(), tt.want)
			assert.LessOrEqual(t, len(documents["/apis?|"].Body), maxCachedBody)
		})
	}
}

// TestAnswersThatAreTooLarge are cut off, so that the client does not take a part for the whole.
func TestAnswersThatAreTooLarge(t *testing.T) {
	t.Parallel()
	s := New(Params{
		Backend: answers{code: 200, body: strings.Repeat("x", maxAnswer)}, Responses: kept{}, Token: "t", Limits: DefaultLimits(),
		Observer: &edge{},
	})
	r := httptest.NewRequest(http.MethodGet, "/apis", nil)
	r.Header.Set("Authorization", "Bearer t")
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { s.ServeHTTP(httptest.NewRecorder(), r) })
}

// TestBodiesInMemoryAreBounded lets requests wait whose bodies would not fit, until their clients give up.
func TestBodiesInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	list, err := allowlist.ForProfile("haproxytech", nil)
	require.NoError(t, err)
	s := New(Params{Allow: list, Backend: answers{code: 200}, Responses: kept{}, Token: "t", Limits: DefaultLimits(), Observer: &edge{}})
	for range maxBuffered {
		_, err := s.acquireBuffer(t.Context())
		require.NoError(t, err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for method, path := range map[string]string{http.MethodGet: "/apis", http.MethodPost: "/api/v1/namespaces/a/events"} {
		r := httptest.NewRequest(method, path, nil).WithContext(canceled)
		r.Header.Set("Authorization", "Bearer t")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, path)
		assert.Contains(t, w.Body.String(), "nothing was sent", path)
	}
}

// TestNamespacesThatAreNotCached names a remedy that helps.
func TestNamespacesThatAreNotCached(t *testing.T) {
	t.Parallel()
	list, err := allowlist.ForProfile("traefik-crd", nil)
	require.NoError(t, err)
	served := func(name, ns string) ServedStore {
		return ServedStore{Resource: allowlist.Resource{Version: "v1", Name: name, Own: ns == "ingress"}, Namespace: ns}
	}
	s := New(Params{
		Allow: list, Namespace: "ingress",
		Stores: []ServedStore{served("services", "a"), served("services", "b"), served("configmaps", "ingress")},
	})
	tests := []struct {
		path, want string
	}{
		{
			"/api/v1/services",
			"only those of a, b: set Traefik's --providers.kubernetesIngress.namespaces and --providers.kubernetesCRD.namespaces",
		},
		{"/api/v1/namespaces/c/services", "add the namespace with --namespaces"},
		{"/api/v1/namespaces/a/configmaps", "only those in the controller's own namespace ingress: add v1/configmaps with --resources"},
	}
	for _, tt := range tests {
		_, err := s.findStore(parseRequest(http.MethodGet, tt.path, false))
		require.ErrorContains(t, err, tt.want)
	}
	for _, profile := range allowlist.ProfileNames() {
		list, err := allowlist.ForProfile(profile, nil)
		require.NoError(t, err)
		assert.NotEmpty(t, list.NamespaceSetting, profile)
	}
}
