package prefix

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Index knows which holders have which prefixes. Match and Len may be called at any time by anyone and take no lock; all
// other methods exclude each other.
type Index struct {
	table atomic.Pointer[table]

	size    atomic.Int64 // of holders
	mu      sync.Mutex
	holders []*holder // by number, nil where there is none
	bytes   int
	limit   int // of bytes
	clock   uint64
}

// holder is what is known of one cache, apart from what the nodes say.
type holder struct {
	capacity int // blocks
	blocks   int // it has
	used     queue
}

// node is a run of blocks that so far always came together, in the tree of all prefixes. It is found by the hash of its
// first block, which stands for all before it too.
type node struct {
	first uint64
	run   atomic.Pointer[run]
	last  []uint64 // when each of the run's holds was last used
	rest  *node    // what was split off: a use of this node from before is one of that too
}

// run is what a node is made of. It is never changed, but replaced.
type run struct {
	hashes []uint64
	holds  []hold
}

// hold says that a holder has the first blocks of a run.
type hold struct {
	holder uint32
	blocks uint32
}

// bytesOf is about what a run takes, with its node, its place in the table and in the queues.
func bytesOf(hashes, holds int) int {
	const fixed, perHash, perHold = 160, 8, 40
	return fixed + perHash*hashes + perHold*holds
}

// DefaultMaxBytes is what an index may take if nobody says otherwise: 30 million tokens in prompts of a thousand.
const DefaultMaxBytes = 20 << 20

// NewIndex returns an empty index that takes about as many bytes at most.
func NewIndex(limit int) *Index {
	x := &Index{limit: limit}
	x.table.Store(newTable(minTable))
	return x
}

// Add makes room for the prefixes of one more cache, of so many blocks, and returns its number.
func (x *Index) Add(capacity int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := &holder{capacity: capacity}
	if i := slices.Index(x.holders, nil); i >= 0 {
		x.holders[i] = h
		return i
	}
	x.holders = append(x.holders, h)
	x.size.Store(int64(len(x.holders)))
	return len(x.holders) - 1
}

// Remove forgets a cache and all that it held.
func (x *Index) Remove(number int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.evict(number, x.holders[number].blocks)
	x.holders[number] = nil
}

// Resize says that a cache has another capacity.
func (x *Index) Resize(number, capacity int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.holders[number]
	if h == nil {
		return
	}
	h.capacity = capacity
	x.evict(number, h.blocks-h.capacity)
}

// Len returns how many caches there can be: their numbers are below it.
func (x *Index) Len() int { return int(x.size.Load()) }

// Stats are the figures of an index.
type Stats struct {
	Nodes, Bytes, Blocks int
}

// Stats returns the figures of now.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := Stats{Nodes: x.table.Load().live, Bytes: x.bytes}
	for _, h := range x.holders {
		if h != nil {
			s.Blocks += h.blocks
		}
	}
	return s
}

// Holds returns how many blocks a cache is believed to have, and how many it has room for; 0 of one that is not there.
func (x *Index) Holds(number int) (blocks, capacity int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if number < 0 || number >= len(x.holders) || x.holders[number] == nil {
		return 0, 0
	}
	h := x.holders[number]
	return h.blocks, h.capacity
}

// Match sets, for each cache by its number, how many blocks of the chain it has from the first on. matched must be zero;
// caches whose numbers are beyond its end are left out.
func (x *Index) Match(chain []uint64, matched []int) {
	t := x.table.Load()
	for at := 0; at < len(chain); {
		n := t.find(chain[at])
		if n == nil {
			return
		}
		r := n.run.Load()
		same := common(r.hashes, chain[at:])
		whole := false // somebody has all of it
		for _, h := range r.holds {
			if int(h.holder) >= len(matched) || matched[h.holder] != at {
				continue
			}
			got := min(int(h.blocks), same)
			matched[h.holder] = at + got
			whole = whole || got == same
		}
		if !whole || same < len(r.hashes) {
			return
		}
		at += same
	}
}

// common is how many blocks two runs with the same first block share. A hash stands for all blocks up to its own, so
// that where two are the same all before them are.
func common(a, b []uint64) int {
	n := min(len(a), len(b))
	if a[n-1] == b[n-1] {
		return n
	}
	low, high := 1, n-1 // [0, low) is the same, high is not
	for low < high {
		if mid := (low + high) / 2; a[mid] == b[mid] {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// Use says that a cache has all blocks of the chain from now on, and that they were its last use.
func (x *Index) Use(number int, chain []uint64) {
	if len(chain) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.holders[number]
	if h == nil {
		return // it went while its request was on its way
	}
	var path []*node
	for at := 0; at < len(chain); {
		rest := chain[at:]
		n := x.table.Load().find(rest[0])
		if n == nil {
			n = x.insert(&run{hashes: slices.Clone(rest)})
		}
		same := common(n.run.Load().hashes, rest)
		if same < len(n.run.Load().hashes) {
			x.split(n, same)
		}
		x.hold(n, number, same)
		path = append(path, n)
		at += same
	}
	// The end of a prefix is given up before its start: it is the older in the queue.
	for _, n := range slices.Backward(path) {
		x.touch(n, number)
	}
	x.evict(number, h.blocks-h.capacity)
	x.shrink()
}

// Fill says that a cache has so many further blocks that no prefix is known of: answers, or what others
// have asked.
func (x *Index) Fill(number, blocks int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.holders[number]; h != nil && blocks > 0 {
		h.blocks += blocks
		h.used.push(use{blocks: blocks})
		x.evict(number, h.blocks-h.capacity)
	}
}

// insert adds a node for a run.
func (x *Index) insert(r *run) *node {
	n := &node{first: r.hashes[0]}
	n.run.Store(r)
	t := x.table.Load()
	if t.full() {
		t = t.grown()
		x.table.Store(t)
	}
	t.insert(n)
	x.bytes += bytesOf(len(r.hashes), len(r.holds))
	return n
}

// split makes two nodes of one: the first blocks stay.
func (x *Index) split(n *node, at int) {
	r := n.run.Load()
	head, tail := &run{hashes: r.hashes[:at:at]}, &run{hashes: r.hashes[at:]}
	var last []uint64
	for i, h := range r.holds {
		head.holds = append(head.holds, hold{h.holder, min(h.blocks, uint32(at))})
		if h.blocks > uint32(at) {
			tail.holds = append(tail.holds, hold{h.holder, h.blocks - uint32(at)})
			last = append(last, n.last[i])
		}
	}
	if len(tail.holds) > 0 { // else everybody has given it up
		second := x.insert(tail) // before the first is cut, so that nobody misses it
		second.last, second.rest = last, n.rest
		n.rest = second
	}
	n.run.Store(head)
	x.bytes -= bytesOf(len(tail.hashes), 0) - bytesOf(0, 0)
}

// hold makes a cache a holder of the first blocks of a node.
func (x *Index) hold(n *node, number, blocks int) {
	r := n.run.Load()
	i := r.find(number)
	if i >= 0 && int(r.holds[i].blocks) >= blocks {
		return
	}
	next := &run{hashes: r.hashes, holds: slices.Clone(r.holds)}
	if i >= 0 {
		x.holders[number].blocks += blocks - int(r.holds[i].blocks)
		next.holds[i].blocks = uint32(blocks)
	} else {
		x.holders[number].blocks += blocks
		x.bytes += bytesOf(0, 1) - bytesOf(0, 0)
		next.holds = append(next.holds, hold{uint32(number), uint32(blocks)})
		n.last = append(n.last, 0)
	}
	n.run.Store(next)
}

func (r *run) find(number int) int {
	return slices.IndexFunc(r.holds, func(h hold) bool { return int(h.holder) == number })
}

// touch notes that a holder has just used a node.
func (x *Index) touch(n *node, number int) {
	x.clock++
	n.last[n.run.Load().find(number)] = x.clock
	x.holders[number].used.push(use{node: n, at: x.clock})
}

// evict takes so many blocks from a cache, those that were used longest ago first, and of one use the last first.
func (x *Index) evict(number, blocks int) {
	h := x.holders[number]
	blocks = min(blocks, h.blocks)
	for blocks > 0 {
		u := h.used.pop()
		taken := 0
		if u.node == nil {
			taken = min(blocks, u.blocks)
			u.blocks -= taken
		} else if n, i := oldest(u, number); n != nil {
			taken = x.take(n, i, blocks)
		}
		if taken > 0 {
			h.used.unpop(u) // there may be more of it
		}
		h.blocks -= taken
		blocks -= taken
	}
	h.used.compact(func(u use) bool {
		n, _ := oldest(u, number)
		return n != nil || u.blocks > 0
	})
}

// oldest returns the last node that a use was the last use of, and the place of the cache's hold there; nil if all of
// them have been used again, or were given up.
func oldest(u use, number int) (*node, int) {
	var found *node
	at := -1
	for n := u.node; n != nil; n = n.rest {
		if i := n.run.Load().find(number); i >= 0 && n.last[i] == u.at {
			found, at = n, i
		}
	}
	return found, at
}

// take takes up to so many of the last blocks of a hold and returns how many it took.
func (x *Index) take(n *node, i, blocks int) int {
	r := n.run.Load()
	has := int(r.holds[i].blocks)
	if blocks >= has {
		x.drop(n, i)
		return has
	}
	next := &run{hashes: r.hashes, holds: slices.Clone(r.holds)}
	next.holds[i].blocks -= uint32(blocks)
	n.run.Store(next)
	return blocks
}

// drop removes one holder of a node, and the node with the last of them.
func (x *Index) drop(n *node, i int) {
	r := n.run.Load()
	next := &run{hashes: r.hashes, holds: slices.Delete(slices.Clone(r.holds), i, i+1)}
	n.last = slices.Delete(n.last, i, i+1)
	n.run.Store(next)
	x.bytes -= bytesOf(0, 1) - bytesOf(0, 0)
	if len(next.holds) == 0 {
		x.bytes -= bytesOf(len(r.hashes), 0)
		x.table.Load().remove(n)
	}
}

// shrink takes blocks from all caches alike until the index is within its limit.
func (x *Index) shrink() {
	for x.bytes > x.limit {
		some := false
		for number, h := range x.holders {
			if h != nil && h.blocks > 0 {
				x.evict(number, max(h.blocks/16, 1))
				some = true
			}
		}
		if !some {
			return
		}
	}
}
