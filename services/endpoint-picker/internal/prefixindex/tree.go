package prefixindex

import "slices"

// The methods of this file change the tree and the holders. Callers hold Index.mu.

// nodeOf returns the node that the rest of a chain begins with, all blocks of which are the chain's. It adds or splits one if necessary.
func (x *Index) nodeOf(rest []uint64) *node {
	n := x.table.Load().findNode(rest[0])
	if n == nil {
		return x.addNode(&run{hashes: slices.Clone(rest)})
	}
	if same := commonLength(n.run.Load().hashes, rest); same < len(n.run.Load().hashes) {
		x.splitNode(n, same)
	}
	return n
}

// addNode adds a node for a run.
func (x *Index) addNode(r *run) *node {
	n := &node{first: r.hashes[0]}
	n.run.Store(r)
	t := x.table.Load()
	if t.isFull() {
		t = t.growCopy()
		x.table.Store(t)
	}
	t.insertNode(n)
	x.bytes += runBytes(len(r.hashes), len(r.residencies))
	return n
}

// splitNode divides a node in two: the first blocks stay.
func (x *Index) splitNode(n *node, at int) {
	r := n.run.Load()
	head, tail := &run{hashes: r.hashes[:at:at]}, &run{hashes: r.hashes[at:]}
	var lastUses []uint64 // of the tail; those of the head stay as they are
	for i, h := range r.residencies {
		head.residencies = append(head.residencies, residency{slot: h.slot, blocks: min(h.blocks, uint32(at))})
		if h.blocks > uint32(at) {
			tail.residencies = append(tail.residencies, residency{h.slot, h.blocks - uint32(at), h.resumable})
			lastUses = append(lastUses, n.lastUses[i])
		}
	}
	if len(tail.residencies) > 0 { // else all holders have evicted it
		second := x.addNode(tail) // before the first is cut, so that concurrent readers find it
		second.lastUses, second.tail = lastUses, n.tail
		n.tail = second
	}
	n.run.Store(head)
	x.bytes -= runBytes(len(tail.hashes), 0) - runBytes(0, 0)
}

// setResidency makes a cache a holder of the first blocks of a node, or of more of them.
func (x *Index) setResidency(n *node, h residency) {
	r := n.run.Load()
	i := r.findResidency(h.slot)
	if i >= 0 && r.residencies[i] == h {
		return
	}
	next := &run{hashes: r.hashes, residencies: slices.Clone(r.residencies)}
	if i >= 0 {
		x.holders[h.slot].blocks += int(h.blocks) - int(r.residencies[i].blocks)
		next.residencies[i] = h
	} else {
		x.holders[h.slot].blocks += int(h.blocks)
		x.bytes += runBytes(0, 1) - runBytes(0, 0)
		next.residencies = append(next.residencies, h)
		n.lastUses = append(n.lastUses, 0)
	}
	n.run.Store(next)
}

// findResidency returns the index of a cache's residency, or -1.
func (r *run) findResidency(slot uint32) int {
	return slices.IndexFunc(r.residencies, func(h residency) bool { return h.slot == slot })
}

// residencyOf returns the residency of a cache in the node, without blocks if it has none, and the time of its last use.
func (n *node) residencyOf(slot uint32) (h residency, last uint64) {
	r := n.run.Load()
	if i := r.findResidency(slot); i >= 0 {
		return r.residencies[i], n.lastUses[i]
	}
	return residency{slot: slot}, 0
}

// recordUse records that a holder has just used a node.
func (x *Index) recordUse(n *node, slot uint32) {
	x.clock++
	n.lastUses[n.run.Load().findResidency(slot)] = x.clock
	x.holders[slot].uses.pushUse(nodeUse{node: n, at: x.clock})
}

// evictBlocks removes blocks from a cache, least recently used first, and within one use from the end.
func (x *Index) evictBlocks(slot uint32, blocks int) {
	h := x.holders[slot]
	blocks = min(blocks, h.blocks)
	for blocks > 0 {
		u := h.uses.popOldest()
		evicted := 0
		if u.node == nil {
			evicted = min(blocks, u.blocks)
			u.blocks -= evicted
		} else if n, i := lastNodeOf(u, slot); n != nil {
			evicted = x.cutResidency(n, i, blocks)
		}
		if evicted > 0 {
			h.uses.restoreOldest(u) // more of it may remain
		}
		h.blocks -= evicted
		blocks -= evicted
	}
	h.uses.compactUses(func(u nodeUse) bool {
		n, _ := lastNodeOf(u, slot)
		return n != nil || u.blocks > 0
	})
}

// lastNodeOf returns the last node whose last use is u, and the index of the cache's residency in it; nil if all nodes were used
// again or evicted.
func lastNodeOf(u nodeUse, slot uint32) (*node, int) {
	var found *node
	at := -1
	for n := u.node; n != nil; n = n.tail {
		if i := n.run.Load().findResidency(slot); i >= 0 && n.lastUses[i] == u.at {
			found, at = n, i
		}
	}
	return found, at
}

// cutResidency removes up to the given number of blocks from the end of a residency and returns their number.
func (x *Index) cutResidency(n *node, i, blocks int) int {
	r := n.run.Load()
	has := int(r.residencies[i].blocks)
	if blocks >= has {
		x.dropResidency(n, i)
		return has
	}
	next := &run{hashes: r.hashes, residencies: slices.Clone(r.residencies)}
	next.residencies[i] = residency{slot: r.residencies[i].slot, blocks: uint32(has - blocks)}
	n.run.Store(next)
	return blocks
}

// dropResidency removes a holder of a node, and the node with its last holder.
func (x *Index) dropResidency(n *node, i int) {
	r := n.run.Load()
	next := &run{hashes: r.hashes, residencies: slices.Delete(slices.Clone(r.residencies), i, i+1)}
	n.lastUses = slices.Delete(n.lastUses, i, i+1)
	n.run.Store(next)
	x.bytes -= runBytes(0, 1) - runBytes(0, 0)
	if len(next.residencies) == 0 {
		x.bytes -= runBytes(len(r.hashes), 0)
		x.table.Load().removeNode(n)
	}
}

// limitShare is the part of each cache that enforceLimit evicts at a time: 1/16.
const limitShare = 16

// updateMemory tells the memory of the bytes.
func (x *Index) updateMemory() {
	bytes := int64(x.bytes)
	x.memory.Load().used.Add(bytes - x.counted.Swap(bytes))
}

// enforceLimit evicts blocks from all caches evenly until the index is within its limit.
func (x *Index) enforceLimit() {
	m := x.memory.Load()
	for x.updateMemory(); m.isOver(x.bytes); x.updateMemory() {
		evicted := false
		for slot, h := range x.holders {
			if h != nil && h.blocks > 0 {
				x.evictBlocks(uint32(slot), max(h.blocks/limitShare, 1))
				evicted = true
			}
		}
		if !evicted {
			return
		}
	}
}
