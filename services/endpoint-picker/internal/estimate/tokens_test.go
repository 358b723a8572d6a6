package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTokens_AreLearnedForEachModel(t *testing.T) {
	t.Parallel()
	x := newTokenizers()
	assert.InDelta(t, 1, x.of("new"), 0)
	for range 10 {
		x.observe("short", 1000, 1600)
		x.observe("long", 1000, 700)
	}
	assert.InDelta(t, 1.6, x.of("short"), 0.05)
	assert.InDelta(t, 0.7, x.of("long"), 0.05)
	assert.InDelta(t, 1.1, x.pool(), 0.1)
	assert.InDelta(t, x.pool(), x.of("another"), 0, "what is not known is like the pool")
	x.observe("another", 0, 5)
	x.observe("another", 5, 0)
	assert.Len(t, *x.models.Load(), 2, "an empty count says nothing")
}

func TestTokens_AreLearnedFromPages(t *testing.T) {
	t.Parallel()
	x := newTokenizers()
	for range 10 {
		x.observeMany(40_000, 60_000)
	}
	assert.InDelta(t, 1.5, x.of("any"), 0.06)
}

// What a server claims changes little, and nothing for long.
func TestTokens_OneWrongCount(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]int{"many": 1 << 40, "one": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTokenizers()
			for range 100 {
				x.observe("m", 2000, 2800)
			}
			x.observe("m", 2000, wrong)
			assert.InEpsilon(t, 1.4, x.of("m"), 0.05)
			assert.InEpsilon(t, 1.4, x.pool(), 0.05)
			for range 100 {
				x.observe("m", 2000, wrong)
			}
			assert.LessOrEqual(t, x.of("m"), maxRatio)
			assert.GreaterOrEqual(t, x.of("m"), 1/maxRatio)
			for range 150 {
				x.observe("m", 2000, 2800)
			}
			assert.InEpsilon(t, 1.4, x.of("m"), 0.02)
		})
	}
}

func TestTokens_ModelsAreBounded(t *testing.T) {
	t.Parallel()
	x := newTokenizers()
	for i := range 10 * maxModels {
		for range 5 {
			x.observe("used", 1000, 500)
		}
		x.observe(fmt.Sprint("once ", i), 1000, 2000)
	}
	models := *x.models.Load()
	assert.Len(t, models, maxModels)
	assert.Contains(t, models, "used", "the least recently used one leaves")
	assert.NotContains(t, models, "once 0")
	assert.InDelta(t, 0.5, x.of("used"), 0.01)
}

// The tokens of other parts of a prompt are known, or guessed, and stay as they are.
func TestMeasure(t *testing.T) {
	t.Parallel()
	x := New(1 << 20)
	for range 100 {
		x.Reported(&Expectation{model: "m", text: 1000, other: 100}, 2100, -1)
	}
	ids := PromptSize{Model: "m", Other: 300}
	assert.Equal(t, 300, x.Measure(&ids))
	assert.InDelta(t, 16, ids.PerBlock, 1e-9)
	mixed := PromptSize{Model: "m", Text: 600, Other: 200}
	assert.InDelta(t, 1400, x.Measure(&mixed), 10)
	assert.InDelta(t, 28, mixed.PerBlock, 0.3)
	for range 100 {
		x.Reported(&Expectation{model: "m", text: 100, other: 1000}, 9000, -1)
	}
	assert.InDelta(t, 1400, x.Measure(&mixed), 10, "prompts that are mostly images say nothing of texts")
	assert.Zero(t, x.Measure(&PromptSize{}))
	assert.Equal(t, 1, x.Measure(&PromptSize{Other: 1}))
}
