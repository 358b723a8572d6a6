package prefix

// use is one use of a node by a cache, or blocks that belong to no node.
type use struct {
	node   *node
	at     uint64
	blocks int
}

// queue holds a cache's uses, the oldest first. A node that is used again is put in again, and not taken out where it
// was: who pops it sees by its time that it is no longer the last.
type queue struct {
	uses  []use // from first on
	first int
	kept  int // how many compact left
}

func (q *queue) push(u use) { q.uses = append(q.uses, u) }

// pop returns the oldest. There must be one.
func (q *queue) pop() use {
	u := q.uses[q.first]
	q.uses[q.first] = use{}
	q.first++
	return u
}

// unpop puts back what was popped last.
func (q *queue) unpop(u use) {
	q.first--
	q.uses[q.first] = u
}

// compact removes uses that no longer count when they are as many as those that do.
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
