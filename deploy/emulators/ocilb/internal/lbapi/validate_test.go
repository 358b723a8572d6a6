package lbapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newBalancer(t *testing.T) *LoadBalancer {
	t.Helper()
	lb := New("ocid1.loadbalancer.oc1..a", "ocid1.compartment.oc1..a", "a", "2026-01-01T00:00:00Z")
	require.Nil(t, lb.PutBackendSet("chat", decode[BackendSetDetails](t, `{"policy": "ROUND_ROBIN", "backends": [], "healthChecker": {"protocol": "TCP"}}`), true, DefaultLimits()))
	require.Nil(t, lb.PutRoutingPolicy(decode[RoutingPolicy](t, `{"name": "policy", "conditionLanguageVersion": "V1", "rules": [{"name": "rule",
		"condition": "any(http.request.url.path sw '/')", "actions": [{"name": "FORWARD_TO_BACKENDSET", "backendSetName": "chat"}]}]}`), true))
	require.Nil(t, lb.PutListener(decode[Listener](t, `{"name": "web", "defaultBackendSetName": "chat", "port": 80, "protocol": "HTTP", "routingPolicyName": "policy"}`), true, DefaultLimits()))
	return lb
}

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	to := new(T)
	require.NoError(t, json.Unmarshal([]byte(text), to))
	return to
}

func TestBackendSetHasDefaults(t *testing.T) {
	t.Parallel()
	s, err := decode[BackendSetDetails](t, `{"policy": "ROUND_ROBIN", "backends": [{"ipAddress": "10.0.0.1", "port": 8080}], "healthChecker": {"protocol": "TCP"}}`).BackendSet("chat", DefaultLimits())
	require.Nil(t, err)
	assert.Equal(t, &BackendSet{
		Name: "chat", Policy: "ROUND_ROBIN", Backends: []Backend{{Name: "10.0.0.1:8080", IPAddress: "10.0.0.1", Port: 8080, Weight: 1}},
		HealthChecker: HealthChecker{Protocol: "TCP", ReturnCode: 200, Retries: 3, TimeoutInMillis: 3000, IntervalInMillis: 10_000, ResponseBodyRegex: ".*"},
	}, s)
}

// TestHealthCheckersOfTerraform are values of the acceptance tests of Terraform's provider, and of reads.
func TestHealthCheckersOfTerraform(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       HealthChecker
	}{
		{name: "no path", give: `{"protocol": "HTTP"}`,
			want: HealthChecker{Protocol: "HTTP", URLPath: "/", ReturnCode: 200, Retries: 3, TimeoutInMillis: 3000, IntervalInMillis: 10_000, ResponseBodyRegex: ".*"}},
		{name: "updates", give: `{"protocol": "HTTP", "urlPath": "urlPath2", "port": 11, "returnCode": 11, "retries": 11, "timeoutInMillis": 11, "intervalInMillis": 2000, "responseBodyRegex": ".*"}`,
			want: HealthChecker{Protocol: "HTTP", URLPath: "urlPath2", Port: 11, ReturnCode: 11, Retries: 11, TimeoutInMillis: 11, IntervalInMillis: 2000, ResponseBodyRegex: ".*"}},
		{name: "a check by TCP as it is read", give: `{"protocol": "TCP", "returnCode": 0, "responseBodyRegex": ""}`,
			want: HealthChecker{Protocol: "TCP", Retries: 3, TimeoutInMillis: 3000, IntervalInMillis: 10_000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := decode[HealthCheckerDetails](t, tt.give).HealthChecker()
			require.Nil(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

// TestAnswersHaveBothFieldsOfVerification, which the SDKs require.
func TestAnswersHaveBothFieldsOfVerification(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]string{
		`{}`: `"verifyDepth":1,"verifyPeerCertificate":false`, `{"verifyDepth": 3, "verifyPeerCertificate": true}`: `"verifyDepth":3,"verifyPeerCertificate":true`,
	} {
		text, err := json.Marshal(decode[SSLConfiguration](t, give).withDefaults())
		require.NoError(t, err)
		assert.Contains(t, string(text), want)
	}
}

func TestBackendSetRefuses(t *testing.T) {
	t.Parallel()
	const healthy = `"healthChecker": {"protocol": "TCP"}`
	const fair = `"policy": "ROUND_ROBIN", ` + healthy
	tests := []struct{ name, set, give, code, want string }{
		{name: "a dot in its name", set: "a.b", give: fair, want: "Invalid backend set name 'a.b'"},
		{name: "a long name", set: "a123456789012345678901234567890123", give: fair, want: "Invalid backend set name"},
		{name: "no policy", give: healthy, code: CodeMissingParameter, want: "policy"},
		{name: "another policy", give: `"policy": "RANDOM", ` + healthy, want: "Invalid policy 'RANDOM'"},
		{name: "no health check", give: `"policy": "IP_HASH"`, code: CodeMissingParameter, want: "healthChecker"},
		{name: "an interval below a second", give: `"policy": "IP_HASH", "healthChecker": {"protocol": "TCP", "intervalInMillis": 999}`, want: "Invalid intervalInMillis 999"},
		{name: "a status code that does not exist", give: `"policy": "IP_HASH", "healthChecker": {"protocol": "HTTP", "returnCode": 600}`, want: "Invalid returnCode 600"},
		{name: "an expression", give: `"policy": "IP_HASH", "healthChecker": {"protocol": "TCP", "responseBodyRegex": "("}`, want: "Invalid responseBodyRegex"},
		{name: "both cookies", give: fair + `, "sessionPersistenceConfiguration": {"cookieName": "a"}, "lbCookieSessionPersistenceConfiguration": {}`, want: "mutually exclusive"},
		{name: "few connections", give: fair + `, "backendMaxConnections": 255`, want: "Maximum connections 255"},
		{name: "a cipher suite of reads", give: fair + `, "sslConfiguration": {"cipherSuiteName": "oci-customized-ssl-cipher-suite"}`, want: "cannot be used in a request"},
		{name: "a backend without a port", give: fair + `, "backends": [{"ipAddress": "10.0.0.1"}]`, code: CodeMissingParameter, want: "port"},
		{name: "a backend with a name", give: fair + `, "backends": [{"ipAddress": "host", "port": 1}]`, want: "Invalid IP address 'host'"},
		{name: "a weight of 0", give: fair + `, "backends": [{"ipAddress": "10.0.0.1", "port": 1, "weight": 0}]`, want: "Weight 0"},
		{name: "a backend twice", give: fair + `, "backends": [{"ipAddress": "10.0.0.1", "port": 1}, {"ipAddress": "10.0.0.1", "port": 1, "drain": true}]`, want: "listed twice"},
		{name: "a backup by IP hash", give: `"policy": "IP_HASH", ` + healthy + `, "backends": [{"ipAddress": "10.0.0.1", "port": 1, "backup": true}]`, want: "cannot be a backup"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			name, code := tt.set, tt.code
			if name == "" {
				name = "chat"
			}
			if code == "" {
				code = CodeInvalidParameter
			}
			_, err := decode[BackendSetDetails](t, "{"+tt.give+"}").BackendSet(name, DefaultLimits())
			require.NotNil(t, err)
			assert.Equal(t, code, err.Code)
			assert.Contains(t, err.Message, tt.want)
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	limits := Limits{BackendSets: 2, Listeners: 1, BackendsPerSet: 2, Backends: 3}
	lb := newBalancer(t)
	put := func(name string, backends int) *Error {
		d := decode[BackendSetDetails](t, `{"policy": "ROUND_ROBIN", "healthChecker": {"protocol": "TCP"}}`)
		for i := range backends {
			port := i + 1
			d.Backends = append(d.Backends, BackendDetails{IPAddress: "10.0.0.1", Port: &port})
		}
		return lb.Clone().PutBackendSet(name, d, lb.BackendSets[name] == nil, limits)
	}
	assertLimit := func(err *Error, name string) {
		t.Helper()
		require.NotNil(t, err)
		assert.Equal(t, CodeLimitExceeded, err.Code)
		assert.Contains(t, err.Message, name)
	}
	require.Nil(t, put("chat", 2))
	assertLimit(put("chat", 3), "backends-per-backend-set")
	d := decode[BackendSetDetails](t, `{"policy": "ROUND_ROBIN", "healthChecker": {"protocol": "TCP"}, "backends": [{"ipAddress": "10.0.0.2", "port": 1}, {"ipAddress": "10.0.0.2", "port": 2}]}`)
	require.Nil(t, lb.PutBackendSet("embed", d, true, limits))
	assertLimit(put("chat", 2), "backends-per-load-balancer")
	assertLimit(put("third", 0), "backend-sets-per-load-balancer")
	assertLimit(lb.PutListener(decode[Listener](t, `{"name": "b", "defaultBackendSetName": "chat", "port": 81, "protocol": "HTTP"}`), true, limits), "listeners-per-load-balancer")
}

func TestReferences(t *testing.T) {
	t.Parallel()
	lb := newBalancer(t)
	tests := []struct {
		name string
		err  *Error
		want string
	}{
		{"a set of a policy", lb.DeleteBackendSet("chat"), "Can't remove backend set chat from load balancer ocid1.loadbalancer.oc1..a since it is used in routing policy policy"},
		{"a policy of a listener", lb.DeleteRoutingPolicy("policy"), "since it is used in listener web"},
		{
			"a rule to a missing set", lb.PutRoutingPolicy(decode[RoutingPolicy](t, `{"name": "other", "conditionLanguageVersion": "V1", "rules": [{"name": "r",
				"condition": "http.request.url.path eq '/'", "actions": [{"name": "FORWARD_TO_BACKENDSET", "backendSetName": "none"}]}]}`), true),
			"Routing Policy 'other' contains a rule referencing BackendSet 'none' which does not exist in load balancer ocid1.loadbalancer.oc1..a",
		},
		{"a listener to a missing set", lb.PutListener(decode[Listener](t, `{"name": "b", "defaultBackendSetName": "none", "port": 81, "protocol": "HTTP"}`), true, DefaultLimits()), "refers to backend set 'none'"},
		{"a second listener at a port", lb.PutListener(decode[Listener](t, `{"name": "b", "defaultBackendSetName": "chat", "port": 80, "protocol": "HTTP"}`), true, DefaultLimits()), "already uses port 80"},
		{"HTTP/2 without TLS", lb.PutListener(decode[Listener](t, `{"name": "b", "defaultBackendSetName": "chat", "port": 81, "protocol": "HTTP2"}`), true, DefaultLimits()), "needs TLS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.NotNil(t, tt.err)
			assert.Equal(t, http.StatusBadRequest, tt.err.Status)
			assert.Contains(t, tt.err.Message, tt.want)
		})
	}
}

// An update of a backend set replaces it completely.
func TestUpdateForgetsWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	lb := newBalancer(t)
	require.Nil(t, lb.PutBackendSet("chat", decode[BackendSetDetails](t, `{"policy": "ROUND_ROBIN", "backends": [], "healthChecker": {"protocol": "TCP", "retries": 7},
		"backendMaxConnections": 300, "lbCookieSessionPersistenceConfiguration": {}}`), false, DefaultLimits()))
	assert.NotNil(t, lb.BackendSets["chat"].BackendMaxConnections)
	require.Nil(t, lb.PutBackendSet("chat", decode[BackendSetDetails](t, `{"policy": "ROUND_ROBIN", "backends": [], "healthChecker": {"protocol": "TCP"}}`), false, DefaultLimits()))
	s := lb.BackendSets["chat"]
	assert.Nil(t, s.BackendMaxConnections)
	assert.Nil(t, s.LBCookieSessionPersistenceConfiguration)
	assert.Equal(t, 3, s.HealthChecker.Retries)
}

// An update of a backend needs all fields but one.
func TestUpdateOfABackend(t *testing.T) {
	t.Parallel()
	lb := newBalancer(t)
	port := 8080
	require.Nil(t, lb.AddBackend("chat", &BackendDetails{IPAddress: "10.0.0.1", Port: &port}, DefaultLimits()))
	for _, field := range []string{"weight", "drain", "backup", "offline"} {
		fields := map[string]any{"weight": 1, "drain": true, "backup": false, "offline": false}
		delete(fields, field)
		text, err := json.Marshal(fields)
		require.NoError(t, err)
		refused := lb.UpdateBackend("chat", "10.0.0.1:8080", decode[UpdateBackendDetails](t, string(text)), DefaultLimits())
		require.NotNil(t, refused, field)
		assert.Equal(t, CodeMissingParameter, refused.Code, field)
		assert.Contains(t, refused.Message, fmt.Sprintf("'%s'", field))
	}
	before := lb.Clone()
	require.Nil(t, lb.UpdateBackend("chat", "10.0.0.1:8080", decode[UpdateBackendDetails](t, `{"weight": 2, "drain": true, "backup": false, "offline": false}`), DefaultLimits()))
	assert.True(t, lb.BackendSets["chat"].Backends[0].Drain)
	assert.False(t, before.BackendSets["chat"].Backends[0].Drain, "older versions stay as they are")
}
