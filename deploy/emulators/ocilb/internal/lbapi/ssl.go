package lbapi

import "slices"

// SSLConfiguration is how a backend set or a listener uses TLS.
type SSLConfiguration struct {
	VerifyDepth                    *int     `json:"verifyDepth,omitempty"`
	VerifyPeerCertificate          *bool    `json:"verifyPeerCertificate,omitempty"`
	HasSessionResumption           *bool    `json:"hasSessionResumption,omitempty"`
	TrustedCertificateAuthorityIDs []string `json:"trustedCertificateAuthorityIds,omitempty"`
	CertificateIDs                 []string `json:"certificateIds,omitempty"`
	CertificateName                *string  `json:"certificateName,omitempty"`
	ServerOrderPreference          string   `json:"serverOrderPreference,omitempty"`
	CipherSuiteName                *string  `json:"cipherSuiteName,omitempty"`
	Protocols                      []string `json:"protocols,omitempty"`
}

// Protocols of TLS. A configuration that names none has version 1.2.
const (
	TLS10 = "TLSv1"
	TLS11 = "TLSv1.1"
	TLS12 = "TLSv1.2"
	TLS13 = "TLSv1.3"
)

var tlsProtocols = []string{TLS10, TLS11, TLS12, TLS13}

// maxVerifyDepth is a guess: no document has a limit. The default is what answers of the service have.
const (
	defaultVerifyDepth = 1
	maxVerifyDepth     = 100
)

// validate checks everything but references.
func (s *SSLConfiguration) validate() *Error {
	if s == nil {
		return nil
	}
	var c check
	c.that(valueOr(s.CipherSuiteName, "") != cipherSuiteOfReads, "Cipher suite '%s' cannot be used in a request", cipherSuiteOfReads)
	depth := valueOr(s.VerifyDepth, defaultVerifyDepth)
	c.that(depth >= 1 && depth <= maxVerifyDepth, "Invalid verifyDepth %d", depth)
	c.that(slices.Contains([]string{"", "ENABLED", "DISABLED"}, s.ServerOrderPreference), "Invalid serverOrderPreference '%.60s'",
		s.ServerOrderPreference)
	c.that(len(s.CertificateIDs) <= 1, "More than one certificate in 'certificateIds'")
	c.ocids("certificateIds", s.CertificateIDs)
	c.ocids("trustedCertificateAuthorityIds", s.TrustedCertificateAuthorityIDs)
	c.that(s.CertificateName == nil || len(s.CertificateIDs) == 0, "certificateName and certificateIds are mutually exclusive")
	c.that(len(s.Protocols) <= len(tlsProtocols), "More than %d protocols of TLS", len(tlsProtocols))
	if c.err != nil {
		return c.err
	}
	for i, p := range s.Protocols {
		c.that(slices.Contains(tlsProtocols, p) && !slices.Contains(s.Protocols[:i], p), "Invalid protocol '%.60s' of TLS", p)
	}
	return c.err
}

// validateReferences checks what a configuration refers to.
func (s *SSLConfiguration) validateReferences(lb *LoadBalancer) *Error {
	var c check
	if name := valueOr(s.CertificateName, ""); s.CertificateName != nil {
		c.that(lb.Certificates[name] != nil, "Certificate '%.60s' does not exist in load balancer %s", name, lb.ID)
	}
	suite := valueOr(s.CipherSuiteName, defaultCipherSuite)
	c.that(lb.SSLCipherSuites[suite] != nil || slices.Contains(predefinedCipherSuites, suite),
		"Cipher suite '%.60s' does not exist in load balancer %s", suite, lb.ID)
	return c.err
}

// withDefaults returns a copy with the defaults of the service.
func (s *SSLConfiguration) withDefaults() *SSLConfiguration {
	if s == nil {
		return nil
	}
	c := *s
	if c.CipherSuiteName == nil {
		name := defaultCipherSuite
		c.CipherSuiteName = &name
	}
	if len(c.Protocols) == 0 {
		c.Protocols = []string{TLS12}
	}
	depth, verify := valueOr(c.VerifyDepth, defaultVerifyDepth), valueOr(c.VerifyPeerCertificate, false)
	c.VerifyDepth, c.VerifyPeerCertificate = &depth, &verify // answers always have both
	return &c
}

// uses reports whether a configuration refers to a certificate.
func (s *SSLConfiguration) uses(certificate string) bool {
	return s != nil && s.CertificateName != nil && *s.CertificateName == certificate
}

// usesSuite reports whether a configuration refers to a cipher suite.
func (s *SSLConfiguration) usesSuite(name string) bool {
	return s != nil && s.CipherSuiteName != nil && *s.CipherSuiteName == name
}
