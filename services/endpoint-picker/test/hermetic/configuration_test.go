//go:build system

package hermetic

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// TestUnusableConfigurationTakesNoEffect checks that an edit with one unusable part changes nothing, and that it is reported.
func TestUnusableConfigurationTakesNoEffect(t *testing.T) {
	t.Parallel()
	const (
		config = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- {type: queue-scorer}\n- {type: max-score-picker, parameters: {maxNumOfEndpoints: %}}\n"
		source = "- {type: metrics-data-source, parameters: {scheme: https, caCertPath: /nowhere/ca.crt}}\n"
		metric = "- type: core-metrics-extractor\n  parameters: {engineConfigs: [{name: mine, queuedRequestsSpec: 'a b{'}]}\n- {type: metrics-data-source}\n"
		layer  = "dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}\n"
	)
	picks := func(n string) string { return strings.Replace(config, "%", n, 1) }
	for name, unusable := range map[string]string{
		"a file that does not exist": picks("2") + source + strings.Replace(layer, ", extractors: [{pluginRef: core-metrics-extractor}]", "", 1),
		"a metric that cannot be":    picks("2") + metric + layer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "config.yaml")
			write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
			write(picks("1"))
			r := start(t, world{pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, configFile: file})
			assertFallbacks := func(want int) {
				s := r.ask(request{body: ofModel, rules: envoytest.Rules{Fallbacks: want}})
				s.end()
				assert.Equal(t, want, strings.Count(s.picked(), ","))
			}
			assertFallbacks(0)

			write(unusable)
			r.await(func() bool { return r.metrics().sum("fairlead_picker_config_last_reload_successful") == 0 }, "rejected")
			r.await(func() bool { return r.logs.FilterMessage("Rejected configuration, kept the last valid one").Len() == 1 }, "logged")
			assert.Equal(t, 1, r.logs.FilterMessage("Loaded configuration").Len(), "only that of the start")
			assertFallbacks(0) // the other parts of the rejected configuration are not in force either

			write(picks("2"))
			r.await(func() bool { return r.metrics().sum("fairlead_picker_config_last_reload_successful") == 1 }, "accepted")
			assertFallbacks(1)
		})
	}
}

func TestServersThatCannotAnswerGetNoRequests(t *testing.T) {
	t.Parallel()
	const label = "llm-d.ai/role"
	idle := pageOf(0, 0, 0, "")
	r := start(t, world{
		pages:  []string{idle, idle, idle, pageOf(5, 20, 0.9, "")},
		labels: []map[string]string{{label: "encode"}, {label: "prefill"}, {label: "encode-prefill"}, {label: "decode"}},
	})
	for range 20 {
		assert.Equal(t, r.at(3), r.serve(request{body: ofModel}, response{pieces: completion}))
	}
}

func TestPoolWithoutServersThatCanAnswer(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, labels: []map[string]string{{"llm-d.ai/role": "prefill"}}})
	assert.Equal(t, 503, r.ask(request{body: ofModel}).refused().status)
}

// TestConformanceManifests runs with the configuration in the conformance tests of the Gateway API Inference Extension 1.5.
func TestConformanceManifests(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, config: `apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: header-based-testing-filter
- type: destination-endpoint-served-verifier
schedulingProfiles:
- name: conformance-profile
  plugins:
  - pluginRef: header-based-testing-filter
`})
	for i := range r.servers {
		q := request{body: ofModel, headers: []string{"test-epp-endpoint-selection", r.at(i)}, rules: envoytest.Rules{Set: []string{"x-echo-set-header"}, Reply: []string{"x-conformance-test-served-endpoint"}}}
		assert.Equal(t, r.at(i), r.serve(q, response{served: r.at(i), pieces: completion}))
	}
	var warnings []string
	for _, e := range r.logs.FilterMessage("Configuration has a warning").All() {
		warnings = append(warnings, e.ContextMap()["warning"].(string))
	}
	assert.Contains(t, strings.Join(warnings, "\n"), "destination-endpoint-served-verifier is not needed")
}
