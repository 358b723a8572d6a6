package app

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
	"fairlead.dev/services/endpoint-picker/internal/reload"
)

const head = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

func TestAdoptDiscovery(t *testing.T) {
	t.Parallel()
	const discovery = head + `
plugins: [{type: file-discovery, parameters: {path: /etc/endpoints.yaml, watchFile: false}}]
dataLayer: {discovery: {pluginRef: file-discovery}}`
	tests := []struct {
		name    string
		give    func(c *config.Config)
		want    string // the file
		wantErr string
	}{
		{name: "nothing", give: func(*config.Config) {}},
		{name: "a pool goes before", give: func(c *config.Config) { c.Pool.Name.Name, c.Plugins.Text = "pool", discovery }},
		{name: "text", give: func(c *config.Config) { c.Plugins.Text = discovery }, want: "/etc/endpoints.yaml"},
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
			err := adoptDiscovery(t.Context(), c)
			if tt.wantErr != "" {
				require.EqualError(t, err, tt.wantErr)
				require.ErrorIs(t, err, reload.ErrUnusable)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, c.Pool.File)
			assert.Equal(t, tt.want != "", c.Pool.Once)
			assert.Equal(t, tt.want == "", c.Metrics.Auth, "there is nobody to ask")
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
	require.NoError(t, adoptDiscovery(t.Context(), cfg))
	r.start(t, cfg)
	require.Eventually(t, func() bool { return len(r.Pools.list()[0].Store.Snapshot().Endpoints) == 1 }, patience, tick)
}

func TestScrapingIsAsTheConfigurationSays(t *testing.T) {
	t.Parallel()
	load := func(text string) modelserver.Settings {
		c, err := pickerconfig.Load([]byte(head+text), pickerconfig.Options{StaleAfter: time.Second})
		require.NoError(t, err)
		s := scraping(&c.Scraping)
		require.NoError(t, s.Validate())
		return s
	}
	assert.Equal(t, modelserver.DefaultSettings(), load(""))
	s := load(`
plugins:
- {type: metrics-data-source, parameters: {scheme: https, path: /m, port: 9000, insecureSkipVerify: false, interval: 250ms}}
- type: core-metrics-extractor
  parameters:
    engineLabelKey: engine
    defaultEngine: mine
    engineConfigs:
    - {name: mine, queuedRequestsSpec: "q{a=b}", runningRequestsSpec: r, kvUsageSpec: k, customMetrics: [{attributeKey: heat, metricSpec: t}]}
dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}`)
	assert.Equal(t, modelserver.Settings{
		Scheme: "https", Path: "/m", Port: 9000, Interval: modelserver.Interval{Fastest: 250 * time.Millisecond}, EngineLabel: "engine", DefaultEngine: "mine",
		Engines: []modelserver.Engine{{
			Name: "mine", Waiting: []string{"q{a=b}"}, Running: []string{"r"}, KVUsage: []string{"k"},
			Custom: []modelserver.CustomMetric{{Attribute: "heat", Metric: "t"}},
		}},
	}, s)
}
