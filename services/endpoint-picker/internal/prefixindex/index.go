package prefixindex

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// Index maps prefixes to the caches that hold them.
//
// MatchChain and Slots are safe for concurrent use and take no lock. All other methods are safe for concurrent use, too, and
// exclude each other by mu, which is a leaf: no other lock is taken while it is held.
//
// Invariants, under mu:
//
//   - node.lastUses is parallel to run.residencies of the node's current run: the i-th entry is the time of the last use of the
//     i-th residency. Whoever replaces a run changes lastUses in the same step. Readers in MatchChain load the run without mu, and so
//     must not read lastUses.
//   - holder.blocks is the sum of the holder's residencies in all nodes and of its occupied blocks in the queue.
//   - A slot is given to the next cache only after all residencies of the previous one are gone.
type Index struct {
	table atomic.Pointer[nodeTable]
	slots atomic.Int64 // length of holders

	memory  atomic.Pointer[MemoryBudget]
	counted atomic.Int64 // bytes that the memory knows of; changed with mu held

	mu          sync.Mutex
	holders     []*holder // by slot, nil if unused
	generations uint32    // caches added so far
	bytes       int
	clock       uint64 // counts uses
}

// A Handle identifies one cache during its life. The slot of a removed cache is given to the next one, but the generation is
// not: a handle of a removed cache has no effect any more, so a stream that ends long after its server was replaced does not
// change the account of the new server. The zero Handle identifies no cache.
type Handle struct {
	slot, generation uint32
}

// holder is the state of one cache, except for the data in the nodes.
type holder struct {
	generation uint32
	capacity   int // blocks
	blocks     int // current number of blocks
	uses       useQueue
	ages       useAges
}

// node is a run of blocks in the tree of all prefixes that so far always occurred together. Its key is the hash of its first
// block, which includes all blocks before it.
type node struct {
	first    uint64
	run      atomic.Pointer[run]
	lastUses []uint64 // time of the last use of each of the run's residencies; guarded by Index.mu
	tail     *node    // the node split off this one; uses in queues that are older than the split refer to both
}

// run is the content of a node. It is replaced, never changed.
type run struct {
	hashes      []uint64
	residencies []residency
}

// A residency says that the cache in a slot has the first blocks of a run. At their end it is resumable if a prompt of the cache ended
// there, or left the others there: all blocks of the run are then in the cache.
type residency struct {
	slot      uint32
	blocks    uint32
	resumable bool
}

// runBytes returns the approximate memory of a run, including its node and its places in the table and in the queues.
func runBytes(hashes, residencies int) int {
	const fixed, perHash, perResidency = 160, 8, 44
	return fixed + perHash*hashes + perResidency*residencies
}

// DefaultMaxBytes is the default limit of an index: 30 million tokens in prompts of a thousand. That is the KV cache of 64
// servers of an 8B model on one recent GPU. In package simulation, half and double change nothing. With too little the index
// forgets prefixes that servers still have; more is only memory.
const DefaultMaxBytes = 20 << 20

// ReleaseMemory ends the use of a shared memory. The index keeps its content.
func (x *Index) ReleaseMemory() {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.memory.Swap(NewMemoryBudget(x.bytes))
	m.removeIndex(x)
}

// AddCache adds a cache with a capacity in blocks.
func (x *Index) AddCache(capacity int) Handle {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.generations++
	h := &holder{generation: x.generations, capacity: capacity}
	slot := slices.Index(x.holders, nil)
	if slot < 0 {
		slot = len(x.holders)
		x.holders = append(x.holders, nil)
		x.slots.Store(int64(len(x.holders)))
	}
	x.holders[slot] = h
	return Handle{slot: uint32(slot), generation: h.generation}
}

// holderOf returns the holder of a handle, or nil if its cache was removed.
func (x *Index) holderOf(c Handle) *holder {
	if int(c.slot) >= len(x.holders) {
		return nil
	}
	if h := x.holders[c.slot]; h != nil && h.generation == c.generation {
		return h
	}
	return nil
}

// RemoveCache removes a cache and its content.
func (x *Index) RemoveCache(c Handle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.holderOf(c); h != nil {
		x.evictBlocks(c.slot, h.blocks)
		x.holders[c.slot] = nil
		x.updateMemory()
	}
}

// ResizeCache changes the capacity of a cache.
func (x *Index) ResizeCache(c Handle, capacity int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.holderOf(c); h != nil {
		h.capacity = capacity
		x.evictBlocks(c.slot, h.blocks-h.capacity)
	}
}

// Slots returns the upper bound of the slots of caches.
func (x *Index) Slots() int { return int(x.slots.Load()) }

// Slot returns the position of the cache in the result of MatchChain.
func (c Handle) Slot() int { return int(c.slot) }

// Stats are the sizes of an index, also on the debug page.
type Stats struct {
	Nodes  int `json:"nodes"`
	Bytes  int `json:"bytes"`
	Blocks int `json:"blocks"`
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

// CountUses returns the number of uses so far.
func (x *Index) CountUses() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.clock
}

// CacheSize returns the estimated blocks of a cache and its capacity; 0 for a removed cache.
func (x *Index) CacheSize(c Handle) (blocks, capacity int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.holderOf(c); h != nil {
		return h.blocks, h.capacity
	}
	return 0, 0
}

// MatchChain sets, for each cache by its slot, the number of blocks that it has from the start of the chain, and the number of them from
// whose end an engine can continue that keeps the state of some layers (of a sliding window, or recurrent ones) only where that is
// known to be of use: at the end of each prompt, and where a prompt left an earlier one, for those that come after it. matched and
// resumable must be zero; caches with slots beyond their ends are skipped.
func (x *Index) MatchChain(chain []uint64, matched, resumable []int) {
	t := x.table.Load()
	for at := 0; at < len(chain); {
		n := t.findNode(chain[at])
		if n == nil {
			return
		}
		r := n.run.Load()
		same := commonLength(r.hashes, chain[at:])
		matchedAll := false // a cache has all of it
		for _, h := range r.residencies {
			if int(h.slot) >= len(matched) || matched[h.slot] != at {
				continue
			}
			got := min(int(h.blocks), same)
			matched[h.slot] = at + got
			matchedAll = matchedAll || got == same
		}
		if len(resumable) > 0 {
			r.markResumable(at, matched, resumable)
		}
		if !matchedAll || same < len(r.hashes) {
			return
		}
		at += same
	}
}

// markResumable sets resumable for a run at a place of a chain, after matched.
func (r *run) markResumable(at int, matched, resumable []int) {
	for _, h := range r.residencies {
		if slot := int(h.slot); h.resumable && slot < min(len(matched), len(resumable)) && matched[slot] == at+int(h.blocks) {
			resumable[slot] = matched[slot]
		}
	}
}

// commonLength returns the number of blocks that two runs with the same first block share. A hash includes all earlier
// blocks, so equal hashes have equal predecessors.
func commonLength(a, b []uint64) int {
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

// A Stamp is the time of a use, for WithdrawUse and ExpireUntil.
type Stamp uint64

// UseChain records that a cache has, and has just used, all blocks of the chain.
func (x *Index) UseChain(c Handle, chain []uint64) Stamp { return x.ReuseChain(c, chain, &Reuse{}) }

// ReuseChain is UseChain, and describes the part of the chain that the cache had before.
func (x *Index) ReuseChain(c Handle, chain []uint64, r *Reuse) Stamp {
	r.count, r.Resumable = 0, 0
	if len(chain) == 0 {
		return 0
	}
	defer func() { // without the lock: another index may have to give way
		if m := x.memory.Load(); m.isFull() {
			m.shrinkLargest()
		}
	}()
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.holderOf(c)
	if h == nil {
		return 0 // the cache was removed while the request was on its way
	}
	// The end of a prefix is evicted before its start: it is older in the queue.
	for _, n := range slices.Backward(x.useNodes(c.slot, chain, r)) {
		x.recordUse(n, c.slot)
	}
	stamp := Stamp(x.clock)
	x.evictBlocks(c.slot, h.blocks-h.capacity)
	x.enforceLimit()
	return stamp
}

// useNodes makes a cache a holder of the nodes of a chain, and returns them. The cache is then resumable at the end of the chain, and at
// the end of the part that it had before.
func (x *Index) useNodes(slot uint32, chain []uint64, r *Reuse) (path []*node) {
	h := x.holders[slot]
	whole := 0 // nodes that the cache had, of the first ones
	h.ages.startMark(x.clock)
	for at := 0; at < len(chain); {
		n := x.nodeOf(chain[at:])
		same := len(n.run.Load().hashes)
		held, last := n.residencyOf(slot)
		had := int(held.blocks)
		if whole == len(path) && had > 0 {
			r.addSpan(Span{End: int32(at + had), Distance: int32(min(h.ages.distanceOf(last, x.clock), math.MaxInt32)), Last: Stamp(last)})
			if held.resumable {
				r.Resumable = int32(at + had)
			}
			if had == same {
				whole++
			}
		}
		h.ages.countUsed(had, last)
		h.ages.countUsed(same-had, 0)
		held.blocks, held.resumable = uint32(same), held.resumable || at+same == len(chain)
		x.setResidency(n, held)
		path = append(path, n)
		at += same
	}
	if whole > 0 {
		n := path[whole-1]
		held, _ := n.residencyOf(slot)
		held.resumable = true
		x.setResidency(n, held)
	}
	return path
}

// WithdrawUse takes back a use: the cache did not get the chain. Its first blocks, which it had before, stay, and so do blocks
// with a later use.
func (x *Index) WithdrawUse(c Handle, chain []uint64, had int, used Stamp) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.holderOf(c)
	if h == nil {
		return
	}
	for at := 0; at < len(chain); {
		n := x.table.Load().findNode(chain[at])
		if n == nil {
			return
		}
		r := n.run.Load()
		same := commonLength(r.hashes, chain[at:])
		i := r.findResidency(c.slot)
		if i < 0 {
			return
		}
		if excess := at + int(r.residencies[i].blocks) - max(at, had); excess > 0 && n.lastUses[i] <= uint64(used) {
			h.blocks -= x.cutResidency(n, i, excess)
		}
		if int(r.residencies[i].blocks) < len(r.hashes) {
			return // it has no more of the chain
		}
		at += same
	}
}

// OccupyBlocks records further blocks of a cache without a known prefix: answers, or prompts that others placed.
func (x *Index) OccupyBlocks(c Handle, blocks int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.holderOf(c); h != nil && blocks > 0 {
		h.blocks += blocks
		h.ages.startMark(x.clock)
		h.ages.countUsed(blocks, 0)
		x.clock++
		h.uses.pushUse(nodeUse{blocks: blocks, at: x.clock})
		x.evictBlocks(c.slot, h.blocks-h.capacity)
	}
}

// An Entry is a part of a cache that was used at one time: a run of blocks of a prompt, which may begin in its middle, or blocks
// without a known prefix.
type Entry struct {
	Slot   int // of the cache
	Hashes []uint64
	Blocks int // without a known prefix; 0 if there are Hashes
}

// Entries returns the content of all caches. Those of one cache are in the order of their last use, so that UseChain and OccupyBlocks in
// this order give an empty index the same content. It takes time in proportion to the size of the index, and UseChain waits for it.
func (x *Index) Entries() []Entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	entries := make([]Entry, 0, x.table.Load().live)
	for slot, h := range x.holders {
		if h == nil {
			continue
		}
		for _, u := range h.uses.uses[h.uses.first:] {
			entries = appendEntries(entries, u, uint32(slot))
		}
	}
	return entries
}

// appendEntries appends what a use still stands for: the end of a prompt before its start, because it is evicted first.
func appendEntries(to []Entry, u nodeUse, slot uint32) []Entry {
	if u.node == nil {
		if u.blocks > 0 {
			to = append(to, Entry{Slot: int(slot), Blocks: u.blocks})
		}
		return to
	}
	from := len(to)
	for n := u.node; n != nil; n = n.tail {
		r := n.run.Load()
		if i := r.findResidency(slot); i >= 0 && n.lastUses[i] == u.at {
			to = append(to, Entry{Slot: int(slot), Hashes: r.hashes[:r.residencies[i].blocks]})
		}
	}
	slices.Reverse(to[from:])
	return to
}
