package gatewayplan

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
)

// secret adds a certificate for a host to namespace ns.
func (r *rig) secret(ns, name, host string) {
	r.t.Helper()
	certificate, key := ocilbtest.NewAuthority(r.t).Issue(r.t, host)
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	r.apply(fmt.Sprintf(
		"apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}",
		name, ns, encode(certificate), encode(key)))
}

// problems returns the reasons of a listener: of Accepted, Conflicted and ResolvedRefs.
func problems(p *Plan, gateway, listener string) string {
	for _, l := range p.Listeners {
		if l.gateway.Name == gateway && string(l.Name) == listener {
			return strings.Join([]string{l.accepted.Reason, l.conflicted.Reason, l.resolved.Reason}, "/")
		}
	}
	return "no such listener"
}

// message returns the messages of a listener.
func message(p *Plan, gateway, listener string) string {
	for _, l := range p.Listeners {
		if l.gateway.Name == gateway && string(l.Name) == listener {
			return l.accepted.Message + l.conflicted.Message + l.resolved.Message
		}
	}
	return ""
}

// permitted is what the configuration permits Gateways of namespace infra.
const permitted = "\nnamespaces: {infra: {certificates: [ocid1.certificate.oc1..a]}, '*': {certificates: [ocid1.certificate.oc1..b]}}"

func TestListeners(t *testing.T) {
	t.Parallel()
	ocid := strings.Repeat("x", 300)
	tests := []struct {
		name, listener  string
		reasons, wanted string // wanted: a part of the message
	}{
		{"HTTP", "port: 80, protocol: HTTP", "//", ""},
		{
			"HTTP with TLS", "port: 80, protocol: HTTP, tls: {certificateRefs: [{name: tls}]}", "UnsupportedValue//",
			"protocol HTTP has no TLS",
		},
		{"TCP", "port: 80, protocol: TCP", "UnsupportedProtocol//", "use HTTP or HTTPS"},
		{"TLS", "port: 443, protocol: TLS, tls: {certificateRefs: [{name: tls}]}", "UnsupportedProtocol//", ""},
		{"HTTPS", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}]}", "//", ""},
		{"passthrough", "port: 443, protocol: HTTPS, tls: {mode: Passthrough}", "UnsupportedValue//", "tls.mode Passthrough"},
		{"no certificate", "port: 443, protocol: HTTPS", "//InvalidCertificateRef", "no certificate"},
		{
			"two certificates", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}, {name: other}]}",
			"//InvalidCertificateRef", "has one certificate",
		},
		{
			"a certificate and an OCID",
			"port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}], options: {oci.oraclecloud.com/certificate-ocid: " +
				"ocid1.certificate.oc1..a}}",
			"//InvalidCertificateRef", "has one certificate",
		},
		{
			"an OCID", "port: 443, protocol: HTTPS, tls: {options: {oci.oraclecloud.com/certificate-ocid: ocid1.certificate.oc1..a}}", "//",
			"",
		},
		{"the OCID of another tenant", "port: 443, protocol: HTTPS, tls: {options: {oci.oraclecloud.com/certificate-ocid: " +
			"ocid1.certificate.oc1..b}}", "//RefNotPermitted",
			"does not permit Gateways of namespace infra to use this certificate: ask the administrator to add its OCID to " +
				"namespaces.infra.certificates"},
		{
			"the OCID of something else",
			"port: 443, protocol: HTTPS, tls: {options: {oci.oraclecloud.com/certificate-ocid: ocid1.cabundle.oc1..a}}",
			"//InvalidCertificateRef", "not the OCID of a certificate",
		},
		{
			"another kind", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{kind: ConfigMap, name: tls}]}", "//InvalidCertificateRef",
			"Secret is",
		},
		{
			"no Secret", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: gone}]}", "//InvalidCertificateRef",
			"no Secret infra/gone",
		},
		{
			"a Secret without a certificate", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: broken}]}",
			"//InvalidCertificateRef", "Secret infra/broken",
		},
		{
			"no grant", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls, namespace: others}]}", "//RefNotPermitted",
			"no ReferenceGrant in namespace others",
		},
		{"a grant", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls, namespace: models}]}", "//", ""},
		{
			"a grant for another name", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: second, namespace: models}]}",
			"//RefNotPermitted", "",
		},
		{
			"protocols",
			"port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}], options: {oci.oraclecloud.com/tls-protocols: 'TLSv1.2, " +
				"TLSv1.3'}}",
			"//", "",
		},
		{
			"an unknown protocol",
			"port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}], options: {oci.oraclecloud.com/tls-protocols: SSLv3}}",
			"UnsupportedValue//", "SSLv3",
		},
		{
			"a protocol twice",
			"port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}], options: {oci.oraclecloud.com/tls-protocols: " +
				"'TLSv1.2,TLSv1.2'}}",
			"UnsupportedValue//", "listed twice",
		},
		{
			"an unknown option", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}], options: {example.com/option: x}}",
			"UnsupportedValue//", "unknown option example.com/option",
		},
		{
			"a long option",
			"port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}], options: {oci.oraclecloud.com/cipher-suite-name: " + ocid +
				"}}",
			"UnsupportedValue//", "longer than 255",
		},
		{
			"an empty option",
			"port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}], options: {oci.oraclecloud.com/cipher-suite-name: ''}}",
			"UnsupportedValue//", "is empty",
		},
		{
			"another kind of routes", "port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}, {kind: GRPCRoute}]}",
			"//InvalidRouteKinds", "GRPCRoute is not supported",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.config += permitted
			r.secret("infra", "tls", "a.example.com")
			r.secret("models", "tls", "a.example.com")
			r.secret("models", "second", "a.example.com")
			r.secret("others", "tls", "a.example.com")
			r.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: broken, namespace: infra}\ntype: kubernetes.io/tls\ndata: {tls.crt: " +
				"'', tls.key: ''}\n---\n" +
				"apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: a, namespace: models}\n" +
				"spec: {from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}], to: [{group: '', kind: " +
				"Secret, name: " +
				"tls}]}\n---\n" +
				"apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: a, namespace: others}\n" +
				"spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: infra}], to: [{group: '', kind: Secret}]}")
			r.gateway("web", "", "", "{name: l, "+tt.listener+"}")
			p := r.plan()
			assert.Equal(t, tt.reasons, problems(p, "web", "l"))
			assert.Contains(t, message(p, "web", "l"), tt.wanted)
			programmed := tt.reasons == "//" || strings.HasSuffix(tt.reasons, "InvalidRouteKinds")
			assert.Equal(t, programmed, len(p.Layout.Listeners) == 1, "only a listener that was never valid is left out")
		})
	}
}

// TestOptionsOfTLS are those of the listener of the load balancer.
func TestOptionsOfTLS(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config += permitted
	r.secret("infra", "a", "a.example.com")
	r.secret("infra", "b", "b.example.com")
	options := "options: {oci.oraclecloud.com/tls-protocols: 'TLSv1.3,TLSv1.2', oci.oraclecloud.com/cipher-suite-name: suite}"
	r.gateway("web", "idleTimeoutSeconds: '900'", "",
		"{name: a, port: 443, protocol: HTTPS, hostname: A.example.com, tls: {certificateRefs: [{name: a}], "+options+"}}",
		"{name: b, port: 443, protocol: HTTPS, hostname: b.example.com, tls: {certificateRefs: [{name: b}], "+options+"}}",
		"{name: any, port: 443, protocol: HTTPS, tls: {options: {oci.oraclecloud.com/certificate-ocid: ocid1.certificate.oc1..a, "+
			"oci.oraclecloud.com/tls-protocols: 'TLSv1.2,TLSv1.3'}}}",
		"{name: http2, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: a}], options: {oci.oraclecloud.com/cipher-suite-name: "+
			"oci-default-http2-ssl-cipher-suite-v1}}}")
	p := r.plan()
	require.Len(t, p.Layout.Listeners, 4)
	require.Len(t, p.Layout.Certificates, 2, "a certificate of two listeners is created once")
	a, b, anyHost, http2 := p.Layout.Listeners[0], p.Layout.Listeners[1], p.Layout.Listeners[2], p.Layout.Listeners[3]
	assert.Equal(t, []string{"TLSv1.3", "TLSv1.2"}, a.TLS.Protocols)
	assert.Equal(t, "suite", a.TLS.CipherSuite)
	assert.NotEqual(t, a.TLS.Certificate, b.TLS.Certificate, "each hostname has its own")
	assert.Equal(t, http2.TLS.Certificate, a.TLS.Certificate)
	assert.Equal(t, []string{"ocid1.certificate.oc1..a"}, anyHost.TLS.CertificateIDs)
	assert.Equal(t, lblayout.ProtocolHTTP, a.Protocol)
	assert.Equal(t, lblayout.ProtocolHTTP2, http2.Protocol)
	assert.Equal(t, "a.example.com", p.Layout.Hostnames[0].Hostname)
	for _, l := range p.Layout.Listeners {
		assert.Equal(t, 900, l.IdleTimeout)
		assert.LessOrEqual(t, len(l.Name), 32)
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	const a, tls = "{name: a, port: 80, protocol: HTTP}", ", tls: {certificateRefs: [{name: tls}]"
	tests := []struct {
		name, second string
		foreign      *lblayout.Listener
		config       string
		reasons      string // of the second listener
	}{
		{"the same port and hostname", "{name: b, port: 80, protocol: HTTP}", nil, "", "/HostnameConflict/"},
		{"another hostname", "{name: b, port: 80, protocol: HTTP, hostname: b.example.com}", nil, "", "//"},
		{"another protocol", "{name: b, port: 80, protocol: HTTPS, hostname: b.example.com" + tls + "}}", nil, "", "/ProtocolConflict/"},
		{
			"a port of others", "{name: b, port: 81, protocol: HTTP}", &lblayout.Listener{Port: 81, Protocol: "HTTP"}, "",
			"PortUnavailable//",
		},
		{
			"a port of others with another hostname", "{name: b, port: 81, protocol: HTTP, hostname: b.example.com}",
			&lblayout.Listener{Port: 81, Protocol: "HTTP"}, "", "//",
		},
		{
			"a port of others with another protocol", "{name: b, port: 81, protocol: HTTP, hostname: b.example.com}",
			&lblayout.Listener{Port: 81, Protocol: "TCP"}, "", "PortUnavailable//",
		},
		{
			"the limit of listeners", "{name: b, port: 81, protocol: HTTP}", &lblayout.Listener{Port: 99, Protocol: "HTTP"}, "listeners: 2",
			"CapacityExceeded//",
		},
		{"room for listeners", "{name: b, port: 81, protocol: HTTP}", &lblayout.Listener{Port: 99, Protocol: "HTTP"}, "listeners: 3", "//"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.secret("infra", "tls", "b.example.com")
			if tt.config != "" {
				r.config = strings.Replace(r.config, "namespaces: [infra]", "namespaces: [infra], "+tt.config, 1)
			}
			if tt.foreign != nil {
				tt.foreign.Name = "terraform"
				r.live.Listeners["terraform"] = *tt.foreign
			}
			r.gateway("web", "", "", a, tt.second)
			p := r.plan()
			assert.Equal(t, "//", problems(p, "web", "a"))
			assert.Equal(t, tt.reasons, problems(p, "web", "b"))
		})
	}
}

// TestIncumbentKeepsItsPort has an older Gateway that wants the port of a younger one, which is served.
func TestIncumbentKeepsItsPort(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway("old", "", "", "{name: other, port: 81, protocol: HTTP}")
	r.gateway("young", "", "", "{name: http, port: 80, protocol: HTTP}")
	r.serve()
	r.gateway("old", "", "", "{name: other, port: 81, protocol: HTTP}", "{name: http, port: 80, protocol: HTTP}")
	p := r.serve()
	assert.Equal(t, "//", problems(p, "young", "http"))
	assert.Equal(t, "/HostnameConflict/", problems(p, "old", "http"))
}

// TestAllowedRoutes attaches routes as the listeners allow.
func TestAllowedRoutes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, allowed string
		namespaces    map[string]string // reasons by namespaces of routes
	}{
		{"the default", "", map[string]string{"infra": "true", "models": "NotAllowedByListeners"}},
		{"all", "allowedRoutes: {namespaces: {from: All}}", map[string]string{"infra": "true", "models": "true"}},
		{
			"none", "allowedRoutes: {namespaces: {from: None}}",
			map[string]string{"infra": "NotAllowedByListeners", "models": "NotAllowedByListeners"},
		},
		{
			"a selector", "allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: llm}}}}",
			map[string]string{"infra": "NotAllowedByListeners", "models": "true"},
		},
		{
			"other kinds", "allowedRoutes: {namespaces: {from: All}, kinds: [{kind: GRPCRoute}]}",
			map[string]string{"infra": "NotAllowedByListeners"},
		},
		{
			"another hostname", "allowedRoutes: {namespaces: {from: All}}, hostname: b.example.com",
			map[string]string{"infra": "NoMatchingListenerHostname"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.gateway("web", "", "", "{name: http, port: 80, protocol: HTTP, "+tt.allowed+"}")
			attached := 0
			for ns, want := range tt.namespaces {
				r.route(ns, "r-"+ns, "hostnames: ["+ns+".example.com], "+toChat)
				if want == "true" {
					attached++
				}
			}
			p := r.plan()
			for ns, want := range tt.namespaces {
				assert.True(t, strings.HasPrefix(accepted(p, ns, "r-"+ns), want), "%s: %s", ns, accepted(p, ns, "r-"+ns))
			}
			assert.EqualValues(t, attached, p.Listeners[0].attached)
		})
	}
}
