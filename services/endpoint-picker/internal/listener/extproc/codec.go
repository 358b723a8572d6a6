package extproc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// NewCodec encodes the replies of streams without generated code. Other services of the server use gRPC's own codec.
func NewCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

// Marshal writes a reply. gRPC frees the result.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*Reply); ok {
		return encodeReply(r), nil
	}
	return c.CodecV2.Marshal(v)
}
