package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/services/edge-cache/internal/wire"
)

func TestParseRequest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		method, path string
		want         request
	}{
		{"GET", "/api/v1/pods", request{verb: "list", version: "v1", resource: "pods", isResource: true, isCollection: true}},
		{"GET", "/api/v1/namespaces", request{verb: "list", version: "v1", resource: "namespaces", isResource: true, isCollection: true}},
		{"GET", "/api/v1/namespaces/a", request{verb: "get", version: "v1", resource: "namespaces", name: "a", isResource: true}},
		{
			"PUT", "/api/v1/namespaces/a/finalize",
			request{verb: "update", version: "v1", resource: "namespaces", name: "a", subresource: "finalize", isResource: true},
		},
		{
			"HEAD", "/api/v1/namespaces/a/secrets/b",
			request{verb: "get", version: "v1", namespace: "a", resource: "secrets", name: "b", isResource: true},
		},
		{"PATCH", "/apis/networking.k8s.io/v1/namespaces/a/ingresses/b/status", request{
			verb: "patch", group: "networking.k8s.io", version: "v1", namespace: "a", resource: "ingresses", name: "b",
			subresource: "status", isResource: true,
		}},
		{
			"DELETE", "/api/v1/nodes",
			request{verb: "deletecollection", version: "v1", resource: "nodes", isResource: true, isCollection: true},
		},
		{"DELETE", "/api/v1/nodes/a", request{verb: "delete", version: "v1", resource: "nodes", name: "a", isResource: true}},
		{
			"POST", "/api/v1/namespaces/a/events",
			request{verb: "create", version: "v1", namespace: "a", resource: "events", isResource: true, isCollection: true},
		},
		{"GET", "/api/v1", request{}},
		{"GET", "/apis/a/v1", request{}},
		{"GET", "/metrics", request{}},
		{"GET", "/api/v1//pods", request{}},
		{"GET", "/api/v1/namespaces/a/pods/b/c/d/e", request{}},
		{"PUT", "/apis/networking.k8s.io/v1/namespaces/a/ingresses/../status", request{}},
		{"GET", "/api/v1/namespaces/../secrets/b", request{}},
		{"GET", "/api/v1/namespaces/./secrets/b", request{}},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, parseRequest(tt.method, tt.path, false), "%s %s", tt.method, tt.path)
	}
	assert.Equal(t, "watch", parseRequest(http.MethodGet, "/api/v1/pods", true).verb)
	assert.Equal(t, "get", parseRequest(http.MethodGet, "/api/v1/nodes/a", true).verb)
}

// The API server reads boolean parameters with a conversion of apimachinery.
func TestBooleanParametersEqualThoseOfTheAPIServer(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "w", "w=", "w=0", "w=1", "w=true", "w=false", "w=False", "w=FALSE", "w=00", "w=no", "w=0&w=1", "w=1&w=0",
	} {
		q, err := url.ParseQuery(text)
		require.NoError(t, err)
		values, want := q["w"], false
		require.NoError(t, runtime.Convert_Slice_string_To_bool(&values, &want, nil))
		assert.Equal(t, want, isTrue(q, "w"), text)
	}
}

func TestNegotiate(t *testing.T) {
	t.Parallel()
	const metadata = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	tests := []struct {
		name, accept string
		stored       wire.Format
		want         encoding
		wantCode     int32
	}{
		{name: "none", want: encoding{format: wire.JSON}},
		{name: "anything", accept: "*/*", want: encoding{format: wire.JSON}},
		{name: "protobuf", accept: protobufType + "," + jsonType, want: encoding{format: wire.Protobuf}},
		{name: "protobuf of a custom kind", accept: protobufType + "," + jsonType, stored: wire.JSON, want: encoding{format: wire.JSON}},
		{name: "only protobuf of a custom kind", accept: protobufType, stored: wire.JSON, wantCode: 406},
		{name: "metadata", accept: protobufType + metadata, stored: wire.JSON, want: encoding{format: wire.Protobuf, metadataOnly: true}},
		{name: "metadata of another version", accept: jsonType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1", wantCode: 406},
		{name: "a table, or JSON", accept: jsonType + ";as=Table;g=meta.k8s.io;v=v1," + jsonType, want: encoding{format: wire.JSON}},
		{name: "quality", accept: jsonType + ";q=0.5," + protobufType + ";q=0.9", want: encoding{format: wire.Protobuf}},
		{name: "quality zero", accept: jsonType + ";q=0", wantCode: 406},
		{name: "quality that is no number", accept: jsonType + ";q=NaN", wantCode: 406},
		{name: "malformed", accept: ";;;,/", wantCode: 406},
		{name: "long", accept: strings.Repeat("a", maxAccept+1), wantCode: 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			if tt.accept != "" {
				h.Set("Accept", tt.accept)
			}
			got, err := negotiateEncoding(h, tt.stored)
			if tt.wantCode != 0 {
				require.Error(t, err)
				assert.Equal(t, tt.wantCode, toStatus(err).Code)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParseOptions(t *testing.T) {
	t.Parallel()
	for query, code := range map[string]int32{
		"limit=-1": 400, "limit=x": 400, "timeoutSeconds=-1": 400, "timeoutSeconds=1e9": 400, "labelSelector=a%20b%20c": 400,
		"fieldSelector=a": 400, "resourceVersion=x": 400, "resourceVersion=-1": 400, "resourceVersion=18446744073709551616": 400,
		"labelSelector=" + strings.Repeat("a", maxSelector+1): 400, "fieldSelector=" + strings.Repeat("a", maxSelector+1): 400,
		"resourceVersionMatch=Exact": 422, "resourceVersionMatch=x&resourceVersion=1": 422,
		"resourceVersionMatch=Exact&resourceVersion=0": 422, "sendInitialEvents=true": 422, "watch=1&sendInitialEvents=true": 422,
		"watch=1&resourceVersionMatch=NotOlderThan": 422,
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, err = parseOptions(q)
		require.Error(t, err, query)
		assert.Equal(t, code, toStatus(err).Code, query)
	}
	q, err := url.ParseQuery("watch=1&resourceVersion=7&timeoutSeconds=999999999&allowWatchBookmarks=true&labelSelector=a%3Db")
	require.NoError(t, err)
	o, err := parseOptions(q)
	require.NoError(t, err)
	assert.True(t, o.Watch && o.AllowWatchBookmarks)
	assert.Equal(t, uint64(7), o.rv)
	assert.Equal(t, 24*time.Hour, o.timeout)
	assert.Equal(t, "a=b", o.LabelSelector.String())
}
