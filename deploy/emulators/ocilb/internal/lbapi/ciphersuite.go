package lbapi

import (
	"slices"
	"strings"
)

// SSLCipherSuite is a named list of ciphers. Its request form has the same fields; Name is only in requests that create it.
type SSLCipherSuite struct {
	Name    string   `json:"name"`
	Ciphers []string `json:"ciphers"`
}

const (
	defaultCipherSuite = "oci-default-ssl-cipher-suite-v1"
	// cipherSuiteOfReads is a value of reads that writes refuse.
	cipherSuiteOfReads = "oci-customized-ssl-cipher-suite"
)

// Cipher suites that every load balancer has.
var (
	http2CipherSuites = []string{
		"oci-default-http2-ssl-cipher-suite-v1", "oci-default-http2-tls-13-ssl-cipher-suite-v1",
		"oci-default-http2-tls-12-13-ssl-cipher-suite-v1",
	}
	predefinedCipherSuites = append([]string{
		defaultCipherSuite, "oci-modern-ssl-cipher-suite-v1", "oci-compatible-ssl-cipher-suite-v1",
		"oci-wider-compatible-ssl-cipher-suite-v1", "oci-tls-13-recommended-ssl-cipher-suite-v1", "oci-tls-12-13-wider-ssl-cipher-suite-v1",
		"oci-tls-11-12-13-wider-ssl-cipher-suite-v1",
	}, http2CipherSuites...)
)

// ciphers are the names of ciphers that the API knows.
var ciphers = strings.Fields(`
	TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256 TLS_AES_128_CCM_SHA256 TLS_AES_128_CCM_8_SHA256
	AES128-GCM-SHA256 AES128-SHA256 AES256-GCM-SHA384 AES256-SHA256 DH-DSS-AES128-GCM-SHA256 DH-DSS-AES128-SHA256
	DH-DSS-AES256-GCM-SHA384 DH-DSS-AES256-SHA256 DH-RSA-AES128-GCM-SHA256 DH-RSA-AES128-SHA256 DH-RSA-AES256-GCM-SHA384
	DH-RSA-AES256-SHA256 DHE-DSS-AES128-GCM-SHA256 DHE-DSS-AES128-SHA256 DHE-DSS-AES256-GCM-SHA384 DHE-DSS-AES256-SHA256
	DHE-RSA-AES128-GCM-SHA256 DHE-RSA-AES128-SHA256 DHE-RSA-AES256-GCM-SHA384 DHE-RSA-AES256-SHA256 ECDH-ECDSA-AES128-GCM-SHA256
	ECDH-ECDSA-AES128-SHA256 ECDH-ECDSA-AES256-GCM-SHA384 ECDH-ECDSA-AES256-SHA384 ECDH-RSA-AES128-GCM-SHA256 ECDH-RSA-AES128-SHA256
	ECDH-RSA-AES256-GCM-SHA384 ECDH-RSA-AES256-SHA384 ECDHE-ECDSA-AES128-GCM-SHA256 ECDHE-ECDSA-AES128-SHA256
	ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-ECDSA-AES256-SHA384 ECDHE-RSA-AES128-GCM-SHA256 ECDHE-RSA-AES128-SHA256
	ECDHE-RSA-AES256-GCM-SHA384 ECDHE-RSA-AES256-SHA384 AES128-SHA AES256-SHA CAMELLIA128-SHA CAMELLIA256-SHA DES-CBC3-SHA
	DH-DSS-AES128-SHA DH-DSS-AES256-SHA DH-DSS-CAMELLIA128-SHA DH-DSS-CAMELLIA256-SHA DH-DSS-DES-CBC3-SHAv DH-DSS-SEED-SHA
	DH-RSA-AES128-SHA DH-RSA-AES256-SHA DH-RSA-CAMELLIA128-SHA DH-RSA-CAMELLIA256-SHA DH-RSA-DES-CBC3-SHA DH-RSA-SEED-SHA
	DHE-DSS-AES128-SHA DHE-DSS-AES256-SHA DHE-DSS-CAMELLIA128-SHA DHE-DSS-CAMELLIA256-SHA DHE-DSS-DES-CBC3-SHA DHE-DSS-SEED-SHA
	DHE-RSA-AES128-SHA DHE-RSA-AES256-SHA DHE-RSA-CAMELLIA128-SHA DHE-RSA-CAMELLIA256-SHA DHE-RSA-DES-CBC3-SHA DHE-RSA-SEED-SHA
	ECDH-ECDSA-AES128-SHA ECDH-ECDSA-AES256-SHA ECDH-ECDSA-DES-CBC3-SHA ECDH-ECDSA-RC4-SHA ECDH-RSA-AES128-SHA ECDH-RSA-AES256-SHA
	ECDH-RSA-DES-CBC3-SHA ECDH-RSA-RC4-SHA ECDHE-ECDSA-AES128-SHA ECDHE-ECDSA-AES256-SHA ECDHE-ECDSA-DES-CBC3-SHA ECDHE-ECDSA-RC4-SHA
	ECDHE-RSA-AES128-SHA ECDHE-RSA-AES256-SHA ECDHE-RSA-DES-CBC3-SHA ECDHE-RSA-RC4-SHA IDEA-CBC-SHA KRB5-DES-CBC3-MD5
	KRB5-DES-CBC3-SHA KRB5-IDEA-CBC-MD5 KRB5-IDEA-CBC-SHA KRB5-RC4-MD5 KRB5-RC4-SHA PSK-3DES-EDE-CBC-SHA PSK-AES128-CBC-SHA
	PSK-AES256-CBC-SHA PSK-RC4-SHA RC4-MD5 RC4-SHA SEED-SHA
`)

// PutSSLCipherSuite creates a cipher suite, or replaces its ciphers.
func (lb *LoadBalancer) PutSSLCipherSuite(s *SSLCipherSuite, create bool) *Error {
	if err := present(lb.SSLCipherSuites, "cipher suite", s.Name, create); err != nil {
		return err
	}
	var c check
	c.has(s.Name != "", "name")
	c.that(len(s.Name) <= maxText && plainName.MatchString(s.Name), "Invalid cipher suite name '%.60s'", s.Name)
	c.that(s.Name != cipherSuiteOfReads && !slices.Contains(predefinedCipherSuites, s.Name), "Cipher suite name '%s' is reserved", s.Name)
	c.has(len(s.Ciphers) > 0, "ciphers")
	for i, name := range s.Ciphers {
		c.that(i < len(ciphers) && slices.Contains(ciphers, name), "Invalid cipher '%.60s'", name)
		c.that(c.err != nil || !slices.Contains(s.Ciphers[:i], name), "Cipher '%.60s' is listed twice", name)
		if c.err != nil {
			return c.err
		}
	}
	suite := *s
	lb.SSLCipherSuites[s.Name] = &suite
	c.limit(len(lb.SSLCipherSuites), maxObjects, "ssl-cipher-suites-per-load-balancer")
	return c.err
}

// DeleteSSLCipherSuite removes a cipher suite that nothing uses.
func (lb *LoadBalancer) DeleteSSLCipherSuite(name string) *Error {
	if lb.SSLCipherSuites[name] == nil {
		return NotFound("cipher suite", name)
	}
	if err := lb.usedBy("cipher suite", name, func(l *Listener) bool { return l.SSLConfiguration.usesSuite(name) }); err != nil {
		return err
	}
	for _, s := range Sorted(lb.BackendSets) {
		if s.SSLConfiguration.usesSuite(name) {
			return invalid("Can't remove cipher suite %s from load balancer %s since it is used in backend set %s", name, lb.ID, s.Name)
		}
	}
	delete(lb.SSLCipherSuites, name)
	return nil
}
