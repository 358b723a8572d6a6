package ocilb_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

func TestAdmin(t *testing.T) {
	t.Parallel()
	o := ocilbtest.Options()
	o.Modes.Stale = 0
	e := ocilb.New(o)
	t.Cleanup(e.Close)
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	steps := []struct {
		method, path, body string
		status             int
		want               string // part of the answer
	}{
		{http.MethodPut, "/_emu/loadBalancers/a", `{"compartmentId": "c"}`, http.StatusOK, ""},
		{http.MethodPut, "/_emu/loadBalancers/a", `{"listeners": {"web": {"port": 80, "protocol": "HTTP", "defaultBackendSetName": "none"}}}`, http.StatusBadRequest, "refers to backend set 'none'"},
		{http.MethodPut, "/_emu/loadBalancers/a", `{"routingPolicies": {"p": {"conditionLanguageVersion": "V1", "rules": [{"name": "r", "condition": "http.request.url.path sw '/'"}]}}}`, http.StatusBadRequest, "needs one action"},
		{http.MethodPut, "/_emu/loadBalancers/a", `{"backendSets": {"s": {"policy": "ROUND_ROBIN", "healthChecker": {"protocol": "TCP", "intervalInMillis": 0}}}}`, http.StatusBadRequest, "Invalid intervalInMillis 0"},
		{http.MethodPut, "/_emu/loadBalancers/old", `{"compartmentId": "old", "fixedShape": "100Mbps"}`, http.StatusOK, ""},
		{http.MethodPut, "/_emu/loadBalancers/old", `{"compartmentId": "old", "fixedShape": "200Mbps"}`, http.StatusBadRequest, "it must be one of 10Mbps-Micro, 100Mbps"},
		{http.MethodGet, "/20170115/loadBalancers/old", "", http.StatusOK, `"shapeName":"100Mbps","isPrivate"`},
		{http.MethodPatch, "/20170115/loadBalancers/old", "", http.StatusMethodNotAllowed, `"code":"MethodNotAllowed"`},
		{http.MethodPost, "/20170115/loadBalancers/old/backendSets/chat/health", "", http.StatusMethodNotAllowed, "Method POST is not allowed"},
		{http.MethodGet, "/20170115/loadBalancers/old/none", "", http.StatusNotFound, "NotAuthorizedOrNotFound"},
		{http.MethodPut, "/_emu/loadBalancers/a/backendSets/chat", `{"policy": "ROUND_ROBIN", "backends": [], "healthChecker": {"protocol": "TCP"}}`, http.StatusOK, ""},
		{http.MethodPut, "/_emu/loadBalancers/a/backendSets/chat", `{"policy": "NONE", "backends": []}`, http.StatusBadRequest, "Invalid policy"},
		{http.MethodPut, "/_emu/loadBalancers/b/backendSets/chat", `{"policy": "ROUND_ROBIN"}`, http.StatusNotFound, "NotAuthorizedOrNotFound"},
		{http.MethodGet, "/_emu/loadBalancers/a", "", http.StatusOK, `"chat"`},
		{http.MethodGet, "/_emu/loadBalancers/b", "", http.StatusNotFound, ""},
		{http.MethodPut, "/_emu/modes", `{"concurrency": "busy", "latency": "90s"}`, http.StatusOK, ""},
		{http.MethodGet, "/_emu/modes", "", http.StatusOK, `"latency":"1m30s"`},
		{http.MethodPut, "/_emu/modes", `{"concurrency": "fast"}`, http.StatusBadRequest, "give queue, parallel, busy or conflict"},
		{http.MethodGet, "/_emu/modes", "", http.StatusOK, `"concurrency":"busy"`},
		{http.MethodPut, "/_emu/faults", `[{"kind": "status", "status": 503, "code": "ServiceUnavailable", "count": 1}]`, http.StatusOK, ""},
		{http.MethodGet, "/20170115/loadBalancers/a", "", http.StatusServiceUnavailable, "ServiceUnavailable"},
		{http.MethodGet, "/20170115/loadBalancers?compartmentId=c", "", http.StatusOK, `"id":"a"`},
		{http.MethodPut, "/_emu/faults", `[{"sort": "status"}]`, http.StatusBadRequest, "unknown field"},
		{http.MethodPut, "/_emu/throttle", `{"perSecond": 0.001, "burst": 1}`, http.StatusOK, ""},
		{http.MethodGet, "/20170115/loadBalancers/a/backendSets", "", http.StatusOK, "chat"},
		{http.MethodGet, "/20170115/loadBalancers/a/backendSets", "", http.StatusTooManyRequests, "TooManyRequests"},
		{http.MethodGet, "/_emu/calls?operation=ListBackendSets", "", http.StatusOK, `"status":429`},
		{http.MethodDelete, "/_emu/calls", "", http.StatusOK, ""},
		{http.MethodGet, "/_emu/calls", "", http.StatusOK, "null"},
		{http.MethodGet, "/_emu/idle", "", http.StatusNoContent, ""},
	}
	for _, s := range steps {
		status, answer := ask(s.method, s.path, s.body)
		require.Equal(t, s.status, status, "%s %s: %s", s.method, s.path, answer)
		assert.Contains(t, answer, s.want, "%s %s", s.method, s.path)
	}
}
