package servingcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// named returns a client certificate with names.
func (a *authority) named(t *testing.T, commonName string, dnsNames []string, uri string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: commonName}, DNSNames: dnsNames,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if uri != "" {
		u, err := url.Parse(uri)
		require.NoError(t, err)
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestClientNames(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, ours.pem(), 0o600))
	s, err := SelfSigned(Params{
		Log: zap.NewNop(), ClientCAFile: file, ClientNames: []string{"gateway.example", "spiffe://cluster.local/ns/gateways/sa/envoy"},
	}, "picker", Options{}, time.Now())
	require.NoError(t, err)
	tests := []struct {
		name string
		give *tls.Certificate
		want string // error
	}{
		{name: "no certificate", want: "client didn't provide a certificate"},
		{name: "wrong authority", give: pointer(theirs.named(t, "", []string{"gateway.example"}, "")), want: "verify client certificate: x509"},
		{name: "right DNS name", give: pointer(ours.named(t, "other", []string{"a.example", "gateway.example"}, ""))},
		{name: "right URI", give: pointer(ours.named(t, "", nil, "spiffe://cluster.local/ns/gateways/sa/envoy"))},
		{name: "right common name alone", give: pointer(ours.named(t, "gateway.example", nil, ""))},
		{
			name: "right common name beside another name", give: pointer(ours.named(t, "gateway.example", []string{"a.example"}, "")),
			want: `verify client certificate: its names are "a.example", and one of "gateway.example, spiffe://cluster.local/ns/gateways/sa/envoy" is required`,
		},
		{name: "wrong name", give: pointer(ours.named(t, "a.example", nil, "")), want: `its names are "a.example"`},
		{name: "wildcard", give: pointer(ours.named(t, "", []string{"*.example"}, "")), want: `its names are "*.example"`},
		{name: "no name", give: pointer(ours.named(t, "", nil, "")), want: `its names are ""`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := &tls.Config{}
			if tt.give != nil {
				client.Certificates = []tls.Certificate{*tt.give}
			}
			_, err := shake(t, s.TLS(Options{}), client)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func pointer(c tls.Certificate) *tls.Certificate { return &c }

// TestSelfSignedFollowsItsClients has a server without files of its own, and authorities that change.
func TestSelfSignedFollowsItsClients(t *testing.T) {
	t.Parallel()
	ours, theirs, m := newAuthority(t), newAuthority(t), mount{dir: t.TempDir()}
	m.put(t, map[string][]byte{"ca.crt": ours.pem()})
	s, err := SelfSigned(Params{Log: zap.NewNop(), ClientCAFile: filepath.Join(m.dir, "ca.crt"), Interval: interval}, "picker", Options{}, time.Now())
	require.NoError(t, err)
	config := s.TLS(Options{})
	accepted := func(a *authority) bool {
		_, err := shake(t, config, &tls.Config{Certificates: []tls.Certificate{a.client(t, x509.ExtKeyUsageClientAuth)}})
		return err == nil
	}
	assert.True(t, accepted(ours))
	assert.False(t, accepted(theirs))
	expiry := s.Expiry()

	run(t, s, func() { m.put(t, map[string][]byte{"ca.crt": theirs.pem()}) })
	assert.False(t, accepted(ours))
	assert.True(t, accepted(theirs))
	assert.Equal(t, expiry, s.Expiry(), "the certificate stays")

	run(t, s, func() { m.put(t, map[string][]byte{"ca.crt": []byte("nonsense")}) })
	assert.True(t, accepted(theirs), "invalid authorities have no effect")
}

func TestClientOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := SelfSigned(Params{ClientNames: []string{"a"}}, "picker", Options{}, time.Now())
	require.ErrorIs(t, err, errNoAuthorities)
	_, err = Load(Params{Dir: t.TempDir(), ClientNames: []string{"a"}})
	require.ErrorIs(t, err, errNoAuthorities)
	_, err = SelfSigned(Params{ClientCAFile: filepath.Join(t.TempDir(), "ca.crt")}, "picker", Options{}, time.Now())
	require.ErrorContains(t, err, "no such file")
}
