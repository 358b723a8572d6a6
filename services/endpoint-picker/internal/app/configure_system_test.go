//go:build system

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

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
)

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
	require.Eventually(t, func() bool { return len(r.Pools.DebugPools()[0].Snapshot().Endpoints) == 1 }, kubetest.Patience, tick)
}

// TestConfigurationReachesEveryPart checks that a configuration which one part cannot use changes no part.
func TestConfigurationReachesEveryPart(t *testing.T) {
	t.Parallel()
	p := newRig(t, config.Drain{Timeout: kubetest.Patience})
	load := func(text string) *pluginconfig.Config {
		c, err := pluginconfig.Load([]byte(head+text), configOptions(p.Config))
		require.NoError(t, err)
		return c
	}
	require.Eventually(t, func() bool { return len(p.Pools.DebugPools()[0].Snapshot().Endpoints) > 0 }, kubetest.Patience, tick)
	capacity := func() string { // of the only endpoint, in the index of prefixes
		return regexp.MustCompile(`"cacheBlocks": ?\d+`).FindString(p.get(t, p.HTTP.MetricsAddress(), "/debug/pools.json"))
	}
	const size = "plugins: [{type: approx-prefix-cache-producer, parameters: {autoTune: false, lruCapacityPerServer: %d}}, {type: metrics-data-source, parameters: {scheme: https, caCertPath: %s}}]\n" +
		"dataLayer: {sources: [{pluginRef: metrics-data-source}]}"
	before := capacity()
	require.Contains(t, before, "31250", "upstream's default, as the page does not tell the size")
	_, err := p.prepareConfig(load(fmt.Sprintf(size, 1234, "/nowhere")))
	require.ErrorContains(t, err, "prepare scraping: read caCertPath: open /nowhere")
	assert.Equal(t, before, capacity())

	publish, err := p.prepareConfig(load(strings.Replace(fmt.Sprintf(size, 1234, "x"), ", caCertPath: x", "", 1)))
	require.NoError(t, err)
	assert.Equal(t, before, capacity(), "preparing changes nothing")
	publish()
	assert.Contains(t, capacity(), "1234")
}
