package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func newCA(t *testing.T) *CA {
	t.Helper()
	ca, err := New(t.TempDir())
	require.NoError(t, err)
	return ca
}

// issue makes a leaf and reads certificate and key back from their files.
func issue(t *testing.T, ca *CA, l Leaf) tls.Certificate {
	t.Helper()
	require.NoError(t, ca.Issue(l))
	return readPair(t, ca, l.Name)
}

func readPair(t *testing.T, ca *CA, name string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(ca.path(name+".crt"), ca.path(name+".key")) // refuses a key of another certificate
	require.NoError(t, err)
	return pair
}

func readPool(t *testing.T, ca *CA) *x509.CertPool {
	t.Helper()
	raw, err := os.ReadFile(ca.path("ca.crt"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(raw))
	return pool
}

func readKey(t *testing.T, file string) *ecdsa.PrivateKey {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	block, rest := pem.Decode(raw)
	require.NotNil(t, block)
	require.Empty(t, rest)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	require.NoError(t, err)
	return key
}

func TestNew_MakesACAThatMaySignAndLastsAYear(t *testing.T) {
	t.Parallel()
	before := time.Now()
	ca := newCA(t)
	cert := readPair(t, ca, "ca").Leaf
	assert.True(t, cert.IsCA)
	assert.Equal(t, "localkube-ca", cert.Subject.CommonName)
	assert.NotZero(t, cert.KeyUsage&x509.KeyUsageCertSign)
	require.NoError(t, cert.CheckSignatureFrom(cert))
	assertYear(t, cert, before)
}

// assertYear wants a certificate that was good when the test began and ends a year later.
func assertYear(t *testing.T, cert *x509.Certificate, before time.Time) {
	t.Helper()
	assert.True(t, cert.NotBefore.Before(before.Add(-time.Minute)), "clocks differ a little")
	year := before.AddDate(0, 0, 365)
	assert.WithinRange(t, cert.NotAfter, year.Truncate(time.Second), time.Now().AddDate(0, 0, 365))
}

func TestIssue_MakesALeafForClientsAndServers(t *testing.T) {
	t.Parallel()
	before := time.Now()
	ca := newCA(t)
	leaf := issue(t, ca, Leaf{Name: "web", CommonName: "system:web", Groups: []string{"a", "b"}, Hosts: []string{"10.0.0.1", "web.default.svc", "fd00::1"}}).Leaf

	assert.Equal(t, "system:web", leaf.Subject.CommonName)
	assert.Equal(t, []string{"a", "b"}, leaf.Subject.Organization)
	assert.Equal(t, []string{"web.default.svc"}, leaf.DNSNames)
	require.Len(t, leaf.IPAddresses, 2)
	assert.True(t, leaf.IPAddresses[0].Equal(net.IPv4(10, 0, 0, 1)))
	assert.True(t, leaf.IPAddresses[1].Equal(net.ParseIP("fd00::1")))
	assert.False(t, leaf.IsCA)
	assert.Equal(t, x509.KeyUsageDigitalSignature, leaf.KeyUsage)
	assertYear(t, leaf, before)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: readPool(t, ca), KeyUsages: []x509.ExtKeyUsage{usage}})
		require.NoError(t, err)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: readPool(t, ca), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}})
	assert.Error(t, err)
}

func TestIssue_IsTrustedByItsOwnCAOnly(t *testing.T) {
	t.Parallel()
	ca, other := newCA(t), newCA(t) // of one name
	leaf := issue(t, ca, Leaf{Name: "web", CommonName: "web"}).Leaf
	_, err := leaf.Verify(x509.VerifyOptions{Roots: readPool(t, other)})
	require.Error(t, err)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: readPool(t, ca)})
	require.NoError(t, err)
}

func TestIssue_GivesEachItsOwnKeyAndNumber(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	numbers, keys := map[string]bool{}, map[string]bool{}
	for _, name := range []string{"a", "b", "b", "c"} { // the second b is a renewal
		leaf := issue(t, ca, Leaf{Name: name, CommonName: "same"}).Leaf
		numbers[leaf.SerialNumber.String()] = true
		keys[string(leaf.RawSubjectPublicKeyInfo)] = true
	}
	assert.Len(t, numbers, 4)
	assert.Len(t, keys, 4)
}

func TestKeys_AreP256AndTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	require.NoError(t, ca.Key("sa.key"))
	require.NoError(t, ca.Kubeconfig(User{Leaf: Leaf{Name: "admin", CommonName: "admin"}, Server: "https://127.0.0.1:1"}))
	for _, name := range []string{"ca.key", "sa.key", "admin.key"} {
		assert.Equal(t, elliptic.P256(), readKey(t, ca.path(name)).Curve, name)
	}
	for _, name := range []string{"ca.key", "sa.key", "admin.key", "admin.kubeconfig"} {
		info, err := os.Stat(ca.path(name))
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), name)
	}
	assert.NoFileExists(t, ca.path("sa.crt"))
}

func TestKubeconfig_HoldsAllThatIsNeededToBeLetIn(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	users := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		users <- subject.CommonName + " of " + subject.Organization[0]
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"gitVersion": "v1.37.0"}`))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{issue(t, ca, Leaf{Name: "server", CommonName: "server", Hosts: []string{"127.0.0.1"}})},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: readPool(t, ca)}
	server.StartTLS()
	defer server.Close()
	require.NoError(t, ca.Kubeconfig(User{Leaf: Leaf{Name: "who", CommonName: "system:who", Groups: []string{"readers"}}, Server: server.URL}))

	elsewhere := filepath.Join(t.TempDir(), "copy") // nothing beside the file is needed
	require.NoError(t, os.Rename(ca.path("who.kubeconfig"), elsewhere))
	require.NoError(t, os.RemoveAll(ca.dir))
	cfg, err := clientcmd.BuildConfigFromFlags("", elsewhere)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	version, err := client.Discovery().ServerVersion()
	require.NoError(t, err)
	assert.Equal(t, "v1.37.0", version.GitVersion)
	assert.Equal(t, "system:who of readers", <-users)
}

func TestCA_SaysWhichFileItCouldNotWrite(t *testing.T) {
	t.Parallel()
	_, err := New(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "ca.crt")

	tests := []struct {
		name, taken string
		do          func(ca *CA) error
	}{
		{name: "a certificate", taken: "web.crt", do: func(ca *CA) error { return ca.Issue(Leaf{Name: "web"}) }},
		{name: "its key", taken: "web.key", do: func(ca *CA) error { return ca.Issue(Leaf{Name: "web"}) }},
		{name: "a key", taken: "sa.key", do: func(ca *CA) error { return ca.Key("sa.key") }},
		{name: "a user's certificate", taken: "who.crt", do: func(ca *CA) error { return ca.Kubeconfig(User{Leaf: Leaf{Name: "who"}}) }},
		{name: "a kubeconfig", taken: "who.kubeconfig", do: func(ca *CA) error { return ca.Kubeconfig(User{Leaf: Leaf{Name: "who"}}) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ca := newCA(t)
			require.NoError(t, os.Mkdir(ca.path(tt.taken), 0o700))
			assert.ErrorContains(t, tt.do(ca), tt.taken)
		})
	}
}
