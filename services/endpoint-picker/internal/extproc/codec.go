package extproc

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec moves messages between gRPC and the wire without the code that is generated for them: in Unmarshal into a
// *Message, in Marshal from a *Reply. Whatever else is served beside is left to gRPC's own codec.
type codec struct {
	decoder
	generated encoding.CodecV2
}

// ServerOption makes a gRPC server able to serve s. It must be given to the server that s is registered with.
func (s *Server) ServerOption() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{decoder: s.decoder, generated: encoding.GetCodecV2(proto.Name)})
}

// Name is the one that gateways know.
func (codec) Name() string { return proto.Name }

// Marshal writes a reply. gRPC frees the result.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*Reply); ok {
		return encode(r), nil
	}
	return c.generated.Marshal(v) //nolint:wrapcheck // it is gRPC's own
}

// Unmarshal reads a message. gRPC frees the data.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*Message)
	if !ok {
		return c.generated.Unmarshal(data, v) //nolint:wrapcheck // it is gRPC's own
	}
	in := data.MaterializeToBuffer(bufferPool)
	defer in.Free()
	if err := c.decode(in, m); err != nil {
		return fmt.Errorf("read ProcessingRequest: %w", err)
	}
	return nil
}
