package yurthub

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

func TestInstall_WritesWhatANodeThatJoinedHas(t *testing.T) {
	t.Parallel()
	node := clusterapi.Node{Name: "edge", Labels: map[string]string{clusterapi.PoolLabel: "east"}, Yurthub: "/bin/yurthub"}
	c := &clusterapi.Config{Dir: t.TempDir(), Images: "/images", Nodes: []clusterapi.Node{{}, node}}
	require.NoError(t, c.Complete())
	require.NoError(t, components.WriteCertificates(c, "127.0.0.1:40000"))
	root := filepath.Join(t.TempDir(), "yurthub")
	require.NoError(t, Install(c, "edge", root))
	for _, name := range []string{"yurthub-current.pem", "yurthub-server-current.pem"} {
		path := filepath.Join(root, "pki", name)
		pair, err := tls.LoadX509KeyPair(path, path)
		require.NoError(t, err)
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		require.NoError(t, err)
		assert.Equal(t, "system:node:edge", leaf.Subject.CommonName)
		assert.ElementsMatch(t, []string{"openyurt:yurthub", "system:nodes"}, leaf.Subject.Organization)
		for _, host := range []string{"127.0.0.1", "10.200.0.12", "10.96.0.1", "kubernetes.default.svc"} {
			require.NoError(t, leaf.VerifyHostname(host), "without it, Yurthub asks for another certificate")
		}
		require.NoError(t, os.WriteFile(path, []byte("rotated"), 0o600))
	}
	assert.FileExists(t, filepath.Join(root, "pki", "ca.crt"))
	assert.FileExists(t, filepath.Join(root, "yurthub.conf"))

	require.NoError(t, Install(c, "edge", root), "the next boot")
	content, err := os.ReadFile(filepath.Join(root, "pki", "yurthub-current.pem"))
	require.NoError(t, err)
	assert.Equal(t, "rotated", string(content), "what Yurthub has replaced stays")
	require.ErrorIs(t, Install(c, "node-1", t.TempDir()), os.ErrNotExist, "a node without Yurthub has no certificate for it")

	args := Args(node, 2, "/root")
	for _, want := range []string{"--node-name=edge", "--nodepool-name=east", "--server-addr=https://10.200.0.1:6443", "--root-dir=/root", "--disk-cache-path=/root/cache"} {
		assert.Contains(t, args, want)
	}
}
