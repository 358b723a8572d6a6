package limits

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// LevelAge is the maximum age of a fair level. The level is computed from the use of all clients, in about 10 us for 300 clients, and a
// client beyond its level can ask for it with every stream.
const LevelAge = 10 * time.Millisecond

// A fairLimit limits the use of a resource by all clients together. While the total is within the limit, clients can use as much
// as they want. Beyond it, a client is restricted if it uses more than the max-min fair level, which is the highest level for
// which the sum of min(use, level) is within the limit. Thus
//
//   - of n clients, one that uses at most limit/n is never restricted, whatever the others do, and
//   - clients that use little do not reduce the level of the others: a client cannot push others below their use by connecting
//     from many addresses that use next to nothing.
//
// A client that joins when others use the whole limit can still use its share, so the total can be higher than the limit. It
// stays below limit x (1 + 1/2 + ... + 1/n) plus what a client takes at once: the k-th client to join is restricted above
// limit/k at the latest.
type fairLimit struct {
	limit int64 // 0 for no limit
	total atomic.Int64

	mu       sync.Mutex
	level    int64
	computed time.Time
}

// isFull reports whether the total is beyond the limit.
func (f *fairLimit) isFull() bool { return f.limit > 0 && f.total.Load() > f.limit }

// fairLevel returns the current level. Its callers have seen that the limit is full. If clients have returned enough since then, the level
// restricts nobody. fairLevel does not keep such a level, as a client could take any amount within LevelAge.
func (f *fairLimit) fairLevel(uses func() []int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.level == math.MaxInt64 || now.Sub(f.computed) >= LevelAge {
		f.level, f.computed = maxMinLevel(f.limit, uses()), now
	}
	return f.level
}

// maxMinLevel returns the max-min fair level of uses. It sorts uses.
func maxMinLevel(limit int64, uses []int64) int64 {
	slices.Sort(uses)
	left := limit
	for i, use := range uses {
		level := left / int64(len(uses)-i)
		if use > level {
			return level
		}
		left -= use
	}
	return math.MaxInt64
}
