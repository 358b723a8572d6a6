package signature

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const keyID = "tenancy/user/fingerprint"

// signed returns a request with a body as the SDK sends it.
func signed(t *testing.T, key *rsa.PrivateKey, method, body string) *http.Request {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	provider := common.NewRawConfigurationProvider("tenancy", "user", "us-ashburn-1", "fingerprint", string(text), nil)
	r, err := http.NewRequestWithContext(t.Context(), method, "http://lb.test/20170115/loadBalancers/a?x=1", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Length", "0")
	if body != "" {
		r.Header.Set("Content-Length", "")
		r.Header.Del("Content-Length")
	}
	require.NoError(t, common.DefaultRequestSigner(provider).Sign(r))
	r.RequestURI = r.URL.RequestURI() // as a server has it
	return r
}

func TestVerify(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	tests := []struct {
		name   string
		method string
		body   string
		change func(r *http.Request)
		key    *rsa.PublicKey
		now    time.Duration
		want   string // empty if the signature is valid
	}{
		{name: "read", method: http.MethodGet},
		{name: "write", method: http.MethodPut, body: `{"a": 1}`},
		{name: "no header", method: http.MethodGet, change: func(r *http.Request) { r.Header.Del("Authorization") }, want: "missing or of another scheme"},
		{name: "another scheme", method: http.MethodGet, change: func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, want: "another scheme"},
		{name: "malformed", method: http.MethodGet, change: func(r *http.Request) { r.Header.Set("Authorization", "Signature version=1") }, want: "malformed field"},
		{name: "another path", method: http.MethodGet, change: func(r *http.Request) { r.RequestURI += "/health" }, want: "does not match"},
		{name: "another method", method: http.MethodGet, change: func(r *http.Request) { r.Method = http.MethodDelete }, want: "does not match"},
		{name: "another host", method: http.MethodGet, change: func(r *http.Request) { r.Host = "other.test" }, want: "does not match"},
		{name: "read as a write", method: http.MethodGet, change: func(r *http.Request) { r.Method = http.MethodPut }, want: "content-length is not signed"},
		{name: "another key", method: http.MethodGet, key: &other.PublicKey, want: "does not match"},
		{name: "unknown key", method: http.MethodGet, change: func(r *http.Request) {
			r.Header.Set("Authorization", strings.ReplaceAll(r.Header.Get("Authorization"), "fingerprint", "stranger"))
		}, want: `key "tenancy/user/stranger" is unknown`},
		{name: "slow clock", method: http.MethodGet, now: 6 * time.Minute, want: "the clock of the client is wrong by"},
		{name: "fast clock", method: http.MethodGet, now: -6 * time.Minute, want: "the clock of the client is wrong by"},
		{name: "a little slow", method: http.MethodGet, now: 4 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := signed(t, key, tt.method, tt.body)
			if tt.change != nil {
				tt.change(r)
			}
			v := &Verifier{Skew: 5 * time.Minute, Now: func() time.Time { return time.Now().Add(tt.now) }, Key: func(id string) *rsa.PublicKey {
				switch {
				case id != keyID:
					return nil
				case tt.key != nil:
					return tt.key
				}
				return &key.PublicKey
			}}
			err := v.Verify(r, []byte(tt.body))
			if tt.want != "" {
				assert.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestVerifyComparesTheBody(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	v := &Verifier{Skew: 5 * time.Minute, Now: time.Now, Key: func(string) *rsa.PublicKey { return &key.PublicKey }}
	r := signed(t, key, http.MethodPut, `{"a": 1}`)
	require.ErrorContains(t, v.Verify(r, []byte(`{"a": 2}`)), "x-content-sha256 does not match the body")
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	assert.True(t, bytes.Equal([]byte(`{"a": 1}`), body))
}

// Any header is refused or parsed, and never panics.
func FuzzParse(f *testing.F) {
	f.Add(`Signature version="1",headers="date (request-target) host",keyId="a/b/c",algorithm="rsa-sha256",signature="AA=="`)
	f.Add(`Signature version="1"`)
	f.Add("Signature ,=,")
	f.Fuzz(func(t *testing.T, header string) {
		if p, err := parse(header); err == nil && p == nil {
			t.Error("neither parameters nor an error")
		}
	})
}
