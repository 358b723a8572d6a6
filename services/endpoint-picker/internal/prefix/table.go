package prefix

import "sync/atomic"

// minTable is how many places the smallest table has; all have a power of two.
const minTable = 1 << 10

// table finds nodes by the hash of their first block: open addressing, one writer, readers without a lock.
type table struct {
	places []atomic.Pointer[node]
	live   int
	gone   int // places of nodes that were removed
}

// gone stands where a node was, so that those behind it are still found.
var gone = &node{}

func newTable(size int) *table { return &table{places: make([]atomic.Pointer[node], size)} }

func (t *table) find(hash uint64) *node {
	mask := uint64(len(t.places) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch n := t.places[i].Load(); {
		case n == nil:
			return nil
		case n.first == hash && n != gone:
			return n
		}
	}
}

// full tells whether one more would make searches long.
func (t *table) full() bool { return 4*(t.live+t.gone+1) > 3*len(t.places) }

// grown returns a table of the same nodes with room for as many again.
func (t *table) grown() *table {
	size := minTable
	for size < 4*(t.live+1) {
		size *= 2
	}
	next := newTable(size)
	for i := range t.places {
		if n := t.places[i].Load(); n != nil && n != gone {
			next.insert(n)
		}
	}
	return next
}

// insert adds a node that is not there.
func (t *table) insert(n *node) {
	mask := uint64(len(t.places) - 1)
	for i := n.first & mask; ; i = (i + 1) & mask {
		switch t.places[i].Load() {
		case gone:
			t.gone--
		case nil:
		default:
			continue
		}
		t.places[i].Store(n)
		t.live++
		return
	}
}

// remove takes a node out that is there.
func (t *table) remove(n *node) {
	mask := uint64(len(t.places) - 1)
	for i := n.first & mask; ; i = (i + 1) & mask {
		if t.places[i].Load() == n {
			t.places[i].Store(gone)
			t.live--
			t.gone++
			return
		}
	}
}
