package holds

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestToken: only a picker whose certificate is verified gets the token.
func TestToken(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	for _, tt := range []struct {
		name   string
		tls    bool
		caFile string
		want   string
	}{
		{"http", false, "ca.crt", ""},
		{"any certificate", true, "", ""},
		{"a certificate of an authority", true, "ca.crt", "Bearer secret"},
	} {
		o := Options{TokenFile: token, CAFile: tt.caFile}
		request, err := o.newRequest(t.Context(), picker{namespace: "ns", service: "epp", address: "10.0.0.1:9090", tls: tt.tls}, streamPath)
		require.NoError(t, err)
		assert.Equal(t, tt.want, request.Header.Get("Authorization"), tt.name)
		assert.Equal(t, map[bool]string{false: "http", true: "https"}[tt.tls], request.URL.Scheme)
	}
	o := Options{TokenFile: token + "-2", CAFile: "ca.crt"}
	_, err := o.newRequest(t.Context(), picker{address: "10.0.0.1:9090", tls: true}, streamPath)
	require.ErrorContains(t, err, "check --holds-token-file")
}

func TestAuthorities(t *testing.T) {
	t.Parallel()
	verifies := func(o *Options) bool {
		client, err := o.newClient(picker{namespace: "ns", service: "epp"})
		require.NoError(t, err)
		transport, ok := client.Transport.(*http.Transport)
		require.True(t, ok)
		assert.Equal(t, "epp.ns.svc", transport.TLSClientConfig.ServerName)
		return !transport.TLSClientConfig.InsecureSkipVerify
	}
	assert.False(t, verifies(&Options{}))
	invalid := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(invalid, []byte("no certificate"), 0o600))
	_, err := (&Options{CAFile: invalid}).newClient(picker{})
	require.ErrorContains(t, err, "contains no certificate in PEM")
	_, err = (&Options{CAFile: invalid + "-2"}).newClient(picker{})
	require.ErrorContains(t, err, "check --holds-ca-file")
}
