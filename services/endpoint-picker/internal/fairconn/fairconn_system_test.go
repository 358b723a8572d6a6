//go:build system

package fairconn

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/fairshare"
)

// TestHTTP2OverTLS counts as TestHTTP2 does: the connection of a request is that within TLS.
func TestHTTP2OverTLS(t *testing.T) {
	t.Parallel()
	r := newRig(0)
	s := httptest.NewUnstartedServer(r.server.Handler)
	s.Config.ConnContext = Context
	s.Listener, s.EnableHTTP2 = r.Gate.Listener(s.Listener), true
	s.StartTLS()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	r.assertWindowCounts(t, client, s.URL)
	client.CloseIdleConnections()
	s.Close()
	require.Eventually(t, func() bool { return r.Open() == 0 && r.ledger.Total(fairshare.Bytes) == 0 }, kubetest.Patience, time.Millisecond)
}
