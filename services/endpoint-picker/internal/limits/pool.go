package limits

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// classSizes are the sizes of pooled buffers. gRPC does not return buffers of 1 KiB and less (mem.NewBuffer). A frame has at most
// 16 KiB. gRPC's own pool has no sizes between 32 KiB and 1 MiB, and clears whole buffers when it takes them back: a body of 67 kB would
// use a megabyte, and the time to clear it. Larger buffers are allocated and left to the garbage collector: the pool would keep memory for
// the largest body ever seen.
var classSizes = [...]int{1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 96 << 10, 1 << 17, 1 << 18, 1 << 19, 1 << 20}

// BlockOverhead is the memory of a block besides its bytes: the block, its lease and cleanup, the mem.Buffer around it, and its place in
// gRPC's queues (250 bytes, measured with frames of one byte). For frames of 16 KiB it is 2 %.
const BlockOverhead = 256

// classes contain the blocks that nobody uses, for all servers of the process.
var classes [len(classSizes)]sync.Pool

// A block is a buffer. Its lease says who has it.
type block struct {
	lent   []byte // the part that was asked for. The first field, so that Put can find the block
	buffer []byte
	class  *sync.Pool // nil if it is not pooled
	lease  *lease
}

// A lease is the part of a block that outlives it. Buffers get lost: gRPC does not return the unread frames of a stream that
// ended. They count until the garbage collector has freed them.
type lease struct {
	holder atomic.Pointer[Account]
	charge int64
}

// returnBytes returns the bytes to the account, once.
func (l *lease) returnBytes() bool {
	a := l.holder.Swap(nil)
	if a == nil {
		return false
	}
	a.AddUse(Bytes, -l.charge)
	return true
}

// A BufferPool is the mem.BufferPool of one account: it counts the bytes that a listener and its handlers hold for the
// client. The buffers come from the classes of all accounts. They are not cleared.
type BufferPool struct{ account *Account }

// BufferPool returns the pool of the account.
func (a *Account) BufferPool() BufferPool { return BufferPool{a} }

// Get returns a buffer.
func (p BufferPool) Get(length int) *[]byte {
	b := newBlock(length)
	b.lent = b.buffer[:length]
	b.lease.holder.Store(p.account)
	p.account.AddUse(Bytes, b.lease.charge)
	return &b.lent
}

// Put takes back a buffer of Get.
func (BufferPool) Put(buffer *[]byte) {
	b := (*block)(unsafe.Pointer(buffer)) //nolint:gosec // Get returned the address of the block's first field
	if !b.lease.returnBytes() {
		return
	}
	b.lent = nil
	if b.class != nil {
		b.class.Put(b)
	}
}

// newBlock returns a block of at least length bytes that nobody uses.
func newBlock(length int) *block {
	size, class := length, (*sync.Pool)(nil)
	for i := range classSizes {
		if length <= classSizes[i] {
			size, class = classSizes[i], &classes[i]
			break
		}
	}
	if class != nil {
		if b, ok := class.Get().(*block); ok {
			return b
		}
	}
	b := &block{buffer: make([]byte, size), class: class, lease: &lease{charge: int64(size + BlockOverhead)}}
	runtime.AddCleanup(b, func(l *lease) { l.returnBytes() }, b.lease)
	return b
}
