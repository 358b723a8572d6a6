package credentials

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadKeepsCredentials(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "private")
	first, err := Load(dir)
	require.NoError(t, err)
	second, err := Load(dir)
	require.NoError(t, err)
	assert.Equal(t, first.Token, second.Token)
	assert.Equal(t, first.CA, second.CA)
	info, err := os.Stat(filepath.Join(dir, keyFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(first.CA))
	leaf, err := x509.ParseCertificate(second.Certificate.Certificate[0])
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "kubernetes.default.svc"} {
		for _, now := range []time.Time{{}, time.Unix(0, 0)} { // now, and the clock of a node without a battery after a reboot
			_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now})
			require.NoError(t, err, host)
		}
	}
}

func TestLoadReplacesDamagedCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, err := Load(dir)
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(dir, keyFile))
	require.NoError(t, err)
	for _, damaged := range [][]byte{nil, raw[:len(raw)/2], raw[:len(raw)-8], []byte("x")} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, keyFile), damaged, 0o600))
		c, err := Load(dir)
		require.NoError(t, err)
		assert.NotEqual(t, good.Token, c.Token)
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	c, err := Load("")
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "mounted")
	for range 2 {
		require.NoError(t, c.WriteFiles(dir, "ns"))
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	assert.Equal(t, []string{"ca.crt", "namespace", "token"}, names, "no private key, nothing left over")
	namespace, err := ReadNamespace(filepath.Join(dir, "namespace"))
	require.NoError(t, err)
	assert.Equal(t, "ns", namespace)
	_, err = ReadNamespace(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
