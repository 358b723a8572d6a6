package estimate

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTokens_AreLearnedForEachModel(t *testing.T) {
	t.Parallel()
	x := newTokenizers()
	assert.InDelta(t, 1, x.ratioOf("new"), 0)
	for range 10 {
		x.observePrompt("short", 1000, 1600)
		x.observePrompt("long", 1000, 700)
	}
	assert.InDelta(t, 1.6, x.ratioOf("short"), 0.05)
	assert.InDelta(t, 0.7, x.ratioOf("long"), 0.05)
	assert.InDelta(t, 1.1, x.meanRatio(), 0.1)
	assert.InDelta(t, x.meanRatio(), x.ratioOf("another"), 0, "what is not known is like the pool")
	x.observePrompt("another", 0, 5)
	x.observePrompt("another", 5, 0)
	assert.Len(t, *x.models.Load(), 2, "an empty count says nothing")
}

func TestTokens_AreLearnedFromPages(t *testing.T) {
	t.Parallel()
	x := newTokenizers()
	for range 10 {
		x.observePrompts(40_000, 60_000)
	}
	assert.InDelta(t, 1.5, x.ratioOf("any"), 0.06)
}

// A sample text says little about other texts: its part fades, whether the usage of answers or only pages show better.
func TestTokens_SamplesFade(t *testing.T) {
	t.Parallel()
	byUsage, byPages := newTokenizers(), newTokenizers()
	for _, x := range []*tokenizers{byUsage, byPages} {
		x.setSample("m", 3)
	}
	for range 200 {
		byUsage.observePrompt("m", 2000, 2000)
		byPages.observePrompts(40_000, 40_000)
	}
	assert.InDelta(t, 1, byUsage.ratioOf("m"), 0.001)
	assert.InDelta(t, 1, byPages.ratioOf("m"), 0.001)
	byUsage.observePrompts(40_000, 80_000)
	assert.InDelta(t, 1, byUsage.ratioOf("m"), 0.001, "a model with counts of its own")
}

// What a server claims changes little, and nothing for long.
func TestTokens_OneWrongCount(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]int{"many": 1 << 40, "one": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTokenizers()
			for range 100 {
				x.observePrompt("m", 2000, 2800)
			}
			x.observePrompt("m", 2000, wrong)
			assert.InEpsilon(t, 1.4, x.ratioOf("m"), 0.051)
			assert.InEpsilon(t, 1.4, x.meanRatio(), 0.051)
			for range 100 {
				x.observePrompt("m", 2000, wrong)
			}
			assert.LessOrEqual(t, x.ratioOf("m"), maxRatio)
			assert.GreaterOrEqual(t, x.ratioOf("m"), 1/maxRatio)
			for range 150 {
				x.observePrompt("m", 2000, 2800)
			}
			assert.InEpsilon(t, 1.4, x.ratioOf("m"), 0.02)
		})
	}
}

// A sample counts at once, and as much as one long prompt.
func TestTokens_StartAtASample(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	require.True(t, x.RecordSampleCount("m", 4096, 1536))
	assert.InDelta(t, 1500, x.Measure(&PromptSize{Model: "m", Text: 1000}), 0)
	assert.InDelta(t, 1500, x.Measure(&PromptSize{Model: "an adapter", Text: 1000}), 0, "the pool starts there, too")
	require.True(t, x.RecordSampleCount("other", 4096, 512))
	assert.InDelta(t, 0.5, x.tokenizers.ratioOf("other"), 1e-9)
	assert.InDelta(t, 1.5, x.tokenizers.ratioOf("m"), 1e-9)
	assert.InDelta(t, 1, x.tokenizers.meanRatio(), 1e-9, "the mean of both")

	x.RecordUsage(&Expectation{size: PromptSize{Model: "m", Text: 2000}}, 4000, -1)
	assert.InDelta(t, 1.75, x.tokenizers.ratioOf("m"), 0.01, "halfway after one long prompt")
	for range 20 {
		x.RecordUsage(&Expectation{size: PromptSize{Model: "m", Text: 2000}}, 4000, -1)
	}
	assert.InDelta(t, 2, x.tokenizers.ratioOf("m"), 0.05)
	require.True(t, x.RecordSampleCount("m", 4096, 1024))
	assert.InDelta(t, 1.97, x.tokenizers.ratioOf("m"), 0.02, "usage outweighs a later sample")
}

func TestTokens_ImpossibleSamples(t *testing.T) {
	t.Parallel()
	for tokens, want := range map[int]bool{-1: false, 0: false, 255: false, 256: true, 4096: true, 4097: false, math.MaxInt: false, math.MinInt: false} {
		x := newTestEstimator(1 << 20)
		assert.Equal(t, want, x.RecordSampleCount("m", 4096, tokens), tokens)
		assert.Equal(t, want, len(*x.tokenizers.models.Load()) == 1, tokens)
	}
	assert.False(t, newTestEstimator(1<<20).RecordSampleCount("m", 0, 0))
}

// A page can name any number of models.
func TestTokens_SamplesDisplaceNoModel(t *testing.T) {
	t.Parallel()
	x := newTokenizers()
	x.observePrompt("used", 1000, 500)
	for i := range 10 * maxModels {
		x.setSample(fmt.Sprint("sampled ", i), 2)
	}
	models := *x.models.Load()
	assert.Len(t, models, maxModels)
	assert.Contains(t, models, "used")
	for i := range maxModels - 1 {
		x.observePrompt(fmt.Sprint("answered ", i), 1000, 1000)
	}
	models = *x.models.Load()
	assert.Len(t, models, maxModels)
	assert.Contains(t, models, "used", "samples leave first")
	x.setSample("late", 2)
	assert.Equal(t, models, *x.models.Load(), "no answered model leaves for a sample")
}

func TestTokens_ModelsAreBounded(t *testing.T) {
	t.Parallel()
	x := newTokenizers()
	for i := range 10 * maxModels {
		for range 5 {
			x.observePrompt("used", 1000, 500)
		}
		x.observePrompt(fmt.Sprint("once ", i), 1000, 2000)
	}
	models := *x.models.Load()
	assert.Len(t, models, maxModels)
	assert.Contains(t, models, "used", "the least recently used one leaves")
	assert.NotContains(t, models, "once 0")
	assert.InDelta(t, 0.5, x.ratioOf("used"), 0.01)
}

// The tokens of other parts of a prompt are known, or guessed, and stay as they are.
func TestMeasure(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	for range 100 {
		x.RecordUsage(&Expectation{size: PromptSize{Model: "m", Text: 1000, Other: 100}}, 2100, -1)
	}
	ids := PromptSize{Model: "m", Other: 300}
	assert.Equal(t, 300, x.Measure(&ids))
	assert.InDelta(t, 16, ids.PerBlock, 1e-9)
	mixed := PromptSize{Model: "m", Text: 600, Other: 200}
	assert.InDelta(t, 1400, x.Measure(&mixed), 10)
	assert.InDelta(t, 28, mixed.PerBlock, 0.3)
	for range 100 {
		x.RecordUsage(&Expectation{size: PromptSize{Model: "m", Text: 100, Other: 1000}}, 9000, -1)
	}
	assert.InDelta(t, 1400, x.Measure(&mixed), 10, "prompts that are mostly images say nothing of texts")
	assert.Zero(t, x.Measure(&PromptSize{}))
	assert.Equal(t, 1, x.Measure(&PromptSize{Other: 1}))
}
