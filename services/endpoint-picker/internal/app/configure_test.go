package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
