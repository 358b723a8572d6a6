package ocilb_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

// furnished is a load balancer with an object of each kind, as the administrator's API takes it.
const furnished = `{
	"compartmentId": "c", "displayName": "d",
	"hostnames": {"one": {"hostname": "a.example.com"}},
	"sslCipherSuites": {"one": {"ciphers": ["AES128-SHA"]}},
	"backendSets": {"one": {"policy": "ROUND_ROBIN", "backends": [{"ipAddress": "10.0.0.1", "port": 80}], "healthChecker": {"protocol": "TCP"}, "lbCookieSessionPersistenceConfiguration": {}}},
	"pathRouteSets": {"one": {"pathRoutes": [{"path": "/a", "pathMatchType": {"matchType": "EXACT_MATCH"}, "backendSetName": "one"}]}},
	"ruleSets": {"one": {"items": [{"action": "REDIRECT", "conditions": [{"attributeName": "PATH", "attributeValue": "/", "operator": "EXACT_MATCH"}], "redirectUri": {"path": "/b"}}]}},
	"routingPolicies": {"one": {"conditionLanguageVersion": "V1", "rules": [{"name": "r", "condition": "http.request.url.path sw '/'", "actions": [{"name": "FORWARD_TO_BACKENDSET", "backendSetName": "one"}]}]}},
	"listeners": {"one": {"port": 80, "protocol": "HTTP", "defaultBackendSetName": "one", "routingPolicyName": "one", "pathRouteSetName": "one", "ruleSetNames": ["one"], "hostnameNames": ["one"],
		"connectionConfiguration": {"idleTimeout": 60}}}
}`

// writes are the requests with a body: of the API and of administrators, with a body that is accepted.
var writes = []struct{ method, path, body string }{
	{http.MethodPost, "/20170115/loadBalancers", `{"compartmentId": "ocid1.c", "displayName": "d", "shapeName": "flexible", "shapeDetails": {"minimumBandwidthInMbps": 10, "maximumBandwidthInMbps": 10},
		"subnetIds": ["ocid1.s"], "freeformTags": {"a": "b"}, "definedTags": {"a": {"b": "c"}}, "reservedIps": [{"id": "ocid1.i"}], "hostnames": {"a": {"name": "a", "hostname": "a"}}, "certificates": {}}`},
	{http.MethodPut, "/20170115/loadBalancers/a", `{"displayName": "d", "freeformTags": {"a": "b"}, "definedTags": {"a": {"b": "c"}}, "reservedIps": [{"id": "ocid1.i"}]}`},
	{http.MethodPut, "/20170115/loadBalancers/a/updateShape", `{"shapeName": "flexible", "shapeDetails": {"minimumBandwidthInMbps": 10, "maximumBandwidthInMbps": 10}}`},
	{http.MethodPut, "/20170115/loadBalancers/a/networkSecurityGroups", `{"networkSecurityGroupIds": ["ocid1.n"]}`},
	{http.MethodPost, "/20170115/loadBalancers/a/changeCompartment", `{"compartmentId": "ocid1.c"}`},
	{http.MethodPost, "/20170115/loadBalancers/a/backendSets", `{"name": "two", "policy": "ROUND_ROBIN", "backends": [{"ipAddress": "10.0.0.1", "port": 80}], "healthChecker": {"protocol": "TCP"},
		"sslConfiguration": {"protocols": ["TLSv1.2"], "trustedCertificateAuthorityIds": ["ocid1.a"]}, "sessionPersistenceConfiguration": {"cookieName": "*"}}`},
	{http.MethodPut, "/20170115/loadBalancers/a/backendSets/one", `{"policy": "ROUND_ROBIN", "backends": [], "healthChecker": {"protocol": "TCP"}, "lbCookieSessionPersistenceConfiguration": {"path": "/"}}`},
	{http.MethodPut, "/20170115/loadBalancers/a/backendSets/one/healthChecker", `{"protocol": "TCP"}`},
	{http.MethodPost, "/20170115/loadBalancers/a/backendSets/one/backends", `{"ipAddress": "10.0.0.2", "port": 80}`},
	{http.MethodPut, "/20170115/loadBalancers/a/backendSets/one/backends/10.0.0.1:80", `{"weight": 1, "drain": true, "backup": false, "offline": false}`},
	{http.MethodPost, "/20170115/loadBalancers/a/listeners", `{"name": "two", "port": 81, "protocol": "HTTP", "defaultBackendSetName": "one", "ruleSetNames": ["one"]}`},
	{http.MethodPut, "/20170115/loadBalancers/a/listeners/one", `{"port": 81, "protocol": "TCP", "defaultBackendSetName": "one", "sslConfiguration": {"certificateIds": ["ocid1.c"]}}`},
	{http.MethodPost, "/20170115/loadBalancers/a/routingPolicies", `{"name": "two", "conditionLanguageVersion": "V1", "rules": [{"name": "r", "condition": "any(http.request.url.path sw '/')", "actions": [{"name": "FORWARD_TO_BACKENDSET", "backendSetName": "one"}]}]}`},
	{http.MethodPut, "/20170115/loadBalancers/a/routingPolicies/one", `{"rules": [{"name": "r", "condition": "http.request.headers[(i 'a')][0] not ew 'b'", "actions": [{"name": "FORWARD_TO_BACKENDSET", "backendSetName": "one"}]}]}`},
	{http.MethodPost, "/20170115/loadBalancers/a/pathRouteSets", `{"name": "two", "pathRoutes": [{"path": "/a", "pathMatchType": {"matchType": "EXACT_MATCH"}, "backendSetName": "one"}]}`},
	{http.MethodPut, "/20170115/loadBalancers/a/pathRouteSets/one", `{"pathRoutes": [{"path": "/a", "pathMatchType": {"matchType": "SUFFIX_MATCH"}, "backendSetName": "one"}]}`},
	{http.MethodPost, "/20170115/loadBalancers/a/ruleSets", `{"name": "two", "items": [{"action": "IP_BASED_MAX_CONNECTIONS", "ipMaxConnections": [{"ipAddresses": ["10.0.0.0/8"], "maxConnections": 1}]},
		{"action": "ALLOW", "conditions": [{"attributeName": "SOURCE_IP_ADDRESS", "attributeValue": "10.0.0.0/8"}]}]}`},
	{http.MethodPut, "/20170115/loadBalancers/a/ruleSets/one", `{"items": [{"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["GET"]}, {"action": "HTTP_HEADER", "httpLargeHeaderSizeInKB": 8}]}`},
	{http.MethodPost, "/20170115/loadBalancers/a/sslCipherSuites", `{"name": "two", "ciphers": ["AES128-SHA"]}`},
	{http.MethodPut, "/20170115/loadBalancers/a/sslCipherSuites/one", `{"ciphers": ["AES256-SHA"]}`},
	{http.MethodPost, "/20170115/loadBalancers/a/hostnames", `{"name": "two", "hostname": "*.example.com"}`},
	{http.MethodPut, "/20170115/loadBalancers/a/hostnames/one", `{"hostname": "b.example.com"}`},
	{http.MethodPut, "/_emu/loadBalancers/a", furnished},
	{http.MethodPut, "/_emu/loadBalancers/a/backendSets/one", `{"policy": "ROUND_ROBIN", "backends": [{"ipAddress": "10.0.0.1", "port": 80}], "healthChecker": {"protocol": "TCP"}}`},
	{http.MethodPut, "/_emu/modes", `{"latency": "1s", "limits": {"Backends": 1}}`},
	{http.MethodPut, "/_emu/faults", `[{"kind": "delay", "operations": ["GetBackendSet"], "delay": "1s"}]`},
	{http.MethodPut, "/_emu/throttle", `{"perSecond": 1, "burst": 1}`},
}

// certificateBody is the body of a request for a certificate, without one.
const certificateBody = `{"certificateName": "two", "publicCertificate": "", "privateKey": "", "caCertificate": "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"}`

// ask sends a request to an emulator.
func ask(e *ocilb.Emulator, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

// newFurnished returns an emulator with load balancer a, whose work requests take no time, and a network of its listeners.
func newFurnished(t testing.TB) (*ocilb.Emulator, *ocilbtest.Network) {
	o, network := ocilbtest.Options(), ocilbtest.NewNetwork()
	o.Plane.Listen = network.Listen
	o.Modes.Latency, o.Modes.LatencyTail, o.Modes.Stale, o.Modes.RefuseLate = 0, 0, 0, false
	e := ocilb.New(o)
	require.Equal(t, http.StatusOK, ask(e, http.MethodPut, "/_emu/loadBalancers/a", furnished).Code)
	return e, network
}

// settle waits until all work requests are done.
func settle(e *ocilb.Emulator) {
	for !e.Idle() {
		time.Sleep(time.Millisecond)
	}
}

func TestBodiesAreAccepted(t *testing.T) {
	t.Parallel()
	for _, tt := range writes {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e, _ := newFurnished(t)
				defer e.Close()
				w := ask(e, tt.method, tt.path, tt.body)
				assert.Less(t, w.Code, http.StatusMultipleChoices, w.Body.String())
				settle(e)
			})
		})
	}
}

// A null where an object must be is a mistake of the client, wherever it is. The null of a field means that it is missing.
func TestNullIsRefused(t *testing.T) {
	t.Parallel()
	bodies := []string{"null", " null\n"}
	for _, field := range []string{
		"hostnames", "certificates", "backendSets", "listeners", "sslCipherSuites", "pathRouteSets", "ruleSets", "routingPolicies", "definedTags", "securityAttributes",
	} {
		bodies = append(bodies, `{"`+field+`": {"one": null}}`)
	}
	for _, tt := range writes {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			t.Parallel()
			e, _ := newFurnished(t)
			defer e.Close()
			for _, body := range bodies[:2] {
				assert.Equal(t, http.StatusBadRequest, ask(e, tt.method, tt.path, body).Code, body)
			}
		})
	}
	e, _ := newFurnished(t)
	t.Cleanup(e.Close)
	for _, body := range bodies {
		assert.Equal(t, http.StatusBadRequest, ask(e, http.MethodPut, "/_emu/loadBalancers/a", body).Code, body)
		assert.Equal(t, http.StatusBadRequest, ask(e, http.MethodPost, "/20170115/loadBalancers", body).Code, body)
	}
	for path, body := range map[string]string{
		"backendSets":     `{"name": "two", "policy": "ROUND_ROBIN", "backends": [null], "healthChecker": {"protocol": "TCP"}}`,
		"listeners":       `{"name": "two", "port": 81, "protocol": "HTTP", "defaultBackendSetName": "one", "ruleSetNames": [null]}`,
		"routingPolicies": `{"name": "two", "conditionLanguageVersion": "V1", "rules": [null]}`,
		"pathRouteSets":   `{"name": "two", "pathRoutes": [null]}`,
		"ruleSets":        `{"name": "two", "items": [null]}`,
		"sslCipherSuites": `{"name": "two", "ciphers": [null]}`,
	} {
		assert.Equal(t, http.StatusBadRequest, ask(e, http.MethodPost, "/20170115/loadBalancers/a/"+path, body).Code, body)
	}
	assert.Equal(t, http.StatusBadRequest, ask(e, http.MethodPut, "/_emu/faults", `[null]`).Code)
	assert.Equal(t, http.StatusBadRequest, ask(e, http.MethodPut, "/_emu/faults", `[{"kind": "status", "status": 20}]`).Code)
}

// FuzzBodies sends any body with each request that has one. Whatever is accepted takes effect, is read and takes a request.
func FuzzBodies(f *testing.F) {
	for i, r := range writes {
		f.Add(i, r.body)
		f.Add(i, strings.NewReplacer("{}", "null", "[]", "[null]").Replace(r.body))
		f.Add(i, "null")
	}
	f.Add(len(writes), certificateBody)
	for _, body := range []string{`{"listeners": {"one": null}}`, `{"routingPolicies": {"one": {"rules": [null]}}}`, `{"backendSets": {"one": null}}`, `{"definedTags": {"a": null}}`} {
		f.Add(0, body)
		f.Add(22, body)
	}
	f.Fuzz(func(t *testing.T, i int, body string) {
		method, path := http.MethodPost, "/20170115/loadBalancers/a/certificates"
		if i = max(i, -i, 0) % (len(writes) + 1); i < len(writes) {
			method, path = writes[i].method, writes[i].path
		}
		synctest.Test(t, func(t *testing.T) { testBody(t, method, path, body) })
	})
}

func testBody(t *testing.T, method, path, body string) {
	t.Helper()
	e, network := newFurnished(t)
	defer e.Close()
	before := e.Modes()
	status := ask(e, method, path, body).Code
	assert.True(t, status < http.StatusMultipleChoices || status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusConflict, "%d", status)
	if strings.HasPrefix(path, "/_emu/") && !strings.HasPrefix(path, "/_emu/loadBalancers") {
		e.SetFaults()
		e.SetThrottle(ocilb.Throttle{})
		e.SetModes(before)
		return
	}
	settle(e)
	for _, path := range []string{
		"", "/health", "/backendSets", "/backendSets/one", "/backendSets/one/health", "/backendSets/one/healthChecker", "/backendSets/one/backends", "/listeners/one/rules",
		"/routingPolicies", "/pathRouteSets", "/ruleSets", "/sslCipherSuites", "/hostnames", "/certificates", "/workRequests",
	} {
		status := ask(e, http.MethodGet, "/20170115/loadBalancers/a"+path, "").Code
		assert.True(t, status == http.StatusOK || status == http.StatusNotFound, "%d of %s", status, path)
	}
	for _, l := range e.Current("a").Listeners {
		visit(t, network, l.Port)
	}
	for _, kind := range []string{"listeners", "pathRouteSets", "routingPolicies", "ruleSets", "hostnames", "sslCipherSuites", "certificates", "backendSets"} {
		ask(e, http.MethodDelete, "/20170115/loadBalancers/a/"+kind+"/one", "")
		settle(e)
	}
}

// visit sends a request to a port, which may answer with anything.
func visit(t *testing.T, network *ocilbtest.Network, port int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/a", ocilbtest.Address, port), http.NoBody)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DialContext: network.Dial, DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if response, err := client.Do(r); err == nil {
		_ = response.Body.Close()
	}
}
