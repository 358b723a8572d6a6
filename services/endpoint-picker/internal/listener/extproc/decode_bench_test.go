package extproc

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// BenchmarkDecode is what a gateway's messages cost to read.
func BenchmarkDecode(b *testing.B) {
	var raw []mem.SliceBuffer
	for _, in := range seeds() {
		one, err := proto.Marshal(in)
		require.NoError(b, err)
		raw = append(raw, one)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, in := range raw {
			var m Message
			if err := testDecoder.decodeMessage(in, &m); err != nil {
				b.Fatal(err)
			}
		}
	}
}
