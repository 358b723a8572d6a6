package ocilbtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority is a certificate authority of a test.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// validity is the time for which certificates are valid, on the clock of the bubble.
const validity = 24 * time.Hour

// NewAuthority returns an authority that signs its own certificate.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	return issue(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
}

// NewIntermediate returns an authority whose certificate this one signs.
func (a *Authority) NewIntermediate(t testing.TB) *Authority {
	t.Helper()
	return issue(t, a, &x509.Certificate{Subject: pkix.Name{CommonName: "intermediate"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
}

// PEM returns the certificate of the authority.
func (a *Authority) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw}))
}

// Pool returns a pool that trusts the authority only.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// Issue returns a certificate for hosts and its key, in PEM.
func (a *Authority) Issue(t testing.TB, hosts ...string) (certificate, key string) {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	leaf := issue(t, a, template)
	der, err := x509.MarshalPKCS8PrivateKey(leaf.key)
	if err != nil {
		t.Fatalf("encode key: %v", err)
	}
	return leaf.PEM(), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// Pair returns a certificate for hosts with its key. Others are sent with it.
func (a *Authority) Pair(t testing.TB, others []*Authority, hosts ...string) tls.Certificate {
	t.Helper()
	certificate, key := a.Issue(t, hosts...)
	for _, other := range others {
		certificate += other.PEM()
	}
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatalf("load key pair: %v", err)
	}
	return pair
}

// issue makes a certificate. Without an authority, it signs itself.
func issue(t testing.TB, by *Authority, template *x509.Certificate) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("generate key: %v", err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatalf("generate serial: %v", err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().Add(validity)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatalf("create certificate: %v", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("parse certificate: %v", err)
	}
	return &Authority{certificate: certificate, key: key}
}
