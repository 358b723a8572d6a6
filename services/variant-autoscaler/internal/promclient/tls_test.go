//go:build system

package promclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	authority, pair := newAuthority(t)
	server := httptest.NewUnstartedServer(answers(http.StatusOK, emptyVector))
	clients := x509.NewCertPool()
	clients.AddCert(authority)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair(t, "prometheus.example")}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	certificate, key := writePair(t, pair(t, "client"))
	good := Config{Prometheus: settings.Prometheus{BaseURL: server.URL, CACertPath: writeCertificate(t, authority.Raw), ServerName: "prometheus.example", ClientCertPath: certificate, ClientKeyPath: key}}
	query := func(change func(c *Config)) error {
		config := good
		change(&config)
		c, err := New(config, zap.NewNop())
		if err != nil {
			return err
		}
		_, err = c.Query(t.Context(), "up")
		return err
	}
	require.NoError(t, query(func(*Config) {}))
	require.NoError(t, query(func(c *Config) { c.CACertPath, c.ServerName, c.InsecureSkipVerify = "", "", true }))
	require.ErrorContains(t, query(func(c *Config) { c.CACertPath = "" }), "set PROMETHEUS_CA_CERT_PATH, and PROMETHEUS_SERVER_NAME")
	require.ErrorContains(t, query(func(c *Config) { c.ServerName = "" }), "set PROMETHEUS_CA_CERT_PATH, and PROMETHEUS_SERVER_NAME")
	require.ErrorContains(t, query(func(c *Config) { c.ClientCertPath, c.ClientKeyPath = "", "" }), "tls: ")
	require.ErrorContains(t, query(func(c *Config) { c.CACertPath = key }), "contains no certificate in PEM")
	require.ErrorContains(t, query(func(c *Config) { c.CACertPath = "/missing" }), "check PROMETHEUS_CA_CERT_PATH")
	require.ErrorContains(t, query(func(c *Config) { c.ClientKeyPath = c.CACertPath }), "the client certificate")

	old := httptest.NewUnstartedServer(answers(http.StatusOK, emptyVector))
	old.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	old.StartTLS()
	t.Cleanup(old.Close)
	require.ErrorContains(t, query(func(c *Config) { c.BaseURL, c.InsecureSkipVerify = old.URL, true }), "protocol version")

	plain := httptest.NewServer(answers(http.StatusOK, emptyVector))
	t.Cleanup(plain.Close)
	require.ErrorContains(t, query(func(c *Config) { c.BaseURL = strings.Replace(plain.URL, "http:", "https:", 1) }), "gave HTTP response to HTTPS client")
}

func TestCertificatesAreFollowed(t *testing.T) {
	t.Parallel()
	first, firstPair := newAuthority(t)
	second, secondPair := newAuthority(t)
	var current atomic.Pointer[tls.Certificate]
	use := func(pair tls.Certificate) { current.Store(&pair) }
	use(firstPair(t, "prometheus"))
	server := httptest.NewUnstartedServer(answers(http.StatusOK, emptyVector))
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*current.Load()}, SessionTicketsDisabled: true}, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	core, logs := observer.New(zap.WarnLevel)
	config := Config{Prometheus: settings.Prometheus{BaseURL: server.URL, CACertPath: writeCertificate(t, first.Raw), ServerName: "prometheus"}}
	c, err := New(config, zap.New(core))
	require.NoError(t, err)
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)

	use(secondPair(t, "prometheus"))
	require.NoError(t, os.WriteFile(config.CACertPath, []byte("half a fi"), 0o600))
	server.CloseClientConnections()
	for range 3 {
		_, err = c.Query(t.Context(), "up")
		require.ErrorContains(t, err, "PROMETHEUS_CA_CERT_PATH", "the last good authorities stay")
	}
	assert.Equal(t, 1, logs.Len(), "it is reported once")
	text, err := os.ReadFile(writeCertificate(t, second.Raw))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config.CACertPath, text, 0o600))
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)
}

func writeCertificate(t *testing.T, der []byte) string {
	t.Helper()
	return write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// newAuthority returns an authority, and a function for certificates of it.
func newAuthority(t *testing.T) (*x509.Certificate, func(t *testing.T, name string) tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: fmt.Sprintf("authority %p", key)}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	authority, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority, func(t *testing.T, name string) tls.Certificate {
		t.Helper()
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}, authority, own.Public(), key)
		require.NoError(t, err)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own}
	}
}

func writePair(t *testing.T, pair tls.Certificate) (certificate, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	return writeCertificate(t, pair.Certificate[0]), write(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}
