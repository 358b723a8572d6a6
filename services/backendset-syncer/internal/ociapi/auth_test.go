package ociapi

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writeKey writes the files of an API key, and returns its directory.
func writeKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	dir := t.TempDir()
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	for name, content := range map[string]string{
		"tenancy": "t\n", "user": "u", "region": "us-ashburn-1", "fingerprint": "f", "key.pem": string(text),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

func TestKeyDirectory(t *testing.T) {
	t.Parallel()
	dir := writeKey(t)
	synctest.Test(t, func(t *testing.T) {
		o := Options{Auth: APIKey, KeyDirectory: dir}
		p, err := o.newProvider()
		require.NoError(t, err)
		id, err := p.KeyID()
		require.NoError(t, err)
		assert.Equal(t, "t/u/f", id)
		region, err := p.Region()
		require.NoError(t, err)
		assert.Equal(t, "us-ashburn-1", region)

		require.NoError(t, os.WriteFile(filepath.Join(dir, "fingerprint"), []byte("g"), 0o600))
		id, err = p.KeyID()
		require.NoError(t, err)
		assert.Equal(t, "t/u/f", id, "not read yet")
		time.Sleep(keyInterval)
		id, err = p.KeyID()
		require.NoError(t, err)
		assert.Equal(t, "t/u/g", id)

		require.NoError(t, os.Remove(filepath.Join(dir, "key.pem")))
		time.Sleep(keyInterval)
		_, err = p.PrivateRSAKey()
		require.NoError(t, err, "the last key stays in use")
	})
}

func TestKeysThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := writeKey(t)
	o := Options{Auth: APIKey, KeyDirectory: filepath.Join(dir, "missing")}
	_, err := o.newProvider()
	require.ErrorContains(t, err, "read credentials (--oci-auth=api-key): read API key: open")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pem"), []byte("secret text"), 0o600))
	o.KeyDirectory = dir
	_, err = o.newProvider()
	require.ErrorContains(t, err, "not a private key in PEM")
	assert.NotContains(t, err.Error(), "secret text")
	o = Options{Auth: ConfigFile, ConfigFile: filepath.Join(dir, "none")}
	_, err = o.newProvider()
	require.ErrorContains(t, err, "read credentials (--oci-auth=config-file)")
}

func TestConfigFile(t *testing.T) {
	t.Parallel()
	dir := writeKey(t)
	file := filepath.Join(dir, "config")
	require.NoError(t,
		os.WriteFile(file, []byte(
			"[DEFAULT]\nuser=u\ntenancy=t\nregion=eu-frankfurt-1\nfingerprint=f\nkey_file="+filepath.Join(dir, "key.pem")+"\n"), 0o600))
	o := Options{Auth: ConfigFile, ConfigFile: file, Profile: "DEFAULT"}
	p, err := o.newProvider()
	require.NoError(t, err)
	region, err := p.Region()
	require.NoError(t, err)
	assert.Equal(t, "eu-frankfurt-1", region)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	require.NoError(t, o.Validate())
	for endpoint, valid := range map[string]bool{
		"https://iaas.us-ashburn-1.oraclecloud.com": true, "http://127.0.0.1:1": true, "http://a/": true, "ftp://a": false, "a": false,
		"https://a/b": false, "https://u@a": false, "https://a?b": false,
	} {
		o.Endpoint = endpoint
		assert.Equal(t, valid, o.Validate() == nil, endpoint)
	}
	o = Options{Auth: "magic", Rate: 0.1}
	err := o.Validate()
	require.ErrorContains(t, err, `--oci-auth "magic" is not one of api-key`)
	require.ErrorContains(t, err, "--oci-requests-per-second")
}
