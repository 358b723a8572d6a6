//go:build system

package httpserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/kubetest"
)

func TestServersListenOnTheirAddresses(t *testing.T) {
	t.Parallel()
	s := New(Params{Options: Options{MetricsAddress: "127.0.0.1:0", HealthAddress: "127.0.0.1:0"}, Gatherer: prometheus.NewRegistry(), Log: zap.NewNop()})
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()

	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: kubetest.Patience}
	for _, url := range []string{"http://" + s.HealthAddress() + "/healthz", "http://" + s.MetricsAddress() + "/metrics"} {
		response, err := client.Get(url)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, 200, response.StatusCode, url)
	}
	cancel()
	require.NoError(t, <-ended)
	_, err := net.DialTimeout("tcp", s.HealthAddress(), kubetest.Patience)
	require.Error(t, err, "Run closes the addresses")
}

func TestListenNamesTheFlagOfAnAddressInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	s := New(Params{Options: Options{MetricsAddress: "127.0.0.1:0", HealthAddress: taken.Addr().String()}, Log: zap.NewNop()})

	err = s.Listen()

	require.ErrorContains(t, err, "listen on --health-probe-bind-address "+taken.Addr().String())
	require.ErrorContains(t, err, "address already in use")
	assert.NotContains(t, err.Error(), "\n")
	_, err = net.DialTimeout("tcp", s.MetricsAddress(), kubetest.Patience)
	require.Error(t, err, "Listen closes the other address")
}
