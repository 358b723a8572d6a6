package estimate

import "sync/atomic"

// recent is a set of the prompts that this picker placed last, by the hashes of their content. A newer prompt may replace
// any of them. It is safe for concurrent use.
type recent struct {
	slots [recentPrompts]atomic.Uint64
}

func (r *recent) slot(prompt uint64) *atomic.Uint64 { return &r.slots[prompt%recentPrompts] }

// add adds a prompt.
func (r *recent) add(chain []uint64) {
	if n := len(chain); n > 0 {
		r.slot(chain[n-1]).Store(chain[n-1])
	}
}

// contains reports whether the first blocks of a chain are a prompt in the set.
func (r *recent) contains(chain []uint64, blocks int) bool {
	if blocks == 0 {
		return false
	}
	last := chain[blocks-1]
	return r.slot(last).Load() == last
}
