package components

import (
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/pkg/kubetest/clusterapi"
)

// issued makes the certificates of a cluster with two nodes.
func issued(t *testing.T, apiAddress string) *clusterapi.Config {
	t.Helper()
	c := &clusterapi.Config{Dir: t.TempDir(), Images: "/images", Audit: true, Nodes: []clusterapi.Node{{}, {Name: "gpu"}}}
	require.NoError(t, c.Complete())
	require.NoError(t, WriteCertificates(c, apiAddress))
	return c
}

// readCertificate returns the only certificate of a PEM file.
func readCertificate(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	block, rest := pem.Decode(raw)
	require.NotNil(t, block, file)
	require.Empty(t, rest, file)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert
}

// san are all names that a certificate serves.
func san(c *x509.Certificate) []string {
	names := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

func TestWriteCertificates_SubjectsAreWhatKubernetesReads(t *testing.T) {
	t.Parallel()
	c := issued(t, "127.0.0.1:40000")
	pool := x509.NewCertPool()
	pool.AddCert(readCertificate(t, filepath.Join(PKIDir(c.Dir), "ca.crt")))
	masters, nodes := []string{"system:masters"}, []string{"system:nodes"}
	tests := []struct {
		name, wantCN string
		wantO        []string
		wantHosts    []string
		usage        x509.ExtKeyUsage
	}{
		{name: "apiserver", wantCN: "kube-apiserver", usage: x509.ExtKeyUsageServerAuth, wantHosts: []string{"10.200.0.1", "10.96.0.1", "127.0.0.1",
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}},
		{name: "apiserver-kubelet", wantCN: "kube-apiserver-kubelet-client", wantO: masters, usage: x509.ExtKeyUsageClientAuth},
		{name: "front-proxy", wantCN: "front-proxy", usage: x509.ExtKeyUsageClientAuth},
		{name: "admin", wantCN: "admin", wantO: masters, usage: x509.ExtKeyUsageClientAuth},
		{name: "localkube", wantCN: "localkube", wantO: masters, usage: x509.ExtKeyUsageClientAuth},
		{name: "controller-manager", wantCN: "system:kube-controller-manager", usage: x509.ExtKeyUsageClientAuth},
		{name: "scheduler", wantCN: "system:kube-scheduler", usage: x509.ExtKeyUsageClientAuth},
		{name: "node-proxy", wantCN: "system:kube-proxy", usage: x509.ExtKeyUsageClientAuth},
		{name: "kubelet-node-1", wantCN: "system:node:node-1", wantO: nodes, wantHosts: []string{"10.200.0.11", "node-1"}, usage: x509.ExtKeyUsageServerAuth},
		{name: "kubelet-gpu", wantCN: "system:node:gpu", wantO: nodes, wantHosts: []string{"10.200.0.12", "gpu"}, usage: x509.ExtKeyUsageServerAuth},
		{name: "node-1", wantCN: "system:node:node-1", wantO: nodes, usage: x509.ExtKeyUsageClientAuth},
		{name: "gpu", wantCN: "system:node:gpu", wantO: nodes, usage: x509.ExtKeyUsageClientAuth},
	}
	want := []string{filepath.Join(PKIDir(c.Dir), "ca.crt")}
	for _, tt := range tests {
		file := filepath.Join(PKIDir(c.Dir), tt.name+".crt")
		want = append(want, file)
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cert := readCertificate(t, file)
			_, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{tt.usage}})
			require.NoError(t, err)
			assert.Equal(t, tt.wantCN, cert.Subject.CommonName)
			assert.Equal(t, tt.wantO, cert.Subject.Organization)
			assert.ElementsMatch(t, tt.wantHosts, san(cert))
		})
	}
	all, err := filepath.Glob(filepath.Join(PKIDir(c.Dir), "*.crt"))
	require.NoError(t, err)
	assert.ElementsMatch(t, want, all, "a certificate that no row knows")
}

func TestWriteCertificates_KubeconfigsLeadToTheAddressOfTheirPlace(t *testing.T) {
	t.Parallel()
	c := issued(t, "127.0.0.1:40000")
	inner := "https://10.200.0.1:6443"
	tests := []struct{ name, want string }{
		{name: UserAdmin, want: "https://127.0.0.1:40000"},
		{name: UserControl, want: inner},
		{name: UserProxy, want: inner},
		{name: "controller-manager", want: inner},
		{name: "scheduler", want: inner},
		{name: "node-1", want: inner},
		{name: "gpu", want: inner},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(c.Dir, tt.name))
			require.NoError(t, err)
			assert.Equal(t, tt.want, cfg.Host)
			assert.False(t, cfg.Insecure)
		})
	}
	assert.Equal(t, clusterapi.KubeconfigFile(c.Dir), Kubeconfig(c.Dir, UserAdmin), "as others look for it")
}

func TestWriteCertificates_TheServersCertificateIsGoodForEveryHostAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:40000", "0.0.0.0:40000", "192.0.2.7:6443"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			c := issued(t, address)
			cert := readCertificate(t, filepath.Join(PKIDir(c.Dir), "apiserver.crt"))
			cfg, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(c.Dir, UserAdmin))
			require.NoError(t, err)
			u, err := url.Parse(cfg.Host)
			require.NoError(t, err)
			require.NoError(t, cert.VerifyHostname(u.Hostname()))
			require.NoError(t, cert.VerifyHostname("10.200.0.1"), "inside")
		})
	}
}

func TestWriteCertificates_SecretsAreTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	c := issued(t, "127.0.0.1:40000")
	folder, err := os.Stat(PKIDir(c.Dir))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), folder.Mode().Perm())
	entries, err := os.ReadDir(PKIDir(c.Dir))
	require.NoError(t, err)
	secrets := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".crt") {
			continue
		}
		secrets++
		info, err := e.Info()
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), e.Name())
	}
	assert.Equal(t, 14+7, secrets, "keys: CA, service accounts, 12 certificates; kubeconfigs: 7 users")
}

func TestWriteCertificates_MakesEveryFileThatTheCommandLinesName(t *testing.T) {
	t.Parallel()
	c := issued(t, "127.0.0.1:40000")
	named := 0
	for _, name := range Control(c) {
		for _, arg := range Args(c, name) {
			_, file, _ := strings.Cut(arg, "=")
			if strings.HasPrefix(file, PKIDir(c.Dir)) {
				named++
				assert.FileExists(t, file, "%s %s", name, arg)
			}
		}
	}
	assert.Positive(t, named)
}

func TestWriteCertificates_SaysWhichFileItCouldNotWrite(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, taken, want string }{
		{name: "the folder", taken: "", want: "pki: not a directory"},
		{name: "the CA", taken: "ca.crt", want: "ca.crt: is a directory"},
		{name: "the service accounts' key", taken: "sa.key", want: "sa.key: is a directory"},
		{name: "a certificate", taken: "front-proxy.key", want: "issue certificate front-proxy: "},
		{name: "a kubeconfig", taken: "admin.kubeconfig", want: "write kubeconfig of admin: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &clusterapi.Config{Dir: t.TempDir(), ControlPlaneOnly: true}
			require.NoError(t, c.Complete())
			if tt.taken == "" {
				require.NoError(t, os.WriteFile(PKIDir(c.Dir), nil, 0o600))
			} else {
				require.NoError(t, os.MkdirAll(filepath.Join(PKIDir(c.Dir), tt.taken), 0o700))
			}
			assert.ErrorContains(t, WriteCertificates(c, "127.0.0.1:40000"), tt.want)
		})
	}
}
