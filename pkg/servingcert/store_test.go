package servingcert

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"fairlead.dev/pkg/kubetest"
)

const interval = 10 * time.Second // in fake time

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs the certificates of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{certificate, key}
}

func (a *authority) pem() []byte { return encode("CERTIFICATE", a.certificate.Raw) }

// issue returns a certificate and its key in PEM.
func (a *authority) issue(t *testing.T, name string, usage x509.ExtKeyUsage) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour).Truncate(time.Second),
	}, a.certificate, private.Public(), a.key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}

func (a *authority) client(t *testing.T, usage x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(a.issue(t, "client", usage))
	require.NoError(t, err)
	return c
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// mount is a folder in which files change as those of a mounted Secret do: all at once, by a symlink.
type mount struct {
	dir      string
	versions int
}

func (m *mount) put(t *testing.T, content map[string][]byte) {
	t.Helper()
	m.versions++
	version := filepath.Join(m.dir, "..version"+string(rune('0'+m.versions)))
	require.NoError(t, os.Mkdir(version, 0o700))
	for name, text := range content {
		require.NoError(t, os.WriteFile(filepath.Join(version, name), text, 0o600))
		link := filepath.Join(m.dir, name)
		if _, err := os.Lstat(link); err != nil {
			require.NoError(t, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	fresh := filepath.Join(m.dir, "..data_tmp")
	require.NoError(t, os.Symlink(filepath.Base(version), fresh))
	require.NoError(t, os.Rename(fresh, filepath.Join(m.dir, "..data")))
}

func (m *mount) issue(t *testing.T, a *authority, name string) {
	t.Helper()
	certificate, key := a.issue(t, name, x509.ExtKeyUsageServerAuth)
	m.put(t, map[string][]byte{CertificateFile: certificate, KeyFile: key})
}

// sender is a connection whose writes do not wait for the reader: an alert of the client would wait for a server that still writes.
type sender struct {
	net.Conn
	queue chan []byte
}

func (s sender) Write(b []byte) (int, error) {
	s.queue <- bytes.Clone(b)
	return len(b), nil
}

func (s sender) send() {
	for b := range s.queue {
		_, _ = s.Conn.Write(b) // the server has ended the handshake
	}
}

// shake connects to s as client and returns what the client learns, or why it was turned away.
func shake(t *testing.T, config, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	here, there := net.Pipe()
	server := tls.Server(there, config)
	served := make(chan error, 1)
	go func() {
		served <- server.Handshake()
		_ = server.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
	defer cancel()
	client.InsecureSkipVerify = client.RootCAs == nil
	queued := sender{Conn: here, queue: make(chan []byte, 16)}
	go queued.send()
	conn := tls.Client(queued, client)
	err := conn.HandshakeContext(ctx)
	_, _ = io.Copy(io.Discard, here) // until the server has ended the handshake
	close(queued.queue)
	_ = here.Close()
	if serverErr := <-served; serverErr != nil {
		return tls.ConnectionState{}, serverErr
	}
	return conn.ConnectionState(), err
}

func shown(t *testing.T, s *Store) string {
	t.Helper()
	state, err := shake(t, s.TLS(Options{}), &tls.Config{})
	require.NoError(t, err)
	return state.PeerCertificates[0].Subject.CommonName
}

func load(t *testing.T, p Params) (*Store, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	p.Log = zap.New(core)
	s, err := Load(p)
	require.NoError(t, err)
	return s, logs
}

// run follows the files while the steps change them. After each step the Store reads them at least twice.
func run(t *testing.T, s *Store, steps ...func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		for _, step := range steps {
			step()
			time.Sleep(2 * interval)
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
	})
}

func TestCertificateFollowsItsFiles(t *testing.T) {
	t.Parallel()
	a, m := newAuthority(t), mount{dir: t.TempDir()}
	m.issue(t, a, "old")
	s, logs := load(t, Params{Dir: m.dir, Interval: interval})
	assert.Equal(t, "old", shown(t, s))
	config := s.TLS(Options{}) // a server keeps its settings

	certificate, key := a.issue(t, "new", x509.ExtKeyUsageServerAuth) // in real time
	run(t, s, func() { m.put(t, map[string][]byte{CertificateFile: certificate, KeyFile: key}) })
	state, err := shake(t, config, &tls.Config{})
	require.NoError(t, err)
	assert.Equal(t, "new", state.PeerCertificates[0].Subject.CommonName)
	assert.Len(t, logs.FilterMessage("Reloaded certificate").All(), 1)
	assert.WithinDuration(t, time.Now().Add(time.Hour), s.Expiry(), time.Minute)
}

func TestFilesAreReadOnceWithoutAnInterval(t *testing.T) {
	t.Parallel()
	a, m := newAuthority(t), mount{dir: t.TempDir()}
	m.issue(t, a, "old")
	s, _ := load(t, Params{Dir: m.dir})
	m.issue(t, a, "new")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		s.Run(ctx)
		require.Error(t, ctx.Err(), "it runs until it is told to end")
	})
	assert.Equal(t, "old", shown(t, s))
}

func TestBadFilesKeepTheLastGoodCertificate(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	good, key := a.issue(t, "other", x509.ExtKeyUsageServerAuth)
	_, otherKey := a.issue(t, "other", x509.ExtKeyUsageServerAuth)
	tests := []struct {
		name string
		give map[string][]byte
		want string
	}{
		{name: "another's key", give: map[string][]byte{CertificateFile: good, KeyFile: otherKey}, want: "private key does not match"},
		{name: "empty certificate", give: map[string][]byte{CertificateFile: nil, KeyFile: key}, want: "failed to find any PEM data"},
		{name: "no key", give: map[string][]byte{CertificateFile: good}, want: "no such file"},
		{name: "nonsense", give: map[string][]byte{CertificateFile: []byte("a"), KeyFile: []byte("b")}, want: "failed to find any PEM data"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := mount{dir: t.TempDir()}
			m.issue(t, a, "old")
			s, logs := load(t, Params{Dir: m.dir, Interval: interval})
			warnings := func() int { return logs.FilterLevelExact(zap.WarnLevel).Len() }
			run(t, s, func() { m.put(t, tt.give) }, func() {}, func() {
				assert.Equal(t, 1, warnings(), "once")
				assert.Contains(t, logs.FilterLevelExact(zap.WarnLevel).All()[0].ContextMap()["error"], tt.want)
			})
			assert.Equal(t, "old", shown(t, s))
			run(t, s, func() { m.issue(t, a, "new") })
			assert.Equal(t, "new", shown(t, s), "the next valid one is used")
			run(t, s, func() { m.put(t, tt.give) })
			assert.Equal(t, 2, warnings(), "a fault that comes back is reported again")
		})
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	a, m := newAuthority(t), mount{dir: t.TempDir()}
	_, err := Load(Params{Dir: m.dir})
	require.ErrorContains(t, err, filepath.Join(m.dir, CertificateFile)+": no such file")

	m.issue(t, a, "server")
	_, err = Load(Params{Dir: m.dir, ClientCAFile: filepath.Join(m.dir, "ca.crt")})
	require.ErrorContains(t, err, "ca.crt: no such file")
	_, err = Load(Params{Dir: m.dir, ClientCAFile: filepath.Join(m.dir, KeyFile)})
	require.ErrorContains(t, err, "no certificate in the file of client authorities")

	m.put(t, map[string][]byte{CertificateFile: a.pem(), KeyFile: nil})
	_, err = Load(Params{Dir: m.dir})
	require.ErrorContains(t, err, "use "+m.dir+": ")
}

func TestClientsNeedACertificateOfTheAuthorities(t *testing.T) {
	t.Parallel()
	ours, theirs, m := newAuthority(t), newAuthority(t), mount{dir: t.TempDir()}
	certificate, key := ours.issue(t, "server", x509.ExtKeyUsageServerAuth)
	m.put(t, map[string][]byte{CertificateFile: certificate, KeyFile: key, "ca.crt": ours.pem()})
	s, _ := load(t, Params{Dir: m.dir, ClientCAFile: filepath.Join(m.dir, "ca.crt"), Interval: interval})
	config := s.TLS(Options{})

	_, err := shake(t, config, &tls.Config{})
	require.Error(t, err, "none")
	_, err = shake(t, config, &tls.Config{Certificates: []tls.Certificate{theirs.client(t, x509.ExtKeyUsageClientAuth)}})
	require.ErrorContains(t, err, "verify client certificate", "another's")
	_, err = shake(t, config, &tls.Config{Certificates: []tls.Certificate{ours.client(t, x509.ExtKeyUsageServerAuth)}})
	require.ErrorContains(t, err, "verify client certificate", "not for clients")
	_, err = shake(t, config, &tls.Config{Certificates: []tls.Certificate{ours.client(t, x509.ExtKeyUsageClientAuth)}})
	require.NoError(t, err)

	run(t, s, func() {
		m.put(t, map[string][]byte{CertificateFile: certificate, KeyFile: key, "ca.crt": theirs.pem()})
	})
	_, err = shake(t, config, &tls.Config{Certificates: []tls.Certificate{ours.client(t, x509.ExtKeyUsageClientAuth)}})
	require.ErrorContains(t, err, "verify client certificate", "the authorities are reloaded too")
	_, err = shake(t, config, &tls.Config{Certificates: []tls.Certificate{theirs.client(t, x509.ExtKeyUsageClientAuth)}})
	require.NoError(t, err)
}

// A session that is resumed shows no certificate again, but the one of its beginning is verified again.
func TestResumedSessionsAreVerifiedAgain(t *testing.T) {
	t.Parallel()
	ours, theirs, m := newAuthority(t), newAuthority(t), mount{dir: t.TempDir()}
	certificate, key := ours.issue(t, "server", x509.ExtKeyUsageServerAuth)
	m.put(t, map[string][]byte{CertificateFile: certificate, KeyFile: key, "ca.crt": ours.pem()})
	s, _ := load(t, Params{Dir: m.dir, ClientCAFile: filepath.Join(m.dir, "ca.crt"), Interval: interval})
	config := s.TLS(Options{})
	client := &tls.Config{
		Certificates: []tls.Certificate{ours.client(t, x509.ExtKeyUsageClientAuth)}, ServerName: "server",
		ClientSessionCache: tls.NewLRUClientSessionCache(1), MaxVersion: tls.VersionTLS12, // its tickets come in the handshake
	}
	_, err := shake(t, config, client)
	require.NoError(t, err)
	state, err := shake(t, config, client)
	require.NoError(t, err)
	require.True(t, state.DidResume)

	run(t, s, func() {
		m.put(t, map[string][]byte{CertificateFile: certificate, KeyFile: key, "ca.crt": theirs.pem()})
	})
	_, err = shake(t, config, client)
	require.ErrorContains(t, err, "verify client certificate")
}

func TestSelfSigned(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		give    Options
		version uint16
		wantKey any
	}{
		{name: "TLS 1.2, as Envoy AI Gateway has it", version: tls.VersionTLS12, wantKey: &ecdsa.PublicKey{}},
		{name: "TLS 1.3", version: tls.VersionTLS13, wantKey: &ecdsa.PublicKey{}},
		{
			name: "suites for RSA alone", give: Options{CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}},
			version: tls.VersionTLS12, wantKey: &rsa.PublicKey{},
		},
		{
			name:    "suites for both",
			give:    Options{CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}},
			version: tls.VersionTLS12, wantKey: &ecdsa.PublicKey{},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			s, err := SelfSigned(Params{}, "picker", tt.give, now)
			require.NoError(t, err)
			state, err := shake(t, s.TLS(tt.give), &tls.Config{MinVersion: tt.version, MaxVersion: tt.version}) // no SNI
			require.NoError(t, err)
			assert.Equal(t, tt.version, state.Version)
			assert.Equal(t, "picker", state.PeerCertificates[0].Subject.CommonName)
			assert.IsType(t, tt.wantKey, state.PeerCertificates[0].PublicKey)
			assert.WithinDuration(t, now.Add(selfSignedLifetime), s.Expiry(), time.Second)
		})
	}
}

func TestOldVersionsAreRefused(t *testing.T) {
	t.Parallel()
	s, err := SelfSigned(Params{}, "picker", Options{}, time.Now())
	require.NoError(t, err)
	_, err = shake(t, s.TLS(Options{}), &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	require.ErrorContains(t, err, "unsupported versions", "the default")
	_, err = shake(t, s.TLS(Options{MinVersion: tls.VersionTLS13}), &tls.Config{MaxVersion: tls.VersionTLS12})
	require.ErrorContains(t, err, "unsupported versions")
	_, err = shake(t, s.TLS(Options{CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}), &tls.Config{
		MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384},
	})
	require.ErrorContains(t, err, "no cipher suite supported by both")
}

func TestNamesOfKubernetesComponents(t *testing.T) {
	t.Parallel()
	version, err := ParseVersion("VersionTLS13")
	require.NoError(t, err)
	assert.EqualValues(t, tls.VersionTLS13, version)
	_, err = ParseVersion("1.3")
	require.EqualError(t, err, `"1.3" is not one of VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13`)

	suites, err := ParseCipherSuites([]string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", " TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"})
	require.NoError(t, err)
	assert.Equal(t, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256}, suites)
	_, err = ParseCipherSuites([]string{"AES"})
	require.ErrorContains(t, err, `"AES" is not one of TLS_AES_128_GCM_SHA256, `)
	require.ErrorContains(t, err, "TLS_RSA_WITH_AES_128_CBC_SHA, ", "Kubernetes takes the insecure ones too")
}

// Replicas accept each other by the certificate that they share.
func TestSiblings(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	stored := func() *Store {
		m := &mount{dir: t.TempDir()}
		m.issue(t, a, "picker")
		s, _ := load(t, Params{Dir: m.dir})
		return s
	}
	selfSigned := func() *Store {
		s, err := SelfSigned(Params{Log: zap.NewNop()}, "picker", Options{}, time.Now())
		require.NoError(t, err)
		return s
	}
	one, other := stored(), stored()
	for _, tt := range []struct {
		name           string
		server, client *Store
		ok             bool
	}{
		{"the same files", one, one, true},
		{"other files of the same authority and name", one, other, false},
		{"self-signed", selfSigned(), selfSigned(), true},
		{"self-signed client of a server with files", one, selfSigned(), false},
		{"client with files of a self-signed server", selfSigned(), one, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := shake(t, tt.server.Siblings(Options{}), tt.client.Siblings(Options{}))
			assert.Equal(t, tt.ok, err == nil, "%v", err)
		})
	}
	_, err := shake(t, one.Siblings(Options{}), &tls.Config{})
	assert.Error(t, err, "a client without a certificate")
}
