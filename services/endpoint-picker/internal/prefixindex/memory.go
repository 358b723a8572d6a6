package prefixindex

import (
	"sync"
	"sync/atomic"
)

// A MemoryBudget is the approximate memory of several indexes together. One index may take all of it while the others need little. When
// all is taken, the largest index gives way to those with less than an equal part. It is safe for concurrent use.
type MemoryBudget struct {
	maxBytes int64
	used     atomic.Int64

	mu      sync.Mutex
	indexes []*Index
	count   atomic.Int64 // of indexes
}

// NewMemoryBudget returns a memory with an approximate limit in bytes.
func NewMemoryBudget(maxBytes int) *MemoryBudget { return &MemoryBudget{maxBytes: int64(maxBytes)} }

// NewIndex returns an empty index.
func (m *MemoryBudget) NewIndex() *Index {
	x := &Index{}
	x.table.Store(newNodeTable(minTable))
	x.memory.Store(m)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.indexes = append(m.indexes, x)
	m.count.Add(1)
	return x
}

// removeIndex frees the memory of an index.
func (m *MemoryBudget) removeIndex(x *Index) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, other := range m.indexes {
		if other == x {
			m.indexes = append(m.indexes[:i], m.indexes[i+1:]...)
			m.count.Add(-1)
			m.used.Add(-x.counted.Swap(0))
			return
		}
	}
}

// isFull reports whether more than the memory is used.
func (m *MemoryBudget) isFull() bool { return m.used.Load() > m.maxBytes }

// isOver reports whether an index must give way: it has more than its equal part of a full memory.
func (m *MemoryBudget) isOver(bytes int) bool {
	return m.isFull() && int64(bytes) > m.maxBytes/max(m.count.Load(), 1)
}

// shrinkLargest lets the largest indexes give way. The caller holds no lock.
func (m *MemoryBudget) shrinkLargest() {
	for range m.count.Load() {
		x := m.largestIndex()
		if x == nil || !m.isOver(int(x.counted.Load())) {
			return
		}
		x.mu.Lock()
		x.enforceLimit()
		x.mu.Unlock()
	}
}

func (m *MemoryBudget) largestIndex() *Index {
	m.mu.Lock()
	defer m.mu.Unlock()
	var largest *Index
	for _, x := range m.indexes {
		if largest == nil || x.counted.Load() > largest.counted.Load() {
			largest = x
		}
	}
	return largest
}
