package prefixindex

import "slices"

// The methods of this file change the tree and the holders. Callers hold Index.mu.

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
		head.residencies = append(head.residencies, residency{h.slot, min(h.blocks, uint32(at))})
		if h.blocks > uint32(at) {
			tail.residencies = append(tail.residencies, residency{h.slot, h.blocks - uint32(at)})
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

// addResidency makes a cache a holder of the first blocks of a node.
func (x *Index) addResidency(n *node, slot uint32, blocks int) {
	r := n.run.Load()
	i := r.findResidency(slot)
	if i >= 0 && int(r.residencies[i].blocks) >= blocks {
		return
	}
	next := &run{hashes: r.hashes, residencies: slices.Clone(r.residencies)}
	if i >= 0 {
		x.holders[slot].blocks += blocks - int(r.residencies[i].blocks)
		next.residencies[i].blocks = uint32(blocks)
	} else {
		x.holders[slot].blocks += blocks
		x.bytes += runBytes(0, 1) - runBytes(0, 0)
		next.residencies = append(next.residencies, residency{slot, uint32(blocks)})
		n.lastUses = append(n.lastUses, 0)
	}
	n.run.Store(next)
}

// findResidency returns the index of a cache's residency, or -1.
func (r *run) findResidency(slot uint32) int {
	return slices.IndexFunc(r.residencies, func(h residency) bool { return h.slot == slot })
}

// cachedBlocks returns the number of blocks of the node that a cache has, and the time of their last use.
func (n *node) cachedBlocks(slot uint32) (blocks int, last uint64) {
	r := n.run.Load()
	if i := r.findResidency(slot); i >= 0 {
		return int(r.residencies[i].blocks), n.lastUses[i]
	}
	return 0, 0
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
	next.residencies[i].blocks -= uint32(blocks)
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
