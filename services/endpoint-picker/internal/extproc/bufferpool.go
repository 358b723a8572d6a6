package extproc

import "google.golang.org/grpc/mem"

// bufferPool is where messages and bodies that came in several frames are joined. gRPC's own pool has nothing between 32 KiB
// and 1 MiB, and clears the whole of what it takes back: a body of 67 kB would hold a megabyte, and cost clearing it.
var bufferPool = mem.NewTieredBufferPool(1<<8, 1<<12, 1<<13, 1<<14, 1<<15, 1<<16, 96<<10, 1<<17, 1<<18, 1<<19, 1<<20)
