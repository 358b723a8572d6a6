//go:build system

package responder

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zapobserver "go.uber.org/zap/zaptest/observer"

	"fairlead.dev/pkg/kubetest"
)

// TestSockets asks a server at a port that the system chose.
func TestSockets(t *testing.T) {
	t.Parallel()
	core, logs := zapobserver.New(zap.InfoLevel)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := New(Options{NotFound: "127.0.0.1:0"}, &meter{answered: map[int]int{}}, zap.New(core))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	serving := func() *zapobserver.ObservedLogs {
		return logs.FilterMessage("Serving answers of requests without backends")
	}
	require.Eventually(t, func() bool { return serving().Len() > 0 }, kubetest.Patience, time.Millisecond)
	address := serving().All()[0].ContextMap()["address"]
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(fmt.Sprintf("http://%s/", address))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusNotFound, response.StatusCode)
	cancel()
	<-ended
}
