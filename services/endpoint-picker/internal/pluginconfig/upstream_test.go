package pluginconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/modelserver"
)

// upstreamFiles are the kinds of configuration that the guides, charts and tests of other pickers have, in small. Each starts, or its error
// contains what to do instead.
var upstreamFiles = []struct {
	name     string
	refused  []string // parts of the error; none if it starts
	warnings []string // parts of the warnings, if it starts
}{
	{name: "gie-0.5-plugins", refused: []string{"low-queue-filter: queue-scorer", "least-kv-cache-filter: kv-cache-utilization-scorer", "decision-tree-filter: list filters"}},
	{name: "gie-1.0-chart", warnings: []string{"hashBlockSize: its new place is the plugin approx-prefix-cache-producer", "maxPrefixBlocksToMatch: its new place", "lruCapacityPerServer: its new place"}},
	{name: "gie-1.2-lora-syncer", warnings: []string{"kv-cache-scorer is an old name: use kv-cache-utilization-scorer", "autoTune: its new place", "blockSize: its new place"}},
	{name: "gie-1.2-saturation", warnings: []string{"saturationDetector: these are parameters of a utilization-detector: declare one with them"}},
	{name: "gie-1.3-data", warnings: []string{"dataLayer has no effect: the dataLayer is always in use", "model-server-protocol-metrics is an old name", "data: it is an old name: use dataLayer"}},
	{name: "gie-1.4-model-servers", warnings: []string{"dataLayer has no effect"}},
	{name: "gie-1.4-predicted-latency", refused: []string{"slo-aware-routing: predicted-wait-scorer", "slo-aware-profile-handler: predicted-wait-scorer", "predicted-latency-scorer: predicted-wait-scorer"}},
	{name: "gie-1.4-triton", warnings: []string{"model-server-protocol-metrics is an old name: use core-metrics-extractor"}},
	{name: "gie-1.5-attribute-reporter", warnings: []string{
		"request-attribute-reporter is not needed", "it has no effect here: openai-parser is neither a filter nor a scorer nor a picker",
		"its new place is requestHandler.parsers", "the picker scrapes in one way only; for older names of its own metrics, give the flag --legacy-metrics",
	}},
	{name: "gie-1.5-e2e"},
	{name: "gie-conformance", warnings: []string{"clients choose endpoints by the header", "destination-endpoint-served-verifier is not needed"}},
	{name: "guide-calibrated", refused: []string{"give the measured throughput as peakPrefillThroughput"}},
	{name: "guide-flow-control", refused: []string{"queues for full servers come with a later version; until then a saturation detector"}},
	{name: "guide-helm-values", refused: []string{"line 5, column 18: router.epp.pluginsCustomConfig.mine.yaml: this is the EndpointPickerConfig"}},
	{name: "guide-inference-scheduling"},
	{name: "guide-omni-serving"},
	{name: "guide-optimized-baseline"},
	{name: "guide-optimized-baseline-trtllm", warnings: []string{"no-hit-lru-scorer is not needed: the other scorers place prompts that no server has"}},
	{name: "guide-pd-disaggregation", refused: []string{"disagg-profile-handler: this version does not split prefill and decode", "use one profile, and decode-filter"}},
	{name: "guide-precise-prefix-cache-routing", refused: []string{"precise-prefix-cache-producer: prefix-cache-scorer uses the picker's own index", "modelName: the picker uses no tokenizer"}},
	{name: "guide-predicted-latency-routing", refused: []string{"latency-scorer: predicted-wait-scorer predicts first tokens without a sidecar"}},
	{name: "guide-spec-decoding", warnings: []string{"no-hit-lru-scorer is not needed"}},
	{name: "guide-tiered-prefix-cache-cpu", refused: []string{"the picker has only one index of prefixes", "let all plugins refer to one producer"}},
	{name: "guide-turn-priority-fairness", refused: []string{"program-aware-fairness: queues for full servers come with a later version"}},
	{name: "kserve-scheduler"},
	{name: "llm-d-0.2-cache-tracking", refused: []string{"mode: this picker reads no events of KV caches: prefix-cache-scorer uses the picker's own index"}},
	{name: "llm-d-0.8-dp", warnings: []string{"each target port of the InferencePool is an endpoint"}},
	{name: "llm-d-0.8-estimate", warnings: []string{"requestHandler.parser: its new place is requestHandler.parsers, a list"}},
	{name: "llm-d-0.8-pd", refused: []string{"pd-profile-handler: this version does not split prefill and decode"}},
	{name: "llm-d-0.8-sim", warnings: []string{"maxPrefixBlocksToMatch: its new place", "lruCapacityPerServer: its new place"}},
	{name: "router-0.10-chart"},
	{name: "router-0.10-chart-payload-agnostic"},
	{name: "router-0.10-coordinator"},
	{name: "router-0.10-multicluster", refused: []string{"one picker serves one cluster"}},
	{name: "router-0.11-discovery", warnings: []string{"dataLayer.discovery.peers: it has no effect", "dataLayer.crossReplica: it has no effect", "propagatePriority: it has no effect", "local-syncer is not needed"}},
	{name: "router-0.11-reserve-endpoint", refused: []string{"reserve-endpoint: this version does not split prefill and decode"}},
}

func TestLoadFilesOfOtherPickers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/upstream/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, len(upstreamFiles), "each file needs its verdict")
	for _, tt := range upstreamFiles {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("testdata/upstream/" + tt.name + ".yaml")
			require.NoError(t, err)
			c, err := Load(text, options)
			if len(tt.refused) > 0 {
				for _, part := range tt.refused {
					require.ErrorContains(t, err, part)
				}
				return
			}
			require.NoError(t, err)
			require.Len(t, c.Warnings, len(tt.warnings), "%v", c.Warnings)
			var warnings []string
			for _, w := range c.Warnings {
				warnings = append(warnings, w.String())
			}
			for _, part := range tt.warnings {
				assert.Contains(t, strings.Join(warnings, "\n"), part)
			}
		})
	}
}

func TestLoadPrefixIndexOfTheScorer(t *testing.T) {
	t.Parallel()
	const scorer = "- {type: prefix-cache-scorer, parameters: {hashBlockSize: 256, maxPrefixBlocksToMatch: 100, lruCapacityPerServer: 1000, autoTune: false}}\n"
	c, err := Load([]byte(head+"plugins:\n"+scorer), options)
	require.NoError(t, err)
	assert.Equal(t, 4000, c.Prefix.CacheBlocks, "256 bytes are 64 tokens, four blocks of the index")
	assert.Equal(t, 6400, c.Prefix.MaxTokens)
	assert.False(t, c.Prefix.AutoTune)

	c, err = Load([]byte(head+"plugins:\n- {type: approx-prefix-cache-producer, parameters: {lruCapacityPerServer: 7}}\n"+scorer), options)
	require.NoError(t, err)
	assert.Equal(t, 7, c.Prefix.CacheBlocks)
	assert.Contains(t, c.Warnings[0].String(), "its parameters count, and those of the same names of a prefix-cache-scorer do not")

	_, err = Load([]byte(head+"plugins:\n"+scorer+"- {type: prefix-cache-scorer, name: other, parameters: {lruCapacityPerServer: 2}}\n"), options)
	assert.ErrorContains(t, err, "another prefix-cache-scorer has other parameters of the index")
}

func TestLoadCountsProducersOfPrefixes(t *testing.T) {
	t.Parallel()
	const producer = "- {type: approx-prefix-cache-producer, name: mine}\n"
	tests := []struct {
		name, give, refused, warning string
	}{
		{name: "two scorers of one producer", give: producer + "- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: mine}}\n" +
			"- {type: prefix-cache-affinity-filter, parameters: {prefixMatchInfoProducerName: mine}}\n"},
		{name: "a scorer and a filter of different producers", give: producer + "- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: mine}}\n" +
			"- {type: prefix-cache-affinity-filter}\n", refused: `it reads "approx-prefix-cache-producer", and another plugin reads "mine"`},
		{name: "a producer that no scorer names", give: producer + "- {type: prefix-cache-scorer}\n", warning: `refer to "mine" with prefixMatchInfoProducerName`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Load([]byte(head+"plugins:\n"+tt.give), options)
			if tt.refused != "" {
				assert.ErrorContains(t, err, tt.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.warning != "", len(c.Warnings) > 0)
			for _, w := range c.Warnings {
				assert.Contains(t, w.String(), tt.warning)
			}
		})
	}
}

func TestLoadTakesTheEngineOfFlags(t *testing.T) {
	t.Parallel()
	o := options
	o.DefaultEngine = modelserver.EngineSGLang
	c, err := Load([]byte(head), o)
	require.NoError(t, err)
	assert.Equal(t, modelserver.EngineSGLang, c.Scraping.Extractor.DefaultEngine)
	assert.Equal(t, modelserver.EngineSGLang, Default(o).Scraping.Extractor.DefaultEngine)
	c, err = Load([]byte(head+"plugins: [{type: core-metrics-extractor, parameters: {defaultEngine: triton}}]\n"), o)
	require.NoError(t, err)
	assert.Equal(t, modelserver.EngineTriton, c.Scraping.Extractor.DefaultEngine, "the configuration takes precedence")
}

func TestLoadTakesTheSourceOfFlags(t *testing.T) {
	t.Parallel()
	port, other := 8002, 9000
	o := options
	o.Source = modelserver.Source{Scheme: "https", Port: &port}
	c, err := Load([]byte(head), o)
	require.NoError(t, err)
	assert.Equal(t, o.Source, c.Scraping.Source)
	c, err = Load([]byte(head+"plugins: [{type: metrics-data-source, parameters: {port: 9000}}]\n"), o)
	require.NoError(t, err)
	assert.Equal(t, modelserver.Source{Scheme: "https", Port: &other}, c.Scraping.Source, "the configuration takes precedence")
	assert.Equal(t, 8002, port)
}
