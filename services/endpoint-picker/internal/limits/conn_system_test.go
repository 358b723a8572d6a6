//go:build system

package limits

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
)

// overTLS serves over TLS, until the test ends, when nothing may be counted anymore. It returns the address.
func overTLS(t *testing.T) (r *rig, address string) {
	t.Helper()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	config := certificate.TLS
	certificate.Close()
	r = newRig(0, config)
	require.NoError(t, r.OpenListener())
	go func() { _ = r.Run() }()
	t.Cleanup(func() {
		r.Close()
		require.Eventually(t, func() bool { return r.OpenConns() == 0 && r.ledger.TotalUse(Bytes) == 0 }, kubetest.Patience,
			time.Millisecond)
	})
	return r, r.ListenAddress()
}

// TestHTTP2OverTLS counts as TestHTTP2 does: the connection of a request is that within TLS.
func TestHTTP2OverTLS(t *testing.T) {
	t.Parallel()
	r, address := overTLS(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	r.assertWindowCounts(t, client, "https://"+address)
	client.CloseIdleConnections()
}

// TestFramingOverTLS checks that the server answers 400 to a malformed request over TLS, as it does in plaintext.
func TestFramingOverTLS(t *testing.T) {
	t.Parallel()
	_, address := overTLS(t)
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	require.NoError(t, err)
	text, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Contains(t, string(text), "HTTP/1.1 400 Bad Request")
}

// TestPlaintextForTLS answers clients that do not speak TLS.
func TestPlaintextForTLS(t *testing.T) {
	t.Parallel()
	_, address := overTLS(t)
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	require.NoError(t, err)
	text, _ := io.ReadAll(c) // the server may reset the connection
	assert.Contains(t, string(text), "an HTTP request to an HTTPS server")
}
