package prefixindex

import "sync/atomic"

// minTable is the minimum number of places of a table. The number is always a power of two.
const minTable = 1 << 10

// table finds nodes by the hash of their first block: open addressing, one writer, lock-free readers.
type table struct {
	places []atomic.Pointer[node]
	live   int
	gone   int // places of removed nodes
}

// gone replaces a removed node, so that nodes after it are still found.
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

// full reports whether another node would make searches long.
func (t *table) full() bool { return 4*(t.live+t.gone+1) > 3*len(t.places) }

// grown returns a table with the same nodes and room for as many more.
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

// insert adds a new node.
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

// remove removes an existing node.
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
