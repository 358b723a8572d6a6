//go:build system

package holds

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// TestSockets follows a picker over TCP, and again after its connections broke.
func TestSockets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	texts := make(chan string, 9)
	server := httptest.NewServer(lines(texts))
	defer server.Close()
	host, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	w.endpoints.set(t, strings.Replace(slice("ns", host), "9090", port, 1))
	w.follower.p.Dial = nil
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.follower.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	w.follower.WatchModels([]snapshot.ModelKey{llama})
	waits := func(number int) {
		require.Eventually(t, func() bool {
			now, watched := w.waiting(llama)
			return watched == (number > 0) && now == number
		}, kubetest.Patience, 10*time.Millisecond)
	}
	texts <- says(pool, "llama", 2)
	waits(2)
	server.CloseClientConnections()
	waits(0)
	require.Eventually(t, func() bool { // the stream that was closed may take some
		select {
		case texts <- says(pool, "llama", 4):
		default:
		}
		now, _ := w.waiting(llama)
		return now == 4
	}, kubetest.Patience, 10*time.Millisecond)
}

// TestCertificates: with authorities, the certificate must be for the Service of the picker. Those of httptest are for example.com.
func TestCertificates(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	authorities := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(authorities, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	get := func(caFile, name string) error {
		o, p := Options{CAFile: caFile}, picker{namespace: "ns", service: "epp", address: server.Listener.Addr().String(), tls: true}
		client, err := o.newClient(p)
		require.NoError(t, err)
		defer client.CloseIdleConnections()
		if transport, ok := client.Transport.(*http.Transport); ok && name != "" {
			transport.TLSClientConfig.ServerName = name
		}
		request, err := o.newRequest(t.Context(), p, streamPath)
		require.NoError(t, err)
		response, err := client.Do(request)
		if err == nil {
			require.NoError(t, response.Body.Close())
		}
		return err
	}
	require.NoError(t, get("", ""), "without authorities, any certificate is accepted")
	require.NoError(t, get(authorities, "example.com"))
	assert.ErrorContains(t, get(authorities, ""), "not epp.ns.svc")
}
