package rules

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// parse returns the rules of a text, in the order of the text.
func parse(t *testing.T, text string) *Rules {
	t.Helper()
	var items []lbapi.Rule
	require.NoError(t, json.Unmarshal([]byte(text), &items))
	all := make([]lbapi.ListenerRule, 0, len(items))
	for i := range items {
		all = append(all, lbapi.ListenerRule{Rule: items[i]})
	}
	return New(all)
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	const get, post = http.MethodGet, http.MethodPost
	const redirectAll = `[{"action": "REDIRECT", "conditions": [{"attributeName": "PATH", "attributeValue": "/", "operator": "FORCE_LONGEST_PREFIX_MATCH"}]`
	tests := []struct {
		name, rules, method, url, client string
		status                           int // 0: it reaches a backend
		header, want                     string
	}{
		{name: "no rules", rules: `[]`, method: get, url: "http://a/"},
		{name: "an allowed client", rules: `[{"action": "ALLOW", "conditions": [{"attributeName": "SOURCE_IP_ADDRESS", "attributeValue": "192.0.2.0/24"}]}]`, method: get, url: "http://a/"},
		{name: "another client", rules: `[{"action": "ALLOW", "conditions": [{"attributeName": "SOURCE_IP_ADDRESS", "attributeValue": "198.51.100.0/24"}]}]`, method: get, url: "http://a/", status: 403},
		{name: "an unknown client", client: "pipe", rules: `[{"action": "ALLOW", "conditions": [{"attributeName": "SOURCE_IP_ADDRESS", "attributeValue": "0.0.0.0/0"}]}]`, method: get, url: "http://a/", status: 403},
		{name: "clients of a VCN", rules: `[{"action": "ALLOW", "conditions": [{"attributeName": "SOURCE_VCN_ID", "attributeValue": "ocid1.vcn.oc1..a"}]}]`, method: get, url: "http://a/", status: 403},
		{name: "an allowed method", rules: `[{"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["GET", "PUT"]}]`, method: get, url: "http://a/"},
		{name: "another method", rules: `[{"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["GET", "PUT"]}]`, method: post, url: "http://a/", status: 405, header: "Allow", want: "GET, PUT"},
		{name: "another method, with a status", rules: `[{"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["GET"], "statusCode": 403}]`, method: post, url: "http://a/", status: 403, header: "Allow"},
		{name: "a redirect that changes nothing", rules: redirectAll + `}]`, method: get, url: "http://a/b%20c?d=e", status: 302, header: "Location", want: "http://a/b%20c?d=e"},
		{name: "another path", rules: `[{"action": "REDIRECT", "conditions": [{"attributeName": "PATH", "attributeValue": "/a", "operator": "EXACT_MATCH"}]}]`, method: get, url: "http://a/b"},
		{name: "the protocol keeps the port", rules: redirectAll + `, "redirectUri": {"protocol": "https"}}]`, method: get, url: "http://a/b", status: 302, header: "Location", want: "https://a:80/b"},
		{name: "the port of the request", rules: redirectAll + `, "redirectUri": {"protocol": "HTTPS"}, "responseCode": 301}]`, method: get, url: "http://a:8080/b", status: 301, header: "Location", want: "https://a:8080/b"},
		{name: "the protocol and the port", rules: redirectAll + `, "redirectUri": {"protocol": "https", "port": 443}}]`, method: get, url: "http://a/b?c", status: 302, header: "Location", want: "https://a/b?c"},
		{name: "all parts", rules: redirectAll + `, "redirectUri": {"protocol": "{protocol}", "host": "in{host}", "port": 81, "path": "/x{path}", "query": "?lang=en&{query}"}}]`, method: get, url: "http://a/b?c=d", status: 302, header: "Location", want: "http://ina:81/x/b?lang=en&c=d"},
		{name: "an empty query leaves no ampersand", rules: redirectAll + `, "redirectUri": {"query": "?lang=en&{query}"}}]`, method: get, url: "http://a/b", status: 302, header: "Location", want: "http://a/b?lang=en"},
		{name: "parts that are left out", rules: redirectAll + `, "redirectUri": {"path": "", "query": ""}}]`, method: get, url: "http://a/b?c", status: 302, header: "Location", want: "http://a"},
		{name: "from TLS", rules: redirectAll + `, "redirectUri": {"host": "b", "port": 443}}]`, method: get, url: "https://a/", status: 302, header: "Location", want: "https://b/"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(tt.method, tt.url, http.NoBody)
			if tt.client != "" {
				r.RemoteAddr = tt.client
			}
			if r.URL.Scheme == "https" {
				r.TLS = &tls.ConnectionState{}
			}
			w := httptest.NewRecorder()
			assert.Equal(t, tt.status != 0, parse(t, tt.rules).Answer(w, r, 80))
			if tt.status != 0 {
				assert.Equal(t, tt.status, w.Code)
				assert.Equal(t, tt.want, w.Header().Get(tt.header))
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, rule string // without its action
		action     string
		give, want http.Header
	}{
		{name: "add", action: "ADD", rule: `"header": "x-team", "value": "a"`, give: http.Header{"Y": {"1"}}, want: http.Header{"Y": {"1"}, "X-Team": {"a"}}},
		{name: "add replaces all", action: "ADD", rule: `"header": "x-team", "value": "a"`, give: http.Header{"X-Team": {"b", "c"}, "X_team": {"d"}}, want: http.Header{"X-Team": {"a"}}},
		{name: "remove", action: "REMOVE", rule: `"header": "x_team"`, give: http.Header{"X-Team": {"b", "c"}, "Y": {"1"}}, want: http.Header{"Y": {"1"}}},
		{name: "extend", action: "EXTEND", rule: `"header": "X-Team", "prefix": "a", "suffix": "c"`, give: http.Header{"X-Team": {"b"}}, want: http.Header{"X-Team": {"abc"}}},
		{name: "extend several", action: "EXTEND", rule: `"header": "X-Team", "prefix": "a"`, give: http.Header{"X-Team": {"b", "c"}}, want: http.Header{"X-Team": {"b", "c"}}},
		{name: "extend none", action: "EXTEND", rule: `"header": "X-Team", "prefix": "a"`, give: http.Header{}, want: http.Header{}},
	}
	names := map[string][2]string{
		"ADD":    {"ADD_HTTP_REQUEST_HEADER", "ADD_HTTP_RESPONSE_HEADER"},
		"REMOVE": {"REMOVE_HTTP_REQUEST_HEADER", "REMOVE_HTTP_RESPONSE_HEADER"},
		"EXTEND": {"EXTEND_HTTP_REQUEST_HEADER_VALUE", "EXTEND_HTTP_RESPONSE_HEADER_VALUE"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			request, response := tt.give.Clone(), tt.give.Clone()
			onRequests := parse(t, `[{"action": "`+names[tt.action][0]+`", `+tt.rule+`}]`)
			onRequests.Request(request)
			onRequests.Response(response)
			assert.Equal(t, tt.want, request)
			assert.Equal(t, tt.give, response, "a rule for requests leaves responses alone")
			parse(t, `[{"action": "`+names[tt.action][1]+`", `+tt.rule+`}]`).Response(response)
			assert.Equal(t, tt.want, response)
		})
	}
}
