//go:build system

package replicas

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/servingcert"
)

// listening returns a replica that listens on a port.
func listening(t testing.TB, settings *tls.Config) *replica {
	t.Helper()
	r := newReplica(settings)
	require.NoError(t, r.OpenListener())
	r.address = r.ListenAddress()
	return r
}

// certificate returns the settings of replicas with a certificate from files.
func certificate(t *testing.T, name string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	for file, block := range map[string]*pem.Block{
		servingcert.CertificateFile: {Type: "CERTIFICATE", Bytes: certificate}, servingcert.KeyFile: {Type: "PRIVATE KEY", Bytes: private},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
	store, err := servingcert.Load(servingcert.Params{Log: zap.NewNop(), Dir: dir})
	require.NoError(t, err)
	return store.Siblings(servingcert.Options{})
}

// selfSigned returns the settings of a replica without files.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	store, err := servingcert.SelfSigned(servingcert.Params{Log: zap.NewNop()}, "picker", servingcert.Options{}, time.Now())
	require.NoError(t, err)
	return store.Siblings(servingcert.Options{})
}

func TestReplicasOverTLS(t *testing.T) {
	t.Parallel()
	shared := certificate(t, "picker")
	without := shared.Clone()
	without.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	for _, tt := range []struct {
		name  string
		a, b  *tls.Config
		hears bool
	}{
		{"the same certificate", shared, shared, true},
		{"without encryption", nil, nil, true},
		{"certificates of their own", selfSigned(t), selfSigned(t), true},
		{"different files", shared, certificate(t, "picker"), false},
		{"a client without a certificate", shared, without, false},
		{"one without encryption", shared, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, b := listening(t, tt.a), listening(t, tt.b)
			a.start(t, a.address)
			b.start(t, a.address)
			if !tt.hears {
				eventually(t, func() bool { return b.heardNothing() != "" && b.member.CheckReady() == nil }, "reported")
				assert.Zero(t, a.member.publisher.reading.Load())
				return
			}
			eventually(t, func() bool { return b.member.connected.Load() == 1 && b.member.CheckReady() == nil }, "connected")
			a.place(10)
			eventually(t, func() bool { return b.endpoint.Load().Open == 1 }, "placed")
		})
	}
}
