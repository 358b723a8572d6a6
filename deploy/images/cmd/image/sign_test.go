package main

import (
	"crypto/elliptic"
	"os"
	"path/filepath"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keyPair returns the private and the public key. The password may be nil.
func keyPair(t *testing.T, password []byte) (string, string) {
	t.Helper()
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc(password))
	require.NoError(t, err)
	return string(private), string(public)
}

func TestSign_WritesThePublicKey(t *testing.T) {
	private, public := keyPair(t, []byte("secret"))
	plain, plainPublic := keyPair(t, nil)
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(plain), 0o600))
	tests := []struct {
		name, key, password string
		want                string
	}{
		{name: "the key", key: private, password: "secret", want: public},
		{name: "its file, without a password", key: file, want: plainPublic},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(keyVariable, tt.key)
			t.Setenv(passwordVariable, tt.password)
			out := filepath.Join(t.TempDir(), "cosign.pub")
			_, err := execute(t, "sign", "--public-key="+out)
			require.NoError(t, err)
			got, err := os.ReadFile(out)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got))
		})
	}
}

func TestSign_Refuses(t *testing.T) {
	private, _ := keyPair(t, []byte("secret"))
	plain, _ := keyPair(t, nil)
	tests := []struct {
		name, key string
		want      string
	}{
		{name: "empty", key: "", want: "COSIGN_PRIVATE_KEY is empty: give it the private key, or unset it to sign nothing"},
		{name: "a key without its first line", key: "c2VjcmV0", want: "COSIGN_PRIVATE_KEY is neither a key in PEM nor the file of one: no such file or directory"},
		{name: "another password", key: private, want: "COSIGN_PRIVATE_KEY, with the password in COSIGN_PASSWORD: read private key: "},
		{name: "a certificate", key: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", want: "unknown private key PEM file type: CERTIFICATE"},
		{name: "a tag", key: plain, want: "sign registry.example/app:v1.2.3: want a reference by digest"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(keyVariable, tt.key)
			t.Setenv(passwordVariable, "")
			_, err := execute(t, "sign", "registry.example/app:v1.2.3")
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "c2VjcmV0")
		})
	}
}

func TestSign_WithoutAKeySaysSo(t *testing.T) {
	t.Setenv(keyVariable, "") // restores it
	require.NoError(t, os.Unsetenv(keyVariable))
	out, err := execute(t, "sign", "registry.example/app@sha256:0")
	require.NoError(t, err)
	assert.Equal(t, "image: COSIGN_PRIVATE_KEY is not set: signed nothing\n", out)
}
