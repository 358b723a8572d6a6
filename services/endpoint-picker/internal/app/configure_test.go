package app

import (
	"context"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"

	"fairlead.dev/pkg/servingcert"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
)

const head = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

func TestLoadConfiguration(t *testing.T) {
	t.Parallel()
	const discovery = head + `
plugins: [{type: file-discovery, parameters: {path: /etc/endpoints.yaml, watchFile: false}}]
dataLayer: {discovery: {pluginRef: file-discovery}}`
	tests := []struct {
		name       string
		give       func(c *config.Config)
		wantLoaded bool
		want       string // the file
		wantErr    string
	}{
		{name: "no source", give: func(*config.Config) {}},
		{name: "a flag names the pool", give: func(c *config.Config) { c.Pool.Name.Name, c.Plugins.Text = "pool", discovery }, wantLoaded: true},
		{name: "text", give: func(c *config.Config) { c.Plugins.Text = discovery }, wantLoaded: true, want: "/etc/endpoints.yaml"},
		{
			name: "no discovery", give: func(c *config.Config) { c.Plugins.Text = head },
			wantErr: "configuration of plugins: --config-text: it has no file-discovery, and the flags name no pool: give one of both",
		},
		{name: "no file", give: func(c *config.Config) { c.Plugins.File = "/nowhere" }, wantErr: "read --config-file /nowhere: configuration of plugins: open /nowhere: no such file or directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := config.Default()
			tt.give(c)
			loaded, err := loadConfiguration(t.Context(), c)
			if tt.wantErr != "" {
				require.EqualError(t, err, tt.wantErr)
				require.ErrorIs(t, err, reload.ErrUnusable)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.wantLoaded, loaded != nil)
			assert.Equal(t, tt.want, c.Pool.File)
			assert.Equal(t, tt.want != "", c.Pool.Once)
			assert.Equal(t, tt.want == "", c.Metrics.Auth, "without a cluster no one can authenticate")
		})
	}
}

func TestOptionsOfConfigurations(t *testing.T) {
	t.Parallel()
	c := config.Default()
	assert.False(t, configOptions(c).EndpointsGiven)
	require.NoError(t, c.UseFile("/etc/endpoints.yaml", false))
	assert.False(t, configOptions(c).EndpointsGiven, "the configuration names the file")
	c = config.Default()
	c.Pool.File = "/etc/endpoints.yaml"
	assert.True(t, configOptions(c).EndpointsGiven)
	assert.Empty(t, configOptions(c).DefaultEngine)
	c.DefaultEngine = "sglang"
	assert.Equal(t, "sglang", configOptions(c).DefaultEngine)
}

// writeAuthority writes a new certificate authority to a file.
func writeAuthority(t *testing.T, path string) {
	t.Helper()
	s, err := servingcert.SelfSigned(servingcert.Params{Log: zap.NewNop()}, "authority", servingcert.Options{}, time.Now())
	require.NoError(t, err)
	c, err := s.TLS(servingcert.Options{}).GetCertificate(nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), 0o600))
}

// TestRotatedAuthorityIsUsed has authorities whose names never change.
func TestRotatedAuthorityIsUsed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		give   func(c *config.Config, file string)
		broken string // in the log
	}{
		{
			name: "of a flag", broken: "--servers-ca-file: read caCertPath: ",
			give: func(c *config.Config, file string) {
				c.Pool.Servers.URLs, c.Pool.Servers.CAFile = []string{"https://10.0.0.1:8443"}, file
			},
		},
		{
			name: "of the configuration", broken: "prepare scraping: read caCertPath: ",
			give: func(c *config.Config, file string) {
				c.Pool.Servers.URLs = []string{"http://10.0.0.1:8000"}
				c.Plugins.Text = head + "plugins: [{type: metrics-data-source, parameters: {scheme: https, caCertPath: " + file + "}}]\n" +
					"dataLayer: {sources: [{pluginRef: metrics-data-source}]}"
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				file, cfg := filepath.Join(t.TempDir(), "ca.pem"), config.Default()
				writeAuthority(t, file)
				cfg.Metrics.Auth = false // it needs a cluster
				tt.give(cfg, file)
				core, logs := zaptest.New(zap.InfoLevel)
				p, err := newParts(cfg, zap.New(core))
				require.NoError(t, err)
				p.Reloader.SetPreparer(p.prepareConfig)
				require.NoError(t, p.Reloader.LoadFirst(t.Context(), nil))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go p.Reloader.Run(ctx)
				time.Sleep(time.Minute)
				assert.Equal(t, 1, logs.FilterMessage("Loaded configuration").Len())

				writeAuthority(t, file)
				time.Sleep(time.Minute)
				assert.Equal(t, 2, logs.FilterMessage("Loaded configuration").Len())

				require.NoError(t, os.WriteFile(file, nil, 0o600))
				time.Sleep(time.Minute)
				assert.Equal(t, 2, logs.FilterMessage("Loaded configuration").Len())
				rejected := logs.FilterMessage("Rejected configuration, kept the last valid one").All()
				require.Len(t, rejected, 1)
				assert.Contains(t, rejected[0].ContextMap()["error"], tt.broken)
			})
		})
	}
}
