//go:build system

package readinessgate

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zapobserver "go.uber.org/zap/zaptest/observer"

	"fairlead.dev/pkg/kubetest"
)

// TestWebhookAtASocket asks a webhook at a port that the system chose.
func TestWebhookAtASocket(t *testing.T) {
	t.Parallel()
	core, logs := zapobserver.New(zap.InfoLevel)
	dir := t.TempDir()
	pool := writeCertificate(t, dir)
	w := newWebhook(t, dir)
	w.log = zap.New(core)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	require.Eventually(t, func() bool { return logs.FilterMessage("Serving webhook").Len() > 0 }, kubetest.Patience, time.Millisecond)
	address := logs.FilterMessage("Serving webhook").All()[0].ContextMap()["address"]
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}}
	response, err := client.Post(fmt.Sprintf("https://%s%s", address, webhookPath), "application/json",
		strings.NewReader(`{"request":{"uid":"7","object":{"spec":{}}}}`))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)
	cancel()
	<-ended
}
