package grpcserver

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// A reply is an encoded message of a Stream on its way to the codec.
type reply struct {
	stream *Stream
	data   mem.BufferSlice
}

// A codec passes replies on, encodes the messages of other services as gRPC does, and adds a marker to the end of each reply: an empty
// buffer, which gRPC frees when it has written the reply or dropped it. So a stream counts as long as gRPC keeps it for a client that
// does not read: SendMsg returns when a reply is in gRPC's queue, and ended streams stay in memory until their queue has been sent. A
// marker also counts as a buffer of the client, which is about what gRPC needs for a short reply.
type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*reply)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	r.stream.waits.Add(1)
	observer := (*sendObserver)(r.stream)
	return append(r.data, mem.NewBuffer(observer.Get(0), observer)), nil
}

// A sendObserver is the pool of a stream's markers.
type sendObserver Stream

// Get implements mem.BufferPool.
func (o *sendObserver) Get(length int) *[]byte { return o.client.account.BufferPool().Get(length) }

// Put is called when a reply has been sent or dropped.
func (o *sendObserver) Put(marker *[]byte) {
	o.client.account.BufferPool().Put(marker)
	if s := (*Stream)(o); s.waits.Add(-1) == 0 {
		s.removeFromClient()
	}
}
