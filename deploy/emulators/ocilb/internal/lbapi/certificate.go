package lbapi

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
)

// Certificate is a certificate that listeners and backend sets refer to by name.
type Certificate struct {
	CertificateName   string `json:"certificateName"`
	PublicCertificate string `json:"publicCertificate"`
	CACertificate     string `json:"caCertificate"`

	// KeyPair is the public certificate with its key, and Authorities is the CA certificate. The API shows neither.
	KeyPair     *tls.Certificate `json:"-"`
	Authorities *x509.CertPool   `json:"-"`
}

// CertificateDetails are a certificate in a request.
type CertificateDetails struct {
	CertificateName   string `json:"certificateName"`
	PublicCertificate string `json:"publicCertificate"`
	CACertificate     string `json:"caCertificate"`
	PrivateKey        string `json:"privateKey"`
	Passphrase        string `json:"passphrase"`
}

// Certificate returns the certificate of a request. It has a public certificate with its key, authorities, or both.
func (d *CertificateDetails) Certificate() (*Certificate, *Error) {
	var c check
	c.has(d.CertificateName != "", "certificateName")
	c.that(len(d.CertificateName) <= maxText && plainName.MatchString(d.CertificateName), "Invalid certificate name '%.60s'",
		d.CertificateName)
	c.has(d.PublicCertificate != "" || d.CACertificate != "", "publicCertificate")
	c.has(d.PublicCertificate == "" || d.PrivateKey != "", "privateKey")
	c.that(d.PublicCertificate != "" || d.PrivateKey == "", "The private key of certificate '%.60s' has no public certificate", d.CertificateName)
	if c.err != nil {
		return nil, c.err
	}
	certificate := &Certificate{CertificateName: d.CertificateName, PublicCertificate: d.PublicCertificate, CACertificate: d.CACertificate}
	if d.CACertificate != "" {
		certificate.Authorities = x509.NewCertPool()
		c.that(certificate.Authorities.AppendCertsFromPEM([]byte(d.CACertificate)), "The CA certificate of '%s' has no PEM certificate",
			d.CertificateName)
	}
	if d.PublicCertificate != "" {
		key, err := d.key()
		c.also(err)
		pair, parseErr := tls.X509KeyPair([]byte(d.PublicCertificate), key)
		c.that(parseErr == nil, "Invalid public certificate or private key of '%s': %v", d.CertificateName, parseErr)
		certificate.KeyPair = &pair
	}
	return certificate, c.err
}

// key returns the private key in PEM, decrypted if OpenSSL's own form of encryption protects it.
func (d *CertificateDetails) key() ([]byte, *Error) {
	block, _ := pem.Decode([]byte(d.PrivateKey))
	switch {
	case block == nil:
		return nil, invalid("The private key of certificate '%s' is not in PEM", d.CertificateName)
	case block.Type == "ENCRYPTED PRIVATE KEY":
		return nil, invalid("The private key of certificate '%s' is encrypted by PKCS #8, which the emulator does not read", d.CertificateName)
	case !x509.IsEncryptedPEMBlock(block): //nolint:staticcheck // Oracle's examples have this form
		return []byte(d.PrivateKey), nil
	}
	der, err := x509.DecryptPEMBlock(block, []byte(d.Passphrase)) //nolint:staticcheck // as above
	if err != nil {
		return nil, invalid("The passphrase does not decrypt the private key of certificate '%s'", d.CertificateName)
	}
	return pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: der}), nil
}

// PutCertificate creates a certificate. Certificates cannot be changed.
func (lb *LoadBalancer) PutCertificate(d *CertificateDetails) *Error {
	if err := present(lb.Certificates, "certificate", d.CertificateName, true); err != nil {
		return err
	}
	certificate, err := d.Certificate()
	if err != nil {
		return err
	}
	lb.Certificates[d.CertificateName] = certificate
	var c check
	c.limit(len(lb.Certificates), maxObjects, "certificates-per-load-balancer")
	return c.err
}

// DeleteCertificate removes a certificate that nothing uses.
func (lb *LoadBalancer) DeleteCertificate(name string) *Error {
	if lb.Certificates[name] == nil {
		return NotFound("certificate", name)
	}
	for _, l := range lb.Listeners {
		if l.SSLConfiguration.uses(name) {
			return Errorf(http.StatusConflict, CodeConflict, "Certificate '%s' is attached to one or more listeners", name)
		}
	}
	for _, s := range lb.BackendSets {
		if s.SSLConfiguration.uses(name) {
			return Errorf(http.StatusConflict, CodeConflict, "Certificate '%s' is attached to one or more backendSets", name)
		}
	}
	delete(lb.Certificates, name)
	return nil
}
