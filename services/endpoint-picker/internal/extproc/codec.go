package extproc

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec encodes messages for gRPC without generated code: Unmarshal fills a *Message, Marshal encodes a *Reply. Other
// services of the server use gRPC's own codec.
type codec struct {
	decoder
	generated encoding.CodecV2
}

// ServerOption returns the option for a gRPC server that serves s. Pass it to the server that s is registered with.
func (s *Server) ServerOption() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{decoder: s.decoder, generated: encoding.GetCodecV2(proto.Name)})
}

// Name returns the name that gateways know.
func (codec) Name() string { return proto.Name }

// Marshal writes a reply. gRPC frees the result.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*Reply); ok {
		return encode(r), nil
	}
	return c.generated.Marshal(v) //nolint:wrapcheck // it is gRPC's own error
}

// Unmarshal reads a message. gRPC frees the data.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*Message)
	if !ok {
		return c.generated.Unmarshal(data, v) //nolint:wrapcheck // it is gRPC's own error
	}
	in := data.MaterializeToBuffer(bufferPool)
	defer in.Free()
	if err := c.decode(in, m); err != nil {
		return fmt.Errorf("read ProcessingRequest: %w", err)
	}
	return nil
}
