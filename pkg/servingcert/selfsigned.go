package servingcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	selfSignedLifetime = 10 * 365 * 24 * time.Hour
	clockSkew          = time.Hour // by which clients' clocks may be behind
	rsaBits            = 2048
)

// SelfSigned returns a Store with a new certificate, for clients that encrypt without verifying the server. The cipher
// suites of o determine the kind of its key.
func SelfSigned(p Params, commonName string, o Options, now time.Time) (*Store, error) {
	key, err := newKey(o)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Fairlead"}, CommonName: commonName},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(selfSignedLifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return newStore(p, &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf})
}

// newKey returns a P-256 key, or an RSA key if the suites of TLS 1.2 require one.
func newKey(o Options) (crypto.Signer, error) {
	usable := func(id uint16) bool { return strings.Contains(tls.CipherSuiteName(id), "_ECDSA_") }
	if len(o.CipherSuites) > 0 && !slices.ContainsFunc(o.CipherSuites, usable) {
		return rsa.GenerateKey(rand.Reader, rsaBits)
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}
