//go:build system

package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/addressfile"
	"fairlead.dev/pkg/kubetest"
)

func TestRunNeedsItsPort(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	cfg := testConfig()
	cfg.Port = l.Addr().(*net.TCPAddr).Port
	require.ErrorContains(t, Run(t.Context(), cfg, zap.NewNop()), "listen: ")
}

func TestRunSaysWhereItListens(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Port, cfg.DrainDelay, cfg.AddressFile = 0, 0, filepath.Join(t.TempDir(), "addresses.json")
	ctx, terminate := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, zap.NewNop()) }()
	t.Cleanup(func() {
		terminate()
		require.NoError(t, <-ended)
	})
	var bound map[string]string
	require.Eventually(t, func() bool {
		var err error
		bound, err = addressfile.Read(cfg.AddressFile)
		return err == nil
	}, kubetest.Patience, time.Millisecond)
	require.Len(t, bound, 1)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+bound["http"]+"/version", http.NoBody)
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)
}

func TestRunNeedsItsAddressFile(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Port, cfg.AddressFile = 0, filepath.Join(t.TempDir(), "absent", "addresses.json")
	require.ErrorContains(t, Run(t.Context(), cfg, zap.NewNop()), "write addresses: ")
}
