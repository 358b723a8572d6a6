package dataplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// handshakeTimeout is the time that a TLS handshake may take, with clients and with backends. Documents have none.
const handshakeTimeout = 10 * time.Second

// versions returns the lowest and the highest version of a configuration.
func versions(s *lbapi.SSLConfiguration) (lowest, highest uint16) {
	numbers := map[string]uint16{
		lbapi.TLS10: tls.VersionTLS10, lbapi.TLS11: tls.VersionTLS11, lbapi.TLS12: tls.VersionTLS12, lbapi.TLS13: tls.VersionTLS13,
	}
	for _, name := range s.Protocols {
		n := numbers[name]
		if lowest == 0 || n < lowest {
			lowest = n
		}
		highest = max(highest, n)
	}
	if lowest == 0 {
		return tls.VersionTLS12, tls.VersionTLS12
	}
	return lowest, highest
}

// authorities returns the certificate authorities that a configuration trusts. Nobody knows those that it names by OCID: only
// Oracle's certificates service has them.
func authorities(lb *lbapi.LoadBalancer, s *lbapi.SSLConfiguration) *x509.CertPool {
	if s.CertificateName != nil {
		if c := lb.Certificates[*s.CertificateName]; c != nil && c.Authorities != nil {
			return c.Authorities
		}
	}
	return x509.NewCertPool()
}

// serverTLS returns how a listener terminates TLS, or nil if it does not.
func (p *Plane) serverTLS(lb *lbapi.LoadBalancer, l *lbapi.Listener) *tls.Config {
	s := l.SSLConfiguration
	if s == nil {
		return nil
	}
	certificate := p.throwaway
	if s.CertificateName != nil {
		if c := lb.Certificates[*s.CertificateName]; c != nil && c.KeyPair != nil {
			certificate = func() *tls.Certificate { return c.KeyPair }
		}
	}
	c := &tls.Config{
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate(), nil },
		SessionTicketsDisabled: s.HasSessionResumption == nil || !*s.HasSessionResumption,
	}
	c.MinVersion, c.MaxVersion = versions(s)
	switch l.Protocol {
	case lbapi.HTTP2, lbapi.GRPC:
		c.NextProtos = []string{"h2", "http/1.1"}
	case lbapi.HTTP:
		c.NextProtos = []string{"http/1.1"}
	}
	if s.VerifyPeerCertificate != nil && *s.VerifyPeerCertificate {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, authorities(lb, s)
		c.VerifyConnection = func(state tls.ConnectionState) error { return checkDepth(state.VerifiedChains, s.VerifyDepth) }
	}
	return c
}

// checkDepth refuses peers all of whose chains of certificates are too long.
func checkDepth(chains [][]*x509.Certificate, depth *int) error {
	if depth == nil {
		return nil
	}
	for _, chain := range chains {
		if len(chain)-1 <= *depth {
			return nil
		}
	}
	return fmt.Errorf("the chain of certificates is longer than %d", *depth)
}

// newThrowaway returns a certificate of nobody, for listeners whose certificate is in Oracle's certificates service.
func newThrowaway() *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // the system has no randomness
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "throwaway certificate of the emulator"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err) // nothing in the template is variable
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// clientTLS is how a backend set connects to its backends by TLS.
type clientTLS struct {
	lowest, highest uint16
	verify          bool
	name            bool // whether a certificate must be for the address of its backend
	authorities     *x509.CertPool
	depth           *int
}

// newClientTLS returns how a backend set connects to its backends, or nil if it does not use TLS.
func (o *Options) newClientTLS(lb *lbapi.LoadBalancer, s *lbapi.SSLConfiguration) *clientTLS {
	if s == nil {
		return nil
	}
	c := &clientTLS{
		verify: s.VerifyPeerCertificate != nil && *s.VerifyPeerCertificate, name: o.VerifyName, authorities: authorities(lb, s),
		depth: s.VerifyDepth,
	}
	c.lowest, c.highest = versions(s)
	return c
}

// connect makes a connection to a backend one of TLS.
func (c *clientTLS) connect(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, &tls.Config{
		MinVersion: c.lowest, MaxVersion: c.highest,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies, if the set does
		VerifyConnection:   func(state tls.ConnectionState) error { return c.check(state.PeerCertificates, host) },
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS with backend %s: %w", address, err)
	}
	return secure, nil
}

// check verifies the certificates of a backend.
func (c *clientTLS) check(peer []*x509.Certificate, host string) error {
	if !c.verify {
		return nil
	}
	if len(peer) == 0 {
		return errors.New("the backend has no certificate")
	}
	options := x509.VerifyOptions{Roots: c.authorities, Intermediates: x509.NewCertPool()}
	for _, intermediate := range peer[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	if c.name {
		options.DNSName = host
	}
	chains, err := peer[0].Verify(options)
	if err != nil {
		return err
	}
	return checkDepth(chains, c.depth)
}
