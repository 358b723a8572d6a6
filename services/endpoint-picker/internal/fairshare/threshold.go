package fairshare

import (
	_ "unsafe" // for go:linkname

	_ "google.golang.org/grpc/mem" // the linked variable belongs to it
)

// poolingThreshold is gRPC's own variable. gRPC allocates buffers of up to this size (1 KiB) instead of taking them from the
// pool of the server, so nothing counts them. A message of 32 MiB in frames of one byte each would hold 1.5 GiB that way, for
// 320 MiB on the wire. With 0 all frames come from the pool. gRPC has no public setting for it. TestSmallFramesCount fails if
// a new version of gRPC ignores this variable.
//
//go:linkname poolingThreshold google.golang.org/grpc/internal/mem.BufferPoolingThreshold
var poolingThreshold int

func init() { poolingThreshold = 0 }
