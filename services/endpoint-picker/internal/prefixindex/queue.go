package prefixindex

// nodeUse is one use of a node by a cache, or blocks without a node.
type nodeUse struct {
	node   *node
	at     uint64
	blocks int
}

// useQueue contains a cache's uses, oldest first. A further use of a node is appended, and the earlier one stays: its time
// shows that it is not the last one.
type useQueue struct {
	uses       []nodeUse // valid from first on
	first      int
	lastLength int // number of uses after the last compact
}

func (q *useQueue) pushUse(u nodeUse) { q.uses = append(q.uses, u) }

// oldestUse returns the oldest use. The queue must not be empty.
func (q *useQueue) oldestUse() nodeUse { return q.uses[q.first] }

// popOldest removes and returns the oldest use. The queue must not be empty.
func (q *useQueue) popOldest() nodeUse {
	u := q.uses[q.first]
	q.uses[q.first] = nodeUse{}
	q.first++
	return u
}

// restoreOldest puts back the use of the last pop.
func (q *useQueue) restoreOldest(u nodeUse) {
	q.first--
	q.uses[q.first] = u
}

// compactUses removes obsolete uses when they are as many as the current ones.
func (q *useQueue) compactUses(counts func(nodeUse) bool) {
	const least = 64
	if len(q.uses) < 2*q.lastLength+least {
		return
	}
	remaining := q.uses[:0]
	for _, u := range q.uses[q.first:] {
		if counts(u) {
			remaining = append(remaining, u)
		}
	}
	clear(q.uses[len(remaining):])
	q.uses, q.first, q.lastLength = remaining, 0, len(remaining)
}
