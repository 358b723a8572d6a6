package servingcert

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	errNoAuthorities       = errors.New("names of clients need a file of client authorities")
	errNoClientCertificate = errors.New("the client has no certificate")
)

// verifyClient accepts clients with a certificate of one of the current authorities and, if names are required, one of the
// names.
func (s *Store) verifyClient(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errNoClientCertificate
	}
	client := state.PeerCertificates[0]
	intermediates := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := client.Verify(x509.VerifyOptions{
		Roots:         s.current.Load().clientCAs,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("verify client certificate: %w", err)
	}
	required := s.params.ClientNames
	if len(required) == 0 {
		return nil
	}
	names := namesOf(client)
	if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(required, name) }) {
		return fmt.Errorf("verify client certificate: its names are %q, and one of %q is required", strings.Join(names, ", "), strings.Join(required, ", "))
	}
	return nil
}

// namesOf returns the DNS names and URIs of a certificate. The common name counts only without them, as RFC 6125 has it: an
// authority may check it less.
func namesOf(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	if len(names) == 0 && c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return names
}
