package extproc

import "google.golang.org/grpc/mem"

// bufferPool joins messages and bodies that came in several frames. gRPC's own pool has no sizes between 32 KiB and 1 MiB,
// and clears whole buffers when it takes them back: a body of 67 kB would use a megabyte, and the time to clear it.
var bufferPool = mem.NewTieredBufferPool(1<<8, 1<<12, 1<<13, 1<<14, 1<<15, 1<<16, 96<<10, 1<<17, 1<<18, 1<<19, 1<<20)
