//go:build system

package peers

import (
	_ "unsafe" // for go:linkname

	_ "google.golang.org/grpc/mem" // the linked variable belongs to it
)

// poolingThreshold is the variable of package fairshare, to measure a server with gRPC's own value.
//
//go:linkname poolingThreshold google.golang.org/grpc/internal/mem.BufferPoolingThreshold
var poolingThreshold int
