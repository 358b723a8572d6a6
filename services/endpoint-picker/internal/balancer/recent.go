package balancer

import (
	"sync/atomic"

	"fairlead.dev/services/endpoint-picker/internal/prefix"
)

// recentPrompts is how many are remembered, about. It is a power of 2.
const recentPrompts = 1 << 15

// recent knows the prompts that this picker has placed last, by the hashes of all they said. It may forget one for a newer
// one at any time. All methods may be called at any time by anyone.
type recent struct {
	slots [recentPrompts]atomic.Uint64
}

func (r *recent) slot(prompt uint64) *atomic.Uint64 { return &r.slots[prompt%recentPrompts] }

// add remembers a prompt.
func (r *recent) add(prompt *prefix.Chain) {
	if n := len(prompt.Hashes); n > 0 {
		r.slot(prompt.Hashes[n-1]).Store(prompt.Hashes[n-1])
	}
}

// placed reports whether the first blocks of a prompt were one.
func (r *recent) placed(prompt *prefix.Chain, blocks int) bool {
	if blocks == 0 {
		return false
	}
	last := prompt.Hashes[blocks-1]
	return r.slot(last).Load() == last
}
