package prefixindex

// use is one use of a node by a cache, or blocks without a node.
type use struct {
	node   *node
	at     uint64
	blocks int
}

// queue contains a cache's uses, oldest first. A further use of a node is appended, and the earlier one stays: its time
// shows that it is not the last one.
type queue struct {
	uses  []use // valid from first on
	first int
	kept  int // number of uses after the last compact
}

func (q *queue) push(u use) { q.uses = append(q.uses, u) }

// oldest returns the oldest use. The queue must not be empty.
func (q *queue) oldest() use { return q.uses[q.first] }

// pop removes and returns the oldest use. The queue must not be empty.
func (q *queue) pop() use {
	u := q.uses[q.first]
	q.uses[q.first] = use{}
	q.first++
	return u
}

// unpop puts back the use of the last pop.
func (q *queue) unpop(u use) {
	q.first--
	q.uses[q.first] = u
}

// compact removes obsolete uses when they are as many as the current ones.
func (q *queue) compact(counts func(use) bool) {
	const least = 64
	if len(q.uses) < 2*q.kept+least {
		return
	}
	kept := q.uses[:0]
	for _, u := range q.uses[q.first:] {
		if counts(u) {
			kept = append(kept, u)
		}
	}
	clear(q.uses[len(kept):])
	q.uses, q.first, q.kept = kept, 0, len(kept)
}
