package prefix

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Index maps prefixes to holders. Match and Len are safe for concurrent use and take no lock; all other methods exclude each
// other.
type Index struct {
	table atomic.Pointer[table]

	size    atomic.Int64 // of holders
	mu      sync.Mutex
	holders []*holder // by number, nil if unused
	bytes   int
	limit   int // in bytes
	clock   uint64
}

// holder is the state of one cache, except for the data in the nodes.
type holder struct {
	capacity int // blocks
	blocks   int // current number of blocks
	used     queue
}

// node is a run of blocks in the tree of all prefixes that so far always occurred together. Its key is the hash of its first
// block, which includes all blocks before it.
type node struct {
	first uint64
	run   atomic.Pointer[run]
	last  []uint64 // time of the last use of each of the run's holds
	rest  *node    // the part that was split off: an earlier use of this node is also a use of that part
}

// run is the content of a node. It is replaced, never changed.
type run struct {
	hashes []uint64
	holds  []hold
}

// hold says that a holder has the first blocks of a run.
type hold struct {
	holder uint32
	blocks uint32
}

// bytesOf returns the approximate memory of a run, including its node and its places in the table and in the queues.
func bytesOf(hashes, holds int) int {
	const fixed, perHash, perHold = 160, 8, 40
	return fixed + perHash*hashes + perHold*holds
}

// DefaultMaxBytes is the default limit of an index: 30 million tokens in prompts of a thousand.
const DefaultMaxBytes = 20 << 20

// NewIndex returns an empty index with an approximate limit in bytes.
func NewIndex(limit int) *Index {
	x := &Index{limit: limit}
	x.table.Store(newTable(minTable))
	return x
}

// Add adds a cache with a capacity in blocks, and returns its number.
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

// Remove removes a cache and its content.
func (x *Index) Remove(number int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.evict(number, x.holders[number].blocks)
	x.holders[number] = nil
}

// Resize changes the capacity of a cache.
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

// Len returns the upper bound of the caches' numbers.
func (x *Index) Len() int { return int(x.size.Load()) }

// Stats are the sizes of an index.
type Stats struct {
	Nodes, Bytes, Blocks int
}

// Stats returns the current sizes.
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

// Holds returns the estimated blocks of a cache and its capacity; 0 for an unknown cache.
func (x *Index) Holds(number int) (blocks, capacity int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if number < 0 || number >= len(x.holders) || x.holders[number] == nil {
		return 0, 0
	}
	h := x.holders[number]
	return h.blocks, h.capacity
}

// Match sets, for each cache by its number, the number of blocks that it has from the start of the chain. matched must be
// zero; caches with numbers beyond its end are skipped.
func (x *Index) Match(chain []uint64, matched []int) {
	t := x.table.Load()
	for at := 0; at < len(chain); {
		n := t.find(chain[at])
		if n == nil {
			return
		}
		r := n.run.Load()
		same := common(r.hashes, chain[at:])
		whole := false // a cache has all of it
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

// common returns the number of blocks that two runs with the same first block share. A hash includes all earlier blocks, so
// equal hashes have equal predecessors.
func common(a, b []uint64) int {
	n := min(len(a), len(b))
	if a[n-1] == b[n-1] {
		return n
	}
	low, high := 1, n-1 // [0, low) is equal, high is not
	for low < high {
		if mid := (low + high) / 2; a[mid] == b[mid] {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// Use records that a cache has, and has just used, all blocks of the chain.
func (x *Index) Use(number int, chain []uint64) {
	if len(chain) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.holders[number]
	if h == nil {
		return // the cache was removed during its request
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
	// The end of a prefix is evicted before its start: it is older in the queue.
	for _, n := range slices.Backward(path) {
		x.touch(n, number)
	}
	x.evict(number, h.blocks-h.capacity)
	x.shrink()
}

// Fill records further blocks of a cache without a known prefix: answers, or prompts of others.
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

// split divides a node in two: the first blocks stay.
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
	if len(tail.holds) > 0 { // else all holders have evicted it
		second := x.insert(tail) // before the first is cut, so that concurrent readers find it
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

// touch records that a holder has just used a node.
func (x *Index) touch(n *node, number int) {
	x.clock++
	n.last[n.run.Load().find(number)] = x.clock
	x.holders[number].used.push(use{node: n, at: x.clock})
}

// evict removes blocks from a cache, least recently used first, and within one use from the end.
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
			h.used.unpop(u) // more of it may remain
		}
		h.blocks -= taken
		blocks -= taken
	}
	h.used.compact(func(u use) bool {
		n, _ := oldest(u, number)
		return n != nil || u.blocks > 0
	})
}

// oldest returns the last node whose last use is u, and the index of the cache's hold in it; nil if all nodes were used
// again or evicted.
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

// take removes up to the given number of blocks from the end of a hold and returns their number.
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

// drop removes a holder of a node, and the node with its last holder.
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

// shrink evicts blocks from all caches evenly until the index is within its limit.
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
