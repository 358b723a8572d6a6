//go:build system

package flow

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"fairlead.dev/pkg/kubetest"
)

func TestProtocol(t *testing.T) {
	t.Parallel()
	w, e := protocolWorld(t)
	t.Run("watch-list", func(t *testing.T) { testWatchList(t, w, e) })
	t.Run("list options", func(t *testing.T) { testListOptions(t, w, e) })
	t.Run("pages", func(t *testing.T) { testPages(t, e) })
	t.Run("encodings", func(t *testing.T) { testEncodings(t, w, e) })
	t.Run("credentials and allow-list", func(t *testing.T) { testAccess(t, e) })
	t.Run("selectors", func(t *testing.T) { testSelectors(t, w, e) })
	t.Run("time limits", func(t *testing.T) { testTimeouts(t, e) })
	t.Run("offline", func(t *testing.T) {
		w.network.set(linkCut)
		require.Eventually(t, func() bool { return e.write(t) == http.StatusServiceUnavailable }, kubetest.Patience, 100*time.Millisecond)
		testPages(t, e)
		testTimeouts(t, e)
		assert.Equal(t, http.StatusOK, ask(t, e.rest(), slicesPath, values(), "").code)
		assert.Contains(t, string(ask(t, e.rest(), "/version", values(), "").body), "gitVersion")
		q := values("labelSelector", "kubernetes.io/service-name=b")
		assert.Len(t, ask(t, e.rest(), slicesPath, q, "").Items, 1)
		assert.Equal(t, http.StatusServiceUnavailable, ask(t, e.rest(), "/apis/apps", values(), "").code)
	})
}

func testWatchList(t *testing.T, w *world, e *edge) {
	events := stream(t, e.rest(), slicesPath, values(watchListQuery...))
	list := ask(t, e.rest(), slicesPath, values("resourceVersion", "0"), "")
	seen := map[string]bool{}
	var end event
	for range list.Items {
		ev := next(t, events)
		require.Equal(t, "ADDED", ev.Type)
		seen[ev.Object.Metadata.Namespace+"/"+ev.Object.Metadata.Name] = true
	}
	assert.Len(t, seen, len(list.Items), "each object once")
	end = next(t, events)
	require.Equal(t, "BOOKMARK", end.Type)
	assert.Equal(t, "EndpointSlice", end.Object.Kind)
	assert.Equal(t, "true", end.Object.Metadata.Annotations["k8s.io/initial-events-end"])
	assert.LessOrEqual(t, end.Object.Metadata.ResourceVersion, list.Metadata.ResourceVersion)
	silentFor(t, events, 300*time.Millisecond) // exactly one bookmark

	// The version of the bookmark goes on without a gap and without a duplicate.
	w.createSlice(slice("default", "c", "resumed", "in-1"))
	resumed := stream(t, e.rest(), slicesPath, values("resourceVersion", end.Object.Metadata.ResourceVersion))
	for _, s := range []<-chan event{events, resumed} {
		ev := next(t, s)
		assert.Equal(t, "ADDED", ev.Type)
		assert.Equal(t, "resumed", ev.Object.Metadata.Name)
		assert.Greater(t, ev.rv(t), end.rv(t))
	}
	silentFor(t, resumed, 300*time.Millisecond)
}

func testListOptions(t *testing.T, w *world, e *edge) {
	now := ask(t, e.rest(), slicesPath, values(), "").Metadata.ResourceVersion
	direct := ask(t, w.cluster.RESTConfig(), slicesPath, values(), "").Metadata.ResourceVersion
	tests := []struct {
		name       string
		give       []string
		wantDirect string // the version to ask the API server for, in place of the virtual one
		want       int
	}{
		{name: "newest", want: 200},
		{name: "any", give: []string{"resourceVersion", "0"}, want: 200},
		{name: "exactly now", give: []string{"resourceVersion", now, "resourceVersionMatch", "Exact"}, wantDirect: direct, want: 200},
		{name: "not older", give: []string{"resourceVersion", now, "resourceVersionMatch", "NotOlderThan"}, wantDirect: direct, want: 200},
		{name: "too old", give: []string{"resourceVersion", "1", "resourceVersionMatch", "Exact"}, want: 410},
		{name: "malformed version", give: []string{"resourceVersion", "abc"}},
		{name: "match without version", give: []string{"resourceVersionMatch", "Exact"}},
		{name: "exactly any", give: []string{"resourceVersion", "0", "resourceVersionMatch", "Exact"}},
		{name: "unknown match", give: []string{"resourceVersion", "1", "resourceVersionMatch", "Newest"}},
		{name: "match with continue", give: []string{"continue", "x", "resourceVersion", "1", "resourceVersionMatch", "Exact"}},
		{name: "initial events of a list", give: []string{"sendInitialEvents", "true"}},
		{name: "watch with match", give: []string{"watch", "true", "resourceVersion", "1", "resourceVersionMatch", "NotOlderThan"}},
		{name: "watch-list without match", give: []string{"watch", "true", "sendInitialEvents", "true"}},
		{name: "watch-list with exact", give: []string{"watch", "true", "sendInitialEvents", "true", "resourceVersionMatch", "Exact"}},
		{name: "malformed label selector", give: []string{"labelSelector", "a in"}},
		{name: "malformed field selector", give: []string{"fieldSelector", "a"}},
		{name: "unknown field", give: []string{"fieldSelector", "spec.color=red"}},
		{name: "malformed continue", give: []string{"continue", "%%%"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := values(tt.give...)
			got := ask(t, e.rest(), slicesPath, q, "")
			if tt.wantDirect != "" {
				q.Set("resourceVersion", tt.wantDirect)
			}
			want := tt.want
			if want != 410 { // the API server keeps old versions for some minutes
				want = ask(t, w.cluster.RESTConfig(), slicesPath, q, "").code
			}
			assert.Equal(t, want, got.code, "%s", got.body)
			if tt.want != 0 {
				assert.Equal(t, tt.want, got.code, "%s", got.body)
			}
		})
	}
	t.Run("too new", func(t *testing.T) {
		got := ask(t, e.rest(), slicesPath, values("resourceVersion", "9000000000000000000", "resourceVersionMatch", "NotOlderThan"), "")
		assert.Equal(t, http.StatusGatewayTimeout, got.code)
		require.NotNil(t, got.Details)
		assert.Equal(t, metav1.CauseTypeResourceVersionTooLarge, got.Details.Causes[0].Type)
	})
	t.Run("exactly before a change", func(t *testing.T) {
		before := ask(t, e.rest(), slicesPath, values(), "")
		w.createSlice(slice("default", "x", "later", "in-1"))
		require.NoError(t, w.direct.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "a-2", metav1.DeleteOptions{}))
		require.Eventually(t, func() bool {
			return len(ask(t, e.rest(), slicesPath, values("fieldSelector", "metadata.name=a-2"), "").Items) == 0
		}, kubetest.Patience, tick)
		got := ask(t, e.rest(), slicesPath, values("resourceVersion", before.Metadata.ResourceVersion, "resourceVersionMatch", "Exact"), "")
		assert.Equal(t, before.Items, got.Items)
		assert.Equal(t, before.Metadata.ResourceVersion, got.Metadata.ResourceVersion)
	})
	t.Run("watch of a forgotten version", func(t *testing.T) {
		assert.Equal(t, http.StatusGone, ask(t, e.rest(), slicesPath, values("watch", "true", "resourceVersion", "1"), "").code)
	})
}

func testPages(t *testing.T, e *edge) {
	whole := ask(t, e.rest(), slicesPath, values(), "")
	var names []string
	q := values("limit", "1")
	for {
		page := ask(t, e.rest(), slicesPath, q, "")
		require.Equal(t, http.StatusOK, page.code)
		require.LessOrEqual(t, len(page.Items), 1)
		for _, i := range page.Items {
			names = append(names, i.Metadata.Namespace+"/"+i.Metadata.Name)
		}
		if page.Metadata.Continue == "" {
			break
		}
		q.Set("continue", page.Metadata.Continue)
	}
	want := make([]string, 0, len(whole.Items))
	for _, i := range whole.Items {
		want = append(want, i.Metadata.Namespace+"/"+i.Metadata.Name)
	}
	assert.Equal(t, want, names)

	first := ask(t, e.rest(), slicesPath, values("limit", "1"), "")
	assert.Equal(t, http.StatusBadRequest,
		ask(t, e.rest(), slicesPath, values("limit", "1", "continue", first.Metadata.Continue, "resourceVersion", "5"), "").code)
	// A token of a list that is forgotten.
	assert.Equal(t, http.StatusGone,
		ask(t, e.rest(), slicesPath, values("limit", "1", "continue", "eyJydiI6OTk5LCJhZnRlciI6ImEifQ"), "").code)
}

func testEncodings(t *testing.T, w *world, e *edge) {
	const protobuf = "application/vnd.kubernetes.protobuf"
	tests := []struct {
		name, accept, want string
	}{
		{name: "none", want: "application/json"},
		{name: "first of two", accept: protobuf + ",application/json", want: protobuf},
		{name: "quality", accept: protobuf + ";q=0.1,application/json", want: "application/json"},
		{name: "unknown first", accept: "application/cbor," + protobuf, want: protobuf},
		{name: "anything", accept: "*/*", want: "application/json"},
		{name: "only unknown", accept: "application/cbor-seq"},
		{name: "table, then JSON", accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", want: "application/json"},
		{name: "metadata", accept: protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", want: protobuf},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ask(t, e.rest(), slicesPath, values(), tt.accept)
			if tt.want == "" {
				assert.Equal(t, http.StatusNotAcceptable, got.code)
				return
			}
			assert.Equal(t, http.StatusOK, got.code)
			assert.Equal(t, tt.want, got.kind)
		})
	}
	t.Run("JSON is that of the API server", func(t *testing.T) {
		const path = "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices/b-0" // all of its endpoints are in the pool
		got, want := ask(t, e.rest(), path, values(), ""), ask(t, w.cluster.RESTConfig(), path, values(), "")
		assert.JSONEq(t, normalize(t, want.body), normalize(t, got.body))
	})
}

// normalize removes what the cache removes or replaces.
func normalize(t *testing.T, object []byte) string {
	t.Helper()
	var o map[string]any
	require.NoError(t, json.Unmarshal(object, &o))
	meta := o["metadata"].(map[string]any)
	delete(meta, "managedFields")
	delete(meta, "resourceVersion")
	raw, err := json.Marshal(o)
	require.NoError(t, err)
	return string(raw)
}

func testAccess(t *testing.T, e *edge) {
	for name, token := range map[string]string{"no token": "", "wrong token": "x", "prefix of the token": e.rest().BearerToken[:10]} {
		c := e.rest()
		c.BearerToken = token
		assert.Equal(t, http.StatusUnauthorized, ask(t, c, slicesPath, values(), "").code, name)
	}
	for _, path := range []string{
		"/api/v1/pods", "/api/v1/namespaces/default/serviceaccounts", "/apis/apps/v1/deployments", "/api/v1/nodes/in-1/proxy", "/metrics",
		"/api/v1/namespaces/default/services/a/status", "/api/v1/namespaces/default/services/kubernetes/proxy/x", "/logs", "/",
	} {
		assert.Equal(t, http.StatusForbidden, ask(t, e.rest(), path, values(), "").code, path)
	}
	for _, try := range [][2]string{
		{http.MethodDelete, slicesPath}, {http.MethodPut, "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices/b-0"},
		{http.MethodPost, "/api/v1/namespaces/default/secrets"},
		{http.MethodPut, "/apis/networking.k8s.io/v1/namespaces/default/ingresses/x"},
		{http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/default/token"}, {"CONNECT", slicesPath}, {"FOO", slicesPath},
	} {
		client, err := rest.HTTPClientFor(e.rest())
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), try[0], e.rest().Host+try[1], nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		response.Body.Close()
		assert.Equal(t, http.StatusForbidden, response.StatusCode, "%v", try)
	}
	assert.Equal(t, http.StatusOK, ask(t, e.rest(), "/version", values(), "").code)
	assert.Equal(t, http.StatusOK, ask(t, e.rest(), "/apis/discovery.k8s.io/v1", values(), "").code)
	assert.Equal(t, http.StatusNotFound,
		ask(t, e.rest(), "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices/none", values(), "").code)
}

func testSelectors(t *testing.T, w *world, e *edge) {
	for field, want := range map[string]int{
		"metadata.name=b-0": 1, "metadata.namespace=team": 1, "metadata.name!=b-0,metadata.namespace=team": 0,
	} {
		assert.Len(t, ask(t, e.rest(), slicesPath, values("fieldSelector", field), "").Items, want, field)
	}
	assert.Len(t, ask(t, e.rest(), "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices", values(), "").Items, 1)

	rv := ask(t, e.rest(), slicesPath, values(), "").Metadata.ResourceVersion
	blue := stream(t, e.rest(), slicesPath, values("resourceVersion", rv, "labelSelector", "color=blue"))
	notBlue := stream(t, e.rest(), slicesPath, values("resourceVersion", rv, "labelSelector", "color!=blue,kubernetes.io/service-name=b"))
	patch := func(color string) {
		_, err := w.direct.DiscoveryV1().EndpointSlices("team").Patch(t.Context(), "b-0", "application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"color":`+color+`}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	patch(`"blue"`)
	in, out := next(t, blue), next(t, notBlue)
	assert.Equal(t, "ADDED", in.Type)
	assert.Equal(t, "DELETED", out.Type)
	assert.NotContains(t, out.Object.Metadata.Labels, "color", "a deletion has the last state that the client could see")
	assert.Equal(t, in.Object.Metadata.ResourceVersion, out.Object.Metadata.ResourceVersion)
	patch(`null`)
	assert.Equal(t, "DELETED", next(t, blue).Type)
	assert.Equal(t, "ADDED", next(t, notBlue).Type)
	// Nobody else's change is an event for a selector.
	w.createSlice(slice("default", "z", "noise", "in-1"))
	silentFor(t, blue, 200*time.Millisecond)
}

func testTimeouts(t *testing.T, e *edge) {
	events := stream(t, e.rest(), slicesPath, values(append(watchListQuery, "timeoutSeconds", "4")...))
	var last event
	bookmarks := 0
	for ev := range events {
		if last = ev; ev.Type == "BOOKMARK" {
			bookmarks++
		}
	}
	assert.Equal(t, "BOOKMARK", last.Type, "the last event gives the version to go on with")
	assert.GreaterOrEqual(t, bookmarks, 2, "one after the initial events, one before the end")
}
