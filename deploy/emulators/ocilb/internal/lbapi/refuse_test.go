package lbapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newKeyPair returns a certificate that signs itself, and its key, in PEM.
func newKeyPair(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", secret)
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// putters apply the body of a request that creates an object, by the kind of the object.
var putters = map[string]func(t *testing.T, lb *LoadBalancer, text string) *Error{
	"backend set": func(t *testing.T, lb *LoadBalancer, text string) *Error {
		d := decode[BackendSetDetails](t, text)
		return lb.PutBackendSet(d.Name, d, true, DefaultLimits())
	},
	"listener": func(t *testing.T, lb *LoadBalancer, text string) *Error {
		return lb.PutListener(decode[Listener](t, text), true, DefaultLimits())
	},
	"hostname": func(t *testing.T, lb *LoadBalancer, text string) *Error {
		return lb.PutHostname(decode[Hostname](t, text), true)
	},
	"certificate": func(t *testing.T, lb *LoadBalancer, text string) *Error {
		return lb.PutCertificate(decode[CertificateDetails](t, text))
	},
	"cipher suite": func(t *testing.T, lb *LoadBalancer, text string) *Error {
		return lb.PutSSLCipherSuite(decode[SSLCipherSuite](t, text), true)
	},
	"path route set": func(t *testing.T, lb *LoadBalancer, text string) *Error {
		return lb.PutPathRouteSet(decode[PathRouteSet](t, text), true, DefaultLimits())
	},
	"rule set": func(t *testing.T, lb *LoadBalancer, text string) *Error {
		return lb.PutRuleSet(decode[RuleSet](t, text), true, DefaultLimits())
	},
	"rule": func(t *testing.T, lb *LoadBalancer, text string) *Error {
		return lb.PutRuleSet(decode[RuleSet](t, `{"name": "rules", "items": [`+text+`]}`), true, DefaultLimits())
	},
}

// newFurnished returns a load balancer with objects to refer to.
func newFurnished(t *testing.T) *LoadBalancer {
	t.Helper()
	lb := newBalancer(t)
	certificate, key := newKeyPair(t)
	for _, d := range []CertificateDetails{
		{CertificateName: "site", PublicCertificate: certificate, PrivateKey: key},
		{CertificateName: "authority", CACertificate: certificate},
	} {
		require.Nil(t, lb.PutCertificate(&d))
	}
	for kind, texts := range map[string][]string{
		"backend set": {`{"name": "secure", "policy": "ROUND_ROBIN", "healthChecker": {"protocol": "TCP"}, "lbCookieSessionPersistenceConfiguration": {"isSecure": true}}`},
		"hostname":    {`{"name": "a", "hostname": "a.example.com"}`, `{"name": "b", "hostname": "b.example.com"}`, `{"name": "c", "hostname": "A.example.com"}`},
		"rule set": {
			`{"name": "methods", "items": [{"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["GET"]}]}`,
			`{"name": "others", "items": [{"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["PUT"]}]}`,
		},
	} {
		for _, text := range texts {
			require.Nil(t, putters[kind](t, lb, text))
		}
	}
	require.Nil(t, putters["path route set"](t, lb, `{"name": "secure", "pathRoutes": [{"path": "/", "pathMatchType": {"matchType": "PREFIX_MATCH"}, "backendSetName": "secure"}]}`))
	for _, text := range []string{
		`{"name": "a", "defaultBackendSetName": "chat", "port": 443, "protocol": "HTTP", "hostnameNames": ["a"], "sslConfiguration": {"certificateName": "site"}}`,
		`{"name": "tcp", "defaultBackendSetName": "chat", "port": 22, "protocol": "TCP"}`,
	} {
		require.Nil(t, putters["listener"](t, lb, text))
	}
	return lb
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	certificate, key := newKeyPair(t)
	_, otherKey := newKeyPair(t)
	text := func(format string, values ...string) string {
		quoted := make([]any, 0, len(values))
		for _, v := range values {
			b, err := json.Marshal(v)
			require.NoError(t, err)
			quoted = append(quoted, string(b))
		}
		return fmt.Sprintf(format, quoted...)
	}
	const set = `"name": "x", "policy": "ROUND_ROBIN", "healthChecker": {"protocol": "TCP"}, `
	const listener = `"name": "x", "defaultBackendSetName": "chat", "port": 81, "protocol": "HTTP", `
	const secure = `"name": "x", "defaultBackendSetName": "chat", "port": 443, "protocol": "HTTP", `
	const route = `"pathMatchType": {"matchType": "PREFIX_MATCH"}, "backendSetName": "chat"`
	const allow, path = `"action": "ALLOW", "conditions": `, `"conditions": [{"attributeName": "PATH", "attributeValue": "/", "operator": "EXACT_MATCH"}]`
	long := strings.Repeat("a", 33)
	tests := []struct{ kind, name, give, code, want string }{ // want is empty if it is accepted
		{kind: "backend set", name: "a cookie without a name", give: `{` + set + `"sessionPersistenceConfiguration": {}}`, code: CodeMissingParameter, want: "cookieName"},
		{kind: "backend set", name: "a cookie with a bad name", give: `{` + set + `"sessionPersistenceConfiguration": {"cookieName": "a b"}}`, want: "Invalid cookieName"},
		{kind: "backend set", name: "any cookie", give: `{` + set + `"sessionPersistenceConfiguration": {"cookieName": "*"}}`},
		{kind: "backend set", name: "no time", give: `{` + set + `"lbCookieSessionPersistenceConfiguration": {"maxAgeInSeconds": 0}}`, want: "Invalid maxAgeInSeconds 0"},
		{kind: "backend set", name: "a relative path", give: `{` + set + `"lbCookieSessionPersistenceConfiguration": {"path": "a"}}`, want: "Invalid path"},
		{kind: "backend set", name: "a bad domain", give: `{` + set + `"lbCookieSessionPersistenceConfiguration": {"domain": "a;b"}}`, want: "Invalid domain"},
		{kind: "backend set", name: "an unknown certificate", give: `{` + set + `"sslConfiguration": {"certificateName": "none"}}`, want: "Certificate 'none' does not exist"},
		{kind: "backend set", name: "an unknown cipher suite", give: `{` + set + `"sslConfiguration": {"cipherSuiteName": "none"}}`, want: "Cipher suite 'none' does not exist"},
		{kind: "backend set", name: "nobody to trust", give: `{` + set + `"sslConfiguration": {"certificateName": "site", "verifyPeerCertificate": true}}`, want: "no certificate authority"},
		{kind: "backend set", name: "an authority", give: `{` + set + `"sslConfiguration": {"certificateName": "authority", "verifyPeerCertificate": true}}`},
		{kind: "backend set", name: "an authority by OCID", give: `{` + set + `"sslConfiguration": {"trustedCertificateAuthorityIds": ["ocid1.cabundle.oc1..a"], "verifyPeerCertificate": true}}`},
		{kind: "backend set", name: "a bad OCID", give: `{` + set + `"sslConfiguration": {"certificateIds": ["a"]}}`, want: "Invalid OCID 'a'"},
		{kind: "backend set", name: "a bad version of TLS", give: `{` + set + `"sslConfiguration": {"protocols": ["SSLv3"]}}`, want: "Invalid protocol 'SSLv3'"},
		{kind: "backend set", name: "a version twice", give: `{` + set + `"sslConfiguration": {"protocols": ["TLSv1.2", "TLSv1.2"]}}`, want: "Invalid protocol 'TLSv1.2'"},
		{kind: "backend set", name: "a depth of 0", give: `{` + set + `"sslConfiguration": {"verifyDepth": 0}}`, want: "Invalid verifyDepth 0"},

		{kind: "listener", name: "TLS without a certificate", give: `{` + listener + `"sslConfiguration": {}}`, want: "needs a certificate"},
		{kind: "listener", name: "an unknown certificate", give: `{` + listener + `"sslConfiguration": {"certificateName": "none"}}`, want: "Certificate 'none' does not exist"},
		{kind: "listener", name: "a certificate without a key", give: `{` + listener + `"sslConfiguration": {"certificateName": "authority"}}`, want: "has no public certificate"},
		{kind: "listener", name: "two certificates", give: `{` + listener + `"sslConfiguration": {"certificateName": "site", "certificateIds": ["ocid1.a"]}}`, want: "mutually exclusive"},
		{kind: "listener", name: "a certificate by OCID", give: `{` + listener + `"sslConfiguration": {"certificateIds": ["ocid1.a"]}}`},
		{kind: "listener", name: "clients that nobody knows", give: `{` + listener + `"sslConfiguration": {"certificateName": "site", "verifyPeerCertificate": true}}`, want: "no certificate authority"},
		{kind: "listener", name: "HTTP/2 without its cipher suite", give: `{"name": "x", "defaultBackendSetName": "chat", "port": 81, "protocol": "HTTP2", "sslConfiguration": {"certificateName": "site"}}`, want: "cipher suite 'oci-default-http2-ssl-cipher-suite-v1'"},
		{kind: "listener", name: "an unknown path route set", give: `{` + listener + `"pathRouteSetName": "none"}`, want: "refers to path route set 'none'"},
		{kind: "listener", name: "an unknown rule set", give: `{` + listener + `"ruleSetNames": ["none"]}`, want: "refers to rule set 'none'"},
		{kind: "listener", name: "a rule set twice", give: `{` + listener + `"ruleSetNames": ["methods", "methods"]}`, want: "Rule set 'methods' is listed twice"},
		{kind: "listener", name: "two rules for methods", give: `{` + listener + `"ruleSetNames": ["methods", "others"]}`, want: "more than one rule CONTROL_ACCESS_USING_HTTP_METHODS"},
		{kind: "listener", name: "an unknown hostname", give: `{` + listener + `"hostnameNames": ["none"]}`, want: "refers to hostname 'none'"},
		{kind: "listener", name: "rules for TCP", give: `{"name": "x", "defaultBackendSetName": "chat", "port": 81, "protocol": "TCP", "ruleSetNames": ["methods"]}`, want: "cannot have hostnames, rule sets or routes"},
		{kind: "listener", name: "a secure cookie", give: `{"name": "x", "defaultBackendSetName": "secure", "port": 81, "protocol": "HTTP"}`, want: "secure cookie of backend set 'secure'"},
		{kind: "listener", name: "a secure cookie of a route", give: `{` + listener + `"pathRouteSetName": "secure"}`, want: "secure cookie of backend set 'secure'"},
		{kind: "listener", name: "a secure cookie of a route that a policy disables", give: `{` + listener + `"pathRouteSetName": "secure", "routingPolicyName": "policy"}`},
		{kind: "listener", name: "a secure cookie with TLS", give: `{"name": "x", "defaultBackendSetName": "secure", "port": 81, "protocol": "HTTP", "sslConfiguration": {"certificateName": "site"}}`},
		{kind: "listener", name: "a port by another host", give: `{` + secure + `"hostnameNames": ["b"], "sslConfiguration": {"certificateName": "site"}}`},
		{kind: "listener", name: "a port by no host", give: `{` + secure + `"sslConfiguration": {"certificateName": "site"}}`},
		{kind: "listener", name: "a port by the same host", give: `{` + secure + `"hostnameNames": ["b", "c"], "sslConfiguration": {"certificateName": "site"}}`, want: "already uses port 443"},
		{kind: "listener", name: "a port without TLS", give: `{` + secure + `"hostnameNames": ["b"]}`, want: "already uses port 443"},
		{kind: "listener", name: "a port with another TLS", give: `{` + secure + `"hostnameNames": ["b"], "sslConfiguration": {"certificateName": "site", "protocols": ["TLSv1.3"]}}`, want: "need the same protocols of TLS"},
		{kind: "listener", name: "a port of TCP", give: `{"name": "x", "defaultBackendSetName": "chat", "port": 22, "protocol": "TCP"}`, want: "already uses port 22"},

		{kind: "hostname", name: "no hostname", give: `{"name": "x"}`, code: CodeMissingParameter, want: "hostname"},
		{kind: "hostname", name: "a wildcard inside", give: `{"name": "x", "hostname": "a.*.com"}`, want: "Invalid hostname 'a.*.com'"},
		{kind: "hostname", name: "a wildcard before", give: `{"name": "x", "hostname": "*.example.com"}`},
		{kind: "hostname", name: "a wildcard behind", give: `{"name": "x", "hostname": "api.*"}`},

		{kind: "certificate", name: "no name", give: `{}`, code: CodeMissingParameter, want: "certificateName"},
		{kind: "certificate", name: "a dot in its name", give: text(`{"certificateName": "a.b", "caCertificate": %s}`, certificate), want: "Invalid certificate name 'a.b'"},
		{kind: "certificate", name: "nothing", give: `{"certificateName": "x"}`, code: CodeMissingParameter, want: "publicCertificate"},
		{kind: "certificate", name: "no key", give: text(`{"certificateName": "x", "publicCertificate": %s}`, certificate), code: CodeMissingParameter, want: "privateKey"},
		{kind: "certificate", name: "a key only", give: text(`{"certificateName": "x", "caCertificate": %s, "privateKey": %s}`, certificate, key), want: "has no public certificate"},
		{kind: "certificate", name: "another key", give: text(`{"certificateName": "x", "publicCertificate": %s, "privateKey": %s}`, certificate, otherKey), want: "private key does not match"},
		{kind: "certificate", name: "a key that is none", give: text(`{"certificateName": "x", "publicCertificate": %s, "privateKey": "key"}`, certificate), want: "not in PEM"},
		{kind: "certificate", name: "a certificate that is none", give: text(`{"certificateName": "x", "publicCertificate": "a", "privateKey": %s}`, key), want: "Invalid public certificate"},
		{kind: "certificate", name: "an authority that is none", give: `{"certificateName": "x", "caCertificate": "a"}`, want: "has no PEM certificate"},
		{kind: "certificate", name: "an encrypted key", give: text(`{"certificateName": "x", "publicCertificate": %s, "privateKey": %s}`, certificate, encode("ENCRYPTED PRIVATE KEY", []byte("a"))), want: "PKCS #8"},
		{kind: "certificate", name: "all", give: text(`{"certificateName": "x", "publicCertificate": %s, "privateKey": %s, "caCertificate": %s}`, certificate, key, certificate)},
		{kind: "certificate", name: "twice", give: `{"certificateName": "site"}`, code: CodeExists, want: "already exists"},

		{kind: "cipher suite", name: "a reserved name", give: `{"name": "oci-default-ssl-cipher-suite-v1", "ciphers": ["AES128-SHA"]}`, want: "is reserved"},
		{kind: "cipher suite", name: "no ciphers", give: `{"name": "x"}`, code: CodeMissingParameter, want: "ciphers"},
		{kind: "cipher suite", name: "an unknown cipher", give: `{"name": "x", "ciphers": ["AES128-SHA", "ROT13"]}`, want: "Invalid cipher 'ROT13'"},
		{kind: "cipher suite", name: "a cipher twice", give: `{"name": "x", "ciphers": ["AES128-SHA", "AES128-SHA"]}`, want: "listed twice"},

		{kind: "path route set", name: "no routes", give: `{"name": "x"}`, code: CodeMissingParameter, want: "pathRoutes"},
		{kind: "path route set", name: "a long name", give: `{"name": "` + long + `", "pathRoutes": [{"path": "/", ` + route + `}]}`, want: "Invalid path route set name"},
		{kind: "path route set", name: "a slash in its name", give: `{"name": "a/b", "pathRoutes": [{"path": "/", ` + route + `}]}`, want: "Invalid path route set name"},
		{kind: "path route set", name: "a wildcard", give: `{"name": "x", "pathRoutes": [{"path": "/*", ` + route + `}]}`, want: "Invalid path '/*'"},
		{kind: "path route set", name: "an unknown match type", give: `{"name": "x", "pathRoutes": [{"path": "/", "pathMatchType": {"matchType": "REGEX"}, "backendSetName": "chat"}]}`, want: "Invalid matchType 'REGEX'"},
		{kind: "path route set", name: "no match type", give: `{"name": "x", "pathRoutes": [{"path": "/", "backendSetName": "chat"}]}`, code: CodeMissingParameter, want: "matchType"},
		{kind: "path route set", name: "an unknown backend set", give: `{"name": "x", "pathRoutes": [{"path": "/", "pathMatchType": {"matchType": "PREFIX_MATCH"}, "backendSetName": "none"}]}`, want: "refers to backend set 'none'"},
		{kind: "path route set", name: "a path twice", give: `{"name": "x", "pathRoutes": [{"path": "/a", ` + route + `}, {"path": "/A", ` + route + `}]}`, want: "listed twice"},
		{kind: "path route set", name: "too many", give: `{"name": "x", "pathRoutes": [` + strings.TrimSuffix(strings.Repeat(`{},`, 21), ",") + `]}`, code: CodeLimitExceeded, want: "path-routes-per-path-route-set"},

		{kind: "rule set", name: "no rules", give: `{"name": "x"}`, code: CodeMissingParameter, want: "items"},
		{kind: "rule set", name: "a dot in its name", give: `{"name": "a.b", "items": [{}]}`, want: "Invalid rule set name"},
		{kind: "rule set", name: "too many rules", give: `{"name": "x", "items": [` + strings.TrimSuffix(strings.Repeat(`{},`, 21), ",") + `]}`, code: CodeLimitExceeded, want: "rules-per-rule-set"},
		{kind: "rule", name: "no action", give: `{}`, code: CodeMissingParameter, want: "action"},
		{kind: "rule", name: "an unknown action", give: `{"action": "LOG"}`, want: "Invalid action 'LOG'"},
		{kind: "rule", name: "a header without a value", give: `{"action": "ADD_HTTP_REQUEST_HEADER", "header": "a"}`, code: CodeMissingParameter, want: "value"},
		{kind: "rule", name: "a bad header", give: `{"action": "REMOVE_HTTP_REQUEST_HEADER", "header": "a:"}`, want: "Invalid header 'a:'"},
		{kind: "rule", name: "a variable", give: `{"action": "ADD_HTTP_RESPONSE_HEADER", "header": "a", "value": "a{b}"}`, want: "Invalid value 'a{b}'"},
		{kind: "rule", name: "a dollar", give: `{"action": "EXTEND_HTTP_RESPONSE_HEADER_VALUE", "header": "a", "suffix": "$"}`, want: "Invalid value '$'"},
		{kind: "rule", name: "a line", give: `{"action": "ADD_HTTP_REQUEST_HEADER", "header": "a", "value": "b\r\nc: d"}`, want: "Invalid value"},
		{kind: "rule", name: "an extension by nothing", give: `{"action": "EXTEND_HTTP_REQUEST_HEADER_VALUE", "header": "a"}`, code: CodeMissingParameter, want: "prefix"},
		{kind: "rule", name: "allow without conditions", give: `{"action": "ALLOW"}`, code: CodeMissingParameter, want: "conditions"},
		{kind: "rule", name: "allow by a path", give: `{` + allow + `[{"attributeName": "PATH", "attributeValue": "10.0.0.0/8"}]}`, want: "Action ALLOW cannot have these conditions"},
		{kind: "rule", name: "allow an address", give: `{` + allow + `[{"attributeName": "SOURCE_IP_ADDRESS", "attributeValue": "10.0.0.1"}]}`, want: "Invalid CIDR '10.0.0.1'"},
		{kind: "rule", name: "allow three", give: `{` + allow + `[{}, {}, {}]}`, want: "more than 2 conditions"},
		{kind: "rule", name: "allow a VCN", give: `{` + allow + `[{"attributeName": "SOURCE_VCN_IP_ADDRESS", "attributeValue": "10.0.0.0/8"}, {"attributeName": "SOURCE_VCN_ID", "attributeValue": "ocid1.vcn.oc1..a"}]}`},
		{kind: "rule", name: "allow a part of any VCN", give: `{` + allow + `[{"attributeName": "SOURCE_VCN_IP_ADDRESS", "attributeValue": "10.0.0.0/8"}]}`, want: "cannot have these conditions"},
		{kind: "rule", name: "an unknown method", give: `{"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["FETCH"]}`, want: "Invalid HTTP method 'FETCH'"},
		{kind: "rule", name: "a method twice", give: `{"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["GET", "GET"]}`, want: "listed twice"},
		{kind: "rule", name: "a bad status", give: `{"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["GET"], "statusCode": 20}`, want: "Invalid statusCode 20"},
		{kind: "rule", name: "a redirect of all paths", give: `{"action": "REDIRECT"}`, code: CodeMissingParameter, want: "conditions"},
		{kind: "rule", name: "a redirect of a client", give: `{"action": "REDIRECT", "conditions": [{"attributeName": "SOURCE_IP_ADDRESS"}]}`, want: "needs one condition PATH"},
		{kind: "rule", name: "a redirect by an unknown operator", give: `{"action": "REDIRECT", "conditions": [{"attributeName": "PATH", "attributeValue": "/", "operator": "REGEX"}]}`, want: "Invalid operator 'REGEX'"},
		{kind: "rule", name: "a redirect with another status", give: `{"action": "REDIRECT", ` + path + `, "responseCode": 200}`, want: "Invalid responseCode 200"},
		{kind: "rule", name: "a redirect to another protocol", give: `{"action": "REDIRECT", ` + path + `, "redirectUri": {"protocol": "ftp"}}`, want: "Invalid protocol 'ftp'"},
		{kind: "rule", name: "a redirect to a relative path", give: `{"action": "REDIRECT", ` + path + `, "redirectUri": {"path": "a"}}`, want: "Invalid path 'a'"},
		{kind: "rule", name: "a redirect with an unknown token", give: `{"action": "REDIRECT", ` + path + `, "redirectUri": {"host": "{domain}"}}`, want: "unknown token"},
		{kind: "rule", name: "a redirect to a bad port", give: `{"action": "REDIRECT", ` + path + `, "redirectUri": {"port": 0}}`, want: "Invalid port 0"},
		{kind: "rule", name: "a redirect", give: `{"action": "REDIRECT", ` + path + `, "redirectUri": {"protocol": "{protocol}", "host": "{host}", "path": "", "query": "?a={query}"}}`},
		{kind: "rule", name: "a size of headers", give: `{"action": "HTTP_HEADER", "httpLargeHeaderSizeInKB": 9}`, want: "Invalid httpLargeHeaderSizeInKB"},
		{kind: "rule", name: "no size of headers", give: `{"action": "HTTP_HEADER"}`, code: CodeMissingParameter, want: "httpLargeHeaderSizeInKB"},
		{kind: "rule", name: "connections of an address", give: `{"action": "IP_BASED_MAX_CONNECTIONS", "ipMaxConnections": [{"ipAddresses": ["10.0.0.1"], "maxConnections": 1}]}`, want: "Invalid CIDR '10.0.0.1'"},
		{kind: "rule", name: "no connections", give: `{"action": "IP_BASED_MAX_CONNECTIONS", "ipMaxConnections": [{"ipAddresses": ["10.0.0.1/32"]}]}`, code: CodeMissingParameter, want: "maxConnections"},
	}
	for _, tt := range tests {
		t.Run(tt.kind+", "+tt.name, func(t *testing.T) {
			t.Parallel()
			err := putters[tt.kind](t, newFurnished(t), tt.give)
			if tt.want == "" {
				require.Nil(t, err)
				return
			}
			require.NotNil(t, err)
			if tt.code == "" {
				tt.code = CodeInvalidParameter
			}
			assert.Equal(t, tt.code, err.Code, err.Message)
			assert.Contains(t, err.Message, tt.want)
		})
	}
}

// A key in OpenSSL's own form of encryption needs its passphrase.
func TestPassphrases(t *testing.T) {
	t.Parallel()
	certificate, key := newKeyPair(t)
	block, _ := pem.Decode([]byte(key))
	encrypted, err := x509.EncryptPEMBlock(rand.Reader, block.Type, block.Bytes, []byte("secret"), x509.PEMCipherAES256) //nolint:staticcheck // what is tested
	require.NoError(t, err)
	d := CertificateDetails{CertificateName: "x", PublicCertificate: certificate, PrivateKey: string(pem.EncodeToMemory(encrypted)), Passphrase: "secret"}
	got, refused := d.Certificate()
	require.Nil(t, refused)
	assert.NotNil(t, got.KeyPair)
	text, err := json.Marshal(got)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "KEY", "nobody reads the key")
	d.Passphrase = "guess"
	_, refused = d.Certificate()
	require.NotNil(t, refused)
	assert.Contains(t, refused.Message, "does not decrypt")
}

// A change of an object applies to the listeners that refer to it.
func TestChangesThatListenersForbid(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(t *testing.T, lb *LoadBalancer) *Error
		want   string
	}{
		{"a secure cookie of a set", func(t *testing.T, lb *LoadBalancer) *Error {
			return lb.PutBackendSet("chat", decode[BackendSetDetails](t, `{"policy": "ROUND_ROBIN", "backends": [], "healthChecker": {"protocol": "TCP"}, "lbCookieSessionPersistenceConfiguration": {"isSecure": true}}`), false, DefaultLimits())
		}, "secure cookie of backend set 'chat'"},
		{"a secure cookie of a policy", func(t *testing.T, lb *LoadBalancer) *Error {
			return lb.PutRoutingPolicy(decode[RoutingPolicy](t, `{"name": "policy", "rules": [{"name": "r", "condition": "http.request.url.path sw '/'", "actions": [{"name": "FORWARD_TO_BACKENDSET", "backendSetName": "secure"}]}]}`), false)
		}, "secure cookie of backend set 'secure'"},
		{"the name of another host", func(t *testing.T, lb *LoadBalancer) *Error {
			require.Nil(t, putters["listener"](t, lb, `{"name": "b", "defaultBackendSetName": "chat", "port": 443, "protocol": "HTTP", "hostnameNames": ["b"], "sslConfiguration": {"certificateName": "site"}}`))
			return lb.PutHostname(&Hostname{Name: "b", Hostname: "a.example.com"}, false)
		}, "already uses port 443"},
		{"another rule for methods", func(t *testing.T, lb *LoadBalancer) *Error {
			require.Nil(t, putters["listener"](t, lb, `{"name": "b", "defaultBackendSetName": "chat", "port": 81, "protocol": "HTTP", "ruleSetNames": ["methods"]}`))
			return lb.PutRuleSet(decode[RuleSet](t, `{"name": "methods", "items": [{"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["GET"]}, {"action": "CONTROL_ACCESS_USING_HTTP_METHODS", "allowedMethods": ["PUT"]}]}`), false, DefaultLimits())
		}, "more than one rule"},
		{"two redirects of a path", func(t *testing.T, lb *LoadBalancer) *Error {
			require.Nil(t, putters["listener"](t, lb, `{"name": "b", "defaultBackendSetName": "chat", "port": 81, "protocol": "HTTP", "ruleSetNames": ["methods"]}`))
			const rule = `{"action": "REDIRECT", "conditions": [{"attributeName": "PATH", "attributeValue": "/a", "operator": "EXACT_MATCH"}]}`
			return lb.PutRuleSet(decode[RuleSet](t, `{"name": "methods", "items": [`+rule+`, `+rule+`]}`), false, DefaultLimits())
		}, "more than one rule REDIRECT of /a"},
		{"a path route set of a set", func(_ *testing.T, lb *LoadBalancer) *Error { return lb.DeleteBackendSet("secure") }, "used in path route set secure"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.change(t, newFurnished(t))
			require.NotNil(t, err)
			assert.Equal(t, CodeInvalidParameter, err.Code)
			assert.Contains(t, err.Message, tt.want)
		})
	}
}

// What no document limits is limited nevertheless.
func TestLimitsOfKinds(t *testing.T) {
	t.Parallel()
	lb := newBalancer(t)
	var refused *Error
	n := 0
	for ; refused == nil; n++ {
		refused = lb.PutHostname(&Hostname{Name: fmt.Sprint("h", n), Hostname: "a"}, true)
	}
	assert.Equal(t, maxObjects+1, n)
	assert.Equal(t, CodeLimitExceeded, refused.Code)

	rules := func(name string, n int) *Error {
		s := &RuleSet{Name: name}
		for range n {
			s.Items = append(s.Items, Rule{Action: RuleRemoveRequestHeader, Header: "a"})
		}
		return lb.PutRuleSet(s, lb.RuleSets[name] == nil, DefaultLimits())
	}
	for _, name := range []string{"a", "b"} {
		require.Nil(t, rules(name, 20))
	}
	require.Nil(t, rules("c", 10))
	refused = rules("d", 1)
	require.NotNil(t, refused)
	assert.Contains(t, refused.Message, "rules-per-load-balancer")
}

// The configuration of TLS has defaults in reads.
func TestDefaultsOfTLS(t *testing.T) {
	t.Parallel()
	lb := newFurnished(t)
	s := lb.Listeners["a"].SSLConfiguration
	assert.Equal(t, "oci-default-ssl-cipher-suite-v1", *s.CipherSuiteName)
	assert.Equal(t, []string{"TLSv1.2"}, s.Protocols)
}

func TestChanged(t *testing.T) {
	t.Parallel()
	before := newFurnished(t)
	assert.Empty(t, Changed(before, before.Clone()))
	after := before.Clone()
	set := *after.BackendSets["chat"]
	set.Policy = IPHash
	after.BackendSets["chat"] = &set
	delete(after.Listeners, "tcp")
	after.Hostnames["d"] = &Hostname{Name: "d"}
	after.IsPrivate = true
	assert.ElementsMatch(t, []string{"backendSets/chat", "listeners/tcp", "hostnames/d", Itself}, Changed(before, after))
}
