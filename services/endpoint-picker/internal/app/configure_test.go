package app

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
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

func TestPickerByAConfigurationAlone(t *testing.T) {
	t.Parallel()
	r := &rig{target: newModel(t), stopped: make(chan error, 1)}
	folder := t.TempDir()
	endpoints := filepath.Join(folder, "endpoints.yaml")
	address, port, err := net.SplitHostPort(r.target)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(endpoints, []byte("endpoints: [{name: a, address: "+address+", port: "+port+"}]"), 0o600))
	cfg := config.Default()
	cfg.Kube.Kubeconfig = filepath.Join(folder, "nothing")
	cfg.Plugins.Text = head + "plugins: [{type: file-discovery, parameters: {path: " + endpoints + "}}]\ndataLayer: {discovery: {pluginRef: file-discovery}}"
	_, err = loadConfiguration(t.Context(), cfg)
	require.NoError(t, err)
	r.start(t, cfg)
	require.Eventually(t, func() bool { return len(r.Pools.list()[0].Store.Snapshot().Endpoints) == 1 }, patience, tick)
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
}

// TestConfigurationReachesEveryPart checks that a configuration which one part cannot use changes no part.
func TestConfigurationReachesEveryPart(t *testing.T) {
	t.Parallel()
	p := newRig(t, config.Drain{Timeout: patience})
	load := func(text string) *pluginconfig.Config {
		c, err := pluginconfig.Load([]byte(head+text), configOptions(p.Config))
		require.NoError(t, err)
		return c
	}
	require.Eventually(t, func() bool { return len(p.Pools.list()[0].Store.Snapshot().Endpoints) > 0 }, patience, tick)
	capacity := func() string { // of the only endpoint, in the index of prefixes
		return regexp.MustCompile(`"cacheBlocks": ?\d+`).FindString(p.get(t, p.HTTP.MetricsAddress(), "/debug/pools.json"))
	}
	const size = "plugins: [{type: approx-prefix-cache-producer, parameters: {autoTune: false, lruCapacityPerServer: %d}}, {type: metrics-data-source, parameters: {scheme: https, caCertPath: %s}}]\n" +
		"dataLayer: {sources: [{pluginRef: metrics-data-source}]}"
	before := capacity()
	require.Contains(t, before, "31250", "upstream's default, as the page does not tell the size")
	_, err := p.prepare(load(fmt.Sprintf(size, 1234, "/nowhere")))
	require.ErrorContains(t, err, "prepare scraping: read caCertPath: open /nowhere")
	assert.Equal(t, before, capacity())

	publish, err := p.prepare(load(strings.Replace(fmt.Sprintf(size, 1234, "x"), ", caCertPath: x", "", 1)))
	require.NoError(t, err)
	assert.Equal(t, before, capacity(), "preparing changes nothing")
	publish()
	assert.Contains(t, capacity(), "1234")
}
