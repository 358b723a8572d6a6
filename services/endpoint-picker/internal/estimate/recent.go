package estimate

import "sync/atomic"

// placedPrompts is a set of the prompts that this picker placed last, by the hashes of their content. A newer prompt may replace
// any of them. It is safe for concurrent use.
type placedPrompts struct {
	slots [recentPrompts]atomic.Uint64
}

func (r *placedPrompts) slotOf(prompt uint64) *atomic.Uint64 { return &r.slots[prompt%recentPrompts] }

// addPrompt adds a prompt.
func (r *placedPrompts) addPrompt(chain []uint64) {
	if n := len(chain); n > 0 {
		r.slotOf(chain[n-1]).Store(chain[n-1])
	}
}

// containsPrompt reports whether the first blocks of a chain are a prompt in the set.
func (r *placedPrompts) containsPrompt(chain []uint64, blocks int) bool {
	if blocks == 0 {
		return false
	}
	last := chain[blocks-1]
	return r.slotOf(last).Load() == last
}
