package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/pkg/memnet"
)

func TestServe(t *testing.T) {
	t.Parallel()
	e := ocilb.New(ocilb.DefaultOptions())
	e.Create("ocid1.loadbalancer.oc1..a", "compartment", "a")
	l := memnet.Listen()
	client := http.Client{Transport: &http.Transport{DialContext: l.Dial}}
	t.Cleanup(client.CloseIdleConnections)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, e) }()
	for path, status := range map[string]int{
		"/20170115/loadBalancers/ocid1.loadbalancer.oc1..a": http.StatusOK, "/20170115/loadBalancers/b": http.StatusNotFound, "/_emu/idle": http.StatusNoContent,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://ocilb"+path, http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, response.Body)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, status, response.StatusCode, path)
	}
	cancel()
	require.NoError(t, <-ended)
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		give []string
		want string
	}{
		{give: []string{"--modes={"}, want: "parse --modes"},
		{give: []string{`--modes={"latency": "long"}`}, want: "parse --modes"},
		{give: []string{`--modes={"concurency": "busy"}`}, want: `unknown field "concurency"`},
		{give: []string{`--modes={"concurrency": "fast"}`}, want: `concurrency is "fast": give queue, parallel, busy or conflict`},
		{give: []string{`--modes={"etagChange": "never"}`}, want: `etagChange is "never": give completion, acceptance or both`},
		{give: []string{"--key=a=/none"}, want: "read key"},
	} {
		assert.ErrorContains(t, run(t.Context(), tt.give), tt.want)
	}
}

func TestReadKey(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	got, err := readKey(file)
	require.NoError(t, err)
	assert.True(t, key.PublicKey.Equal(got))

	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	_, err = readKey(file)
	assert.ErrorContains(t, err, "has no PEM block")
}
