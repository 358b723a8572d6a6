package simulation

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// manyPrefixes has 400 prefixes, and repeats each of them only a few times. A server that keeps only the ends of prompts finds nothing for the
// second prompt with a prefix.
var manyPrefixes = Prefixes{Count: 400, Skew: 0.6, Tokens: 1200, Own: 150, Answer: 60}

// likeVLLM is how vLLM reports with --enable-prompt-tokens-details.
var likeVLLM = Reports{Usage: true, NoZero: true}

// keepingEnds is a fleet whose servers keep only the ends of prompts, as vLLM does for models with layers of a sliding window or with
// recurrent ones.
func keepingEnds(w Workload, r Reports) Scenario {
	return keeping(w, func(e *Engine) { e.Blocks, e.Cache.Ends, e.Reports = 1<<15, true, r })
}

func TestPickerExpectsEndsOfPrompts(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Scenario{
		"prefixes, by usage":      keepingEnds(manyPrefixes.Workload(20), likeVLLM),
		"prefixes, by page":       keepingEnds(manyPrefixes.Workload(20), byPage),
		"conversations, by usage": keepingEnds(Conversations(10), likeVLLM),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := measurePrefixes(s, IndependentPickers(1, InTurn), *firstSeed)
			t.Logf("expected %.3f, reported %.3f, real %.3f", got.expected, got.reported, got.real)
			assert.InDelta(t, 0, got.expected-got.real, 0.05)
			trace := s.shorter(300).Trace(1)
			assertFast(t, trace.Run(IndependentPickers(1, InTurn)), trace.Run(Greedy()), 1.2, 1.2)
		})
	}
}
