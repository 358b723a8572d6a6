package balancer

import (
	"sync/atomic"

	"fairlead.dev/services/endpoint-picker/internal/prefix"
)

// recentPrompts is the approximate number of prompts to remember. It is a power of 2.
const recentPrompts = 1 << 15

// recent is a set of the prompts that this picker placed last, by the hashes of their content. A newer prompt may replace
// any of them. It is safe for concurrent use.
type recent struct {
	slots [recentPrompts]atomic.Uint64
}

func (r *recent) slot(prompt uint64) *atomic.Uint64 { return &r.slots[prompt%recentPrompts] }

// add adds a prompt.
func (r *recent) add(prompt *prefix.Chain) {
	if n := len(prompt.Hashes); n > 0 {
		r.slot(prompt.Hashes[n-1]).Store(prompt.Hashes[n-1])
	}
}

// placed reports whether the first blocks of a prompt are a prompt in the set.
func (r *recent) placed(prompt *prefix.Chain, blocks int) bool {
	if blocks == 0 {
		return false
	}
	last := prompt.Hashes[blocks-1]
	return r.slot(last).Load() == last
}
