package pick

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const prefixBytes = request.PrefixTokens * prefixindex.BytesPerToken

// pickedPrompt returns the request of a completion with a prompt.
func pickedPrompt(t *testing.T, r *rig, prompt string) *request.Context {
	t.Helper()
	body, err := json.Marshal(map[string]string{"model": "m", "prompt": prompt})
	require.NoError(t, err)
	return r.placed(t, api.Incoming{Path: "/v1/completions", Body: body})
}

func TestRecordsHavePrefixesIfEnabled(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func() *pluginconfig.Config{
		"estimates":              soonestFirst(),
		"no estimates":           leastLoaded(t),
		"a part is looked up":    configured(t, "plugins: [{type: approx-prefix-cache-producer, parameters: {maxPrefixTokensToMatch: 64}}, {type: predicted-wait-scorer}]"),
		"one block is looked up": configured(t, "plugins: [{type: approx-prefix-cache-producer, parameters: {maxPrefixBlocksToMatch: 1}}, {type: predicted-wait-scorer}]"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")))
			r.params.Config, r.params.Options.Prefixes = config, true
			a, b := strings.Repeat("a", prefixBytes), strings.Repeat("b", prefixBytes)
			of := func(prompt string) []uint64 { return pickedPrompt(t, r, prompt).Prefixes }

			ab, ac := of(a+b), of(a+"cccc")
			require.Len(t, ab, 2)
			require.Len(t, ac, 2, "the rest has its own hash")
			assert.Equal(t, ab[0], ac[0])
			assert.NotEqual(t, ab[1], ac[1])
			assert.Equal(t, ac, of(a+"cccc"))
			assert.NotEqual(t, ac, of(a+"dddd"))
			assert.Equal(t, ab[:1], of(a))
			assert.NotContains(t, of(b+a), ab[0], "a hash covers all text before")
			assert.Equal(t, 2, pickedPrompt(t, r, a).PoolSize)
			assert.Len(t, of("short"), 1)
		})
	}
}

func TestPrefixesEndWhereThePickerDoesNotReadOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
	r.params.Options.Prefixes = true
	rc := pickedPrompt(t, r, strings.Repeat("long ", 1<<20))
	assert.Greater(t, request.PrefixCount(rc.PromptTokens), 1000)
	assert.Len(t, rc.Prefixes, maxBlocks/prefixBlocks)
}

// The lookup in the index must not depend on whether records have prefixes.
func TestPrefixesDoNotChangePicks(t *testing.T) {
	t.Parallel()
	config := configured(t, "plugins: [{type: approx-prefix-cache-producer, parameters: {maxPrefixTokensToMatch: 64}}, {type: predicted-wait-scorer}]")
	for _, enabled := range []bool{false, true} {
		b := replica()
		b.params.Config, b.params.Options.Prefixes = config, enabled
		first := b.placed(t, chat("text", 0))
		again := &request.Context{Input: request.PickInput{Incoming: chat("text", 0)}}
		again.Input.Subset = scheduling.ParseSubset([]string{first.Destination})
		require.Nil(t, b.decide(again))
		assert.Equal(t, 64, again.MatchedTokens)
		assert.Equal(t, enabled, again.Prefixes != nil)
	}
}
