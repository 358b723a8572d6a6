package extproc

import "google.golang.org/grpc/mem"

// maxPooledBuffer is the size of the largest buffer that is used again. Larger ones are left to the garbage collector, because
// a pool would keep the memory of a few large bodies alive. At half, bodies of more than 512 KiB allocate each time; at double,
// each idle buffer of a large body keeps 2 MiB.
const maxPooledBuffer = 1 << 20

// bufferPool joins messages and bodies that came in several frames. gRPC's own pool has no sizes between 32 KiB and 1 MiB,
// and clears whole buffers when it takes them back: a body of 67 kB would use a megabyte, and the time to clear it.
var bufferPool mem.BufferPool = boundedPool{
	mem.NewTieredBufferPool(1<<8, 1<<12, 1<<13, 1<<14, 1<<15, 1<<16, 96<<10, 1<<17, 1<<18, 1<<19, maxPooledBuffer),
}

// boundedPool is a pool without large buffers.
type boundedPool struct{ mem.BufferPool }

// Get returns a buffer.
func (p boundedPool) Get(length int) *[]byte {
	if length > maxPooledBuffer {
		b := make([]byte, length)
		return &b
	}
	return p.BufferPool.Get(length)
}

// Put takes a buffer back.
func (p boundedPool) Put(b *[]byte) {
	if cap(*b) <= maxPooledBuffer {
		p.BufferPool.Put(b)
	}
}
