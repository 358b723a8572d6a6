package prefixindex

import "slices"

// The methods of this file change the tree and the holders. Callers hold Index.mu.

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
	var lastUses []uint64 // of the tail; those of the head stay as they are
	for i, h := range r.holds {
		head.holds = append(head.holds, hold{h.slot, min(h.blocks, uint32(at))})
		if h.blocks > uint32(at) {
			tail.holds = append(tail.holds, hold{h.slot, h.blocks - uint32(at)})
			lastUses = append(lastUses, n.lastUses[i])
		}
	}
	if len(tail.holds) > 0 { // else all holders have evicted it
		second := x.insert(tail) // before the first is cut, so that concurrent readers find it
		second.lastUses, second.tail = lastUses, n.tail
		n.tail = second
	}
	n.run.Store(head)
	x.bytes -= bytesOf(len(tail.hashes), 0) - bytesOf(0, 0)
}

// addHold makes a cache a holder of the first blocks of a node.
func (x *Index) addHold(n *node, slot uint32, blocks int) {
	r := n.run.Load()
	i := r.find(slot)
	if i >= 0 && int(r.holds[i].blocks) >= blocks {
		return
	}
	next := &run{hashes: r.hashes, holds: slices.Clone(r.holds)}
	if i >= 0 {
		x.holders[slot].blocks += blocks - int(r.holds[i].blocks)
		next.holds[i].blocks = uint32(blocks)
	} else {
		x.holders[slot].blocks += blocks
		x.bytes += bytesOf(0, 1) - bytesOf(0, 0)
		next.holds = append(next.holds, hold{slot, uint32(blocks)})
		n.lastUses = append(n.lastUses, 0)
	}
	n.run.Store(next)
}

// find returns the index of a cache's hold, or -1.
func (r *run) find(slot uint32) int {
	return slices.IndexFunc(r.holds, func(h hold) bool { return h.slot == slot })
}

// heldBy returns the number of blocks of the node that a cache has, and the time of their last use.
func (n *node) heldBy(slot uint32) (blocks int, last uint64) {
	r := n.run.Load()
	if i := r.find(slot); i >= 0 {
		return int(r.holds[i].blocks), n.lastUses[i]
	}
	return 0, 0
}

// recordUse records that a holder has just used a node.
func (x *Index) recordUse(n *node, slot uint32) {
	x.clock++
	n.lastUses[n.run.Load().find(slot)] = x.clock
	x.holders[slot].uses.push(use{node: n, at: x.clock})
}

// evict removes blocks from a cache, least recently used first, and within one use from the end.
func (x *Index) evict(slot uint32, blocks int) {
	h := x.holders[slot]
	blocks = min(blocks, h.blocks)
	for blocks > 0 {
		u := h.uses.pop()
		evicted := 0
		if u.node == nil {
			evicted = min(blocks, u.blocks)
			u.blocks -= evicted
		} else if n, i := lastNodeOf(u, slot); n != nil {
			evicted = x.cutHold(n, i, blocks)
		}
		if evicted > 0 {
			h.uses.unpop(u) // more of it may remain
		}
		h.blocks -= evicted
		blocks -= evicted
	}
	h.uses.compact(func(u use) bool {
		n, _ := lastNodeOf(u, slot)
		return n != nil || u.blocks > 0
	})
}

// lastNodeOf returns the last node whose last use is u, and the index of the cache's hold in it; nil if all nodes were used
// again or evicted.
func lastNodeOf(u use, slot uint32) (*node, int) {
	var found *node
	at := -1
	for n := u.node; n != nil; n = n.tail {
		if i := n.run.Load().find(slot); i >= 0 && n.lastUses[i] == u.at {
			found, at = n, i
		}
	}
	return found, at
}

// cutHold removes up to the given number of blocks from the end of a hold and returns their number.
func (x *Index) cutHold(n *node, i, blocks int) int {
	r := n.run.Load()
	has := int(r.holds[i].blocks)
	if blocks >= has {
		x.dropHold(n, i)
		return has
	}
	next := &run{hashes: r.hashes, holds: slices.Clone(r.holds)}
	next.holds[i].blocks -= uint32(blocks)
	n.run.Store(next)
	return blocks
}

// dropHold removes a holder of a node, and the node with its last holder.
func (x *Index) dropHold(n *node, i int) {
	r := n.run.Load()
	next := &run{hashes: r.hashes, holds: slices.Delete(slices.Clone(r.holds), i, i+1)}
	n.lastUses = slices.Delete(n.lastUses, i, i+1)
	n.run.Store(next)
	x.bytes -= bytesOf(0, 1) - bytesOf(0, 0)
	if len(next.holds) == 0 {
		x.bytes -= bytesOf(len(r.hashes), 0)
		x.table.Load().remove(n)
	}
}

// limitShare is the part of each cache that enforceLimit evicts at a time: 1/16. Half of it takes twice as many passes over
// the caches; twice as much forgets up to an eighth of a cache for one prompt.
const limitShare = 16

// count tells the memory of the bytes.
func (x *Index) count() {
	bytes := int64(x.bytes)
	x.memory.Load().used.Add(bytes - x.counted.Swap(bytes))
}

// enforceLimit evicts blocks from all caches evenly until the index is within its limit.
func (x *Index) enforceLimit() {
	m := x.memory.Load()
	for x.count(); m.isOver(x.bytes); x.count() {
		evicted := false
		for slot, h := range x.holders {
			if h != nil && h.blocks > 0 {
				x.evict(uint32(slot), max(h.blocks/limitShare, 1))
				evicted = true
			}
		}
		if !evicted {
			return
		}
	}
}
