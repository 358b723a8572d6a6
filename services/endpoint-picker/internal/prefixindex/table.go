package prefixindex

import "sync/atomic"

// minTable is the minimum number of places of a table. The number is always a power of two.
const minTable = 1 << 10

// nodeTable finds nodes by the hash of their first block: open addressing, one writer, lock-free readers.
type nodeTable struct {
	places  []atomic.Pointer[node]
	live    int
	removed int // places of removed nodes
}

// removedNode replaces a removed node, so that nodes after it are still found.
var removedNode = &node{}

func newNodeTable(size int) *nodeTable { return &nodeTable{places: make([]atomic.Pointer[node], size)} }

func (t *nodeTable) findNode(hash uint64) *node {
	mask := uint64(len(t.places) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch n := t.places[i].Load(); {
		case n == nil:
			return nil
		case n.first == hash && n != removedNode:
			return n
		}
	}
}

// isFull reports whether another node would make searches long.
func (t *nodeTable) isFull() bool { return 4*(t.live+t.removed+1) > 3*len(t.places) }

// growCopy returns a table with the same nodes and room for as many more.
func (t *nodeTable) growCopy() *nodeTable {
	size := minTable
	for size < 4*(t.live+1) {
		size *= 2
	}
	next := newNodeTable(size)
	for i := range t.places {
		if n := t.places[i].Load(); n != nil && n != removedNode {
			next.insertNode(n)
		}
	}
	return next
}

// insertNode adds a new node.
func (t *nodeTable) insertNode(n *node) {
	mask := uint64(len(t.places) - 1)
	for i := n.first & mask; ; i = (i + 1) & mask {
		switch t.places[i].Load() {
		case removedNode:
			t.removed--
		case nil:
		default:
			continue
		}
		t.places[i].Store(n)
		t.live++
		return
	}
}

// removeNode removes an existing node.
func (t *nodeTable) removeNode(n *node) {
	mask := uint64(len(t.places) - 1)
	for i := n.first & mask; ; i = (i + 1) & mask {
		if t.places[i].Load() == n {
			t.places[i].Store(removedNode)
			t.live--
			t.removed++
			return
		}
	}
}
