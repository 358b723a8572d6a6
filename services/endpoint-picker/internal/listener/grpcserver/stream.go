package grpcserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

const (
	// MaxHeadersMessage is the maximum size of a message with the headers of a request or a response. Envoy accepts 60 KiB of headers by
	// default; the rest is for metadata, such as the addresses of a subset (128 KiB for 6000 of them).
	MaxHeadersMessage = 256 << 10
	// bodyMessageRoom is for the metadata and attributes of a message with a body.
	bodyMessageRoom = 256 << 10

	// pieceSize is the part of a large message that is read at once. gRPC takes no buffers of the pool for frames of up to 1 KiB, so a
	// piece counts as if it came in frames of one byte until it is complete: 112 KiB. At half the value, large bodies cost twice as many
	// reads: those of 400 kB take 0.77 to 0.87 ms of CPU with these, and 0.72 with pieces of 128 KiB. At double, a gateway whose network
	// stalls within messages counts for twice as much.
	pieceSize = 2 << 10
	// smallSize is the size of messages that are read at once, without a copy. They count like a piece, up to 448 KiB, but gateways send
	// them in one frame, so the rest of the message is there when its length is.
	smallSize = 8 << 10
	// frameOverhead is the memory of a frame of one byte: its entry in a slice of buffers, the slice of its byte, and the byte.
	frameOverhead = 56
	// backlogBytes is the memory of small frames that nobody reads: beyond it, gRPC joins them in a buffer of the pool.
	backlogBytes = 1024 * frameOverhead

	// checkedSize is the size of messages beyond which the client's share is checked with each piece.
	checkedSize = 128 << 10

	// discardTimeout is the time for a client to notice a refusal.
	discardTimeout = time.Second

	discardSize = 16 << 10 // a frame

	lengthPrefix = 5 // a byte for compression and four for the length: PROTOCOL-HTTP2.md of gRPC
)

// A TimeoutError means that a stream was in a state for too long.
type TimeoutError struct{ State string }

// Error implements error.
func (e *TimeoutError) Error() string { return "timeout of " + e.State }

// A MessageSizeError means that the next message is larger than the state allows. The message was not read.
type MessageSizeError struct{ Size, Limit int }

// Error implements error.
func (e *MessageSizeError) Error() string {
	return fmt.Sprintf("message of %d bytes exceeds the limit of %d bytes", e.Size, e.Limit)
}

// A StreamState is a state of streams.
type StreamState struct {
	Name       string        // for errors, such as "request headers"
	Timeout    time.Duration // maximum time in the state; 0 for no limit
	MaxMessage int           // maximum size of a message received in the state
	// Evictable allows to end the stream if its client holds more memory than its share and does not return it. Streams that wait
	// for a request are evictable, those that wait for a response are not.
	Evictable bool
}

// MaxBodyMessage returns the maximum size of a message with a body of at most size bytes.
func MaxBodyMessage(size int) int { return size + bodyMessageRoom }

// transportStream contains the methods of gRPC's own streams that Streams need.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
}

// A Stream is a stream of a client with deadlines. Its methods may be called by one goroutine, except that Context is for all.
// When a deadline passes, or the stream is evicted, its context is canceled and the method that waits returns the reason
// (TimeoutError or limits.ErrTooManyBytes). The handler can still send a reply then, unless the client did not read the one
// before.
type Stream struct {
	inner     grpc.ServerStream
	transport transportStream
	client    *client
	conn      *clientConn
	ctx       context.Context
	cancel    context.CancelCauseFunc // ends the stream for a reason
	reply     reply
	head      [lengthPrefix]byte

	state     atomic.Pointer[StreamState]
	deadline  atomic.Int64 // on the server's clock; 0 for none
	waits     atomic.Int64 // of the handler, and of each reply that was not sent
	phase     atomic.Int32
	refused   bool   // the limit was exceeded when the stream began
	position  uint64 // among all streams of the client
	heldBytes int64  // of AddHeldBytes

	// guarded by client.mu
	index   int  // in client.streams
	handled bool // the handler has returned
}

// The phases of a stream:
//
//	pending -> open -> left
//	pending ---------> left    gRPC refused the stream, for example because of its compression
const (
	pending int32 = iota
	open
	left
)

// starting is the state of a stream before OpenStream.
var starting = &StreamState{Name: "start"}

func newStream(ctx context.Context, cl *client, c *clientConn) *Stream {
	s := &Stream{client: cl, conn: c}
	ctx, s.cancel = context.WithCancelCause(ctx)
	s.ctx = context.WithValue(ctx, streamKey{}, s)
	s.waits.Store(1)
	s.EnterState(starting)
	return s
}

// OpenStream returns the Stream of a handler, in its first state. The handler must call Close when it returns.
func OpenStream(stream grpc.ServerStream, first *StreamState) (*Stream, error) {
	s := streamOf(stream.Context())
	transport, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(transportStream)
	if s == nil || !ok {
		return nil, status.Error(codes.Internal, "the stream does not belong to a server of package grpcserver")
	}
	if e := transport.RecvCompress(); e != "" && e != encoding.Identity {
		return nil, status.Error(codes.Unimplemented, "compressed messages are not supported")
	}
	s.inner, s.transport, s.reply.stream = stream, transport, s
	if !s.phase.CompareAndSwap(pending, open) {
		return nil, status.FromContextError(context.Cause(s.ctx)).Err()
	}
	s.EnterState(first)
	return s, nil
}

// unsent is the state of a stream whose handler has returned before all replies were sent.
var unsent = &StreamState{Name: "unsent reply"}

// Close must be called at the end of the handler. The stream counts for its client until the last reply is sent.
func (s *Stream) Close() {
	s.deadline.Store(s.deadlineAfter(s.client.server.params.SendTimeout)) // first: the old one may have passed
	s.state.Store(unsent)
	if s.waits.Add(-1) == 0 {
		s.removeFromClient()
		return
	}
	s.client.mu.Lock()
	s.handled = true
	lost := s.conn.isClosed
	s.client.mu.Unlock()
	if lost {
		s.removeFromClient()
	}
}

// removeFromClient removes an open stream from its client.
func (s *Stream) removeFromClient() {
	if s.phase.CompareAndSwap(open, left) {
		s.client.removeStream(s)
		s.client.account.AddUse(limits.Bytes, -s.heldBytes)
	}
}

// removeUnopened removes a stream that has ended without a handler.
func (s *Stream) removeUnopened() {
	if s.phase.Load() == pending && s.ctx.Err() != nil && s.phase.CompareAndSwap(pending, left) {
		s.client.removeStream(s)
	}
}

// Context returns the context of the stream. context.Cause returns the reason why it was canceled.
func (s *Stream) Context() context.Context { return s.ctx }

// BufferPool returns the pool for buffers that the handler needs for the client, such as those of bodies. They count for the client.
func (s *Stream) BufferPool() mem.BufferPool { return s.client.account.BufferPool() }

// AddHeldBytes counts n more bytes for the client until the end of the stream, for what the handler keeps elsewhere.
func (s *Stream) AddHeldBytes(n int) {
	s.heldBytes += int64(n)
	s.client.account.AddUse(limits.Bytes, int64(n))
}

// AdmitStream returns limits.ErrTooManyStreams if the handler must refuse the stream.
func (s *Stream) AdmitStream() error {
	if s.refused {
		return limits.ErrTooManyStreams
	}
	return nil
}

// AdmitBytes returns limits.ErrTooManyBytes if the client must not hold more.
func (s *Stream) AdmitBytes() error {
	if s.client.account.IsBeyondShare(limits.Bytes) {
		return limits.ErrTooManyBytes
	}
	return nil
}

// EnterState changes the state of the stream, and restarts its deadline.
func (s *Stream) EnterState(state *StreamState) {
	s.state.Store(state)
	s.deadline.Store(s.deadlineAfter(state.Timeout))
}

// WithoutDeadline calls f without the deadline of the state, which is later by the time of the call then: the client owes nothing
// meanwhile.
func (s *Stream) WithoutDeadline(f func()) {
	deadline, began := s.deadline.Swap(0), s.client.server.now.Load()
	f()
	if deadline != 0 {
		s.deadline.Store(deadline + s.client.server.now.Load() - began)
	}
}

// deadlineAfter returns the deadline after a timeout, on the server's clock, which is late by up to one interval. 0 is for no
// deadline.
func (s *Stream) deadlineAfter(timeout time.Duration) int64 {
	if timeout <= 0 {
		return 0
	}
	return s.client.server.now.Load() + int64(timeout+sweepInterval)
}

// ReceiveMessage waits for the next message and returns its bytes, which the caller must free. It returns io.EOF after the last one.
func (s *Stream) ReceiveMessage() (mem.Buffer, error) {
	if err := s.transport.ReadMessageHeader(s.head[:]); err != nil {
		return nil, s.endReason(err)
	}
	if s.head[0] != 0 {
		return nil, status.Error(codes.Unimplemented, "compressed messages are not supported")
	}
	size, limit := int(binary.BigEndian.Uint32(s.head[1:])), s.state.Load().MaxMessage
	if size > limit {
		return nil, &MessageSizeError{Size: size, Limit: limit}
	}
	ofState := s.deadline.Load()
	if ofMessage := s.deadlineAfter(s.client.server.params.MessageTimeout); ofMessage != 0 && (ofState == 0 || ofMessage < ofState) {
		s.deadline.Store(ofMessage)
	}
	message, err := s.readMessage(size)
	s.deadline.Store(ofState)
	if err != nil {
		return nil, s.endReason(err)
	}
	return message, nil
}

// readMessage reads the rest of a message. It allocates the whole message when half of it is there: a client that announces a large
// message and sends little of it gets no memory for it, and the memory is at most 1.5 times the message.
func (s *Stream) readMessage(size int) (mem.Buffer, error) {
	var pieces mem.BufferSlice
	defer func() { pieces.Free() }()
	if size <= smallSize {
		var err error
		if pieces, err = s.readFrames(size); err != nil {
			return nil, err
		}
		return pieces.MaterializeToBuffer(s.BufferPool()), nil
	}
	n := 0
	for n < size/2 {
		piece, err := s.readPiece(size, n)
		if err != nil {
			return nil, err
		}
		n += piece.Len()
		pieces = append(pieces, s.toPooledBuffer(piece)...)
	}
	buffer := s.BufferPool().Get(size)
	pieces.CopyTo(*buffer)
	pieces.Free()
	pieces = nil
	for n < size {
		piece, err := s.readPiece(size, n)
		if err != nil {
			s.BufferPool().Put(buffer)
			return nil, err
		}
		n += piece.CopyTo((*buffer)[n:])
		piece.Free()
	}
	return mem.NewBuffer(buffer, s.BufferPool()), nil
}

// toPooledBuffer returns a piece in one buffer of the pool: gRPC has taken other ones for small frames.
func (s *Stream) toPooledBuffer(piece mem.BufferSlice) mem.BufferSlice {
	if len(piece) == 1 {
		return piece
	}
	defer piece.Free()
	buffer := s.BufferPool().Get(piece.Len())
	piece.CopyTo(*buffer)
	return mem.BufferSlice{mem.NewBuffer(buffer, s.BufferPool())}
}

// readPiece reads the next piece of a message of which n bytes are there. It checks the share of the client first, if the message is large.
func (s *Stream) readPiece(size, n int) (mem.BufferSlice, error) {
	if size > checkedSize {
		if err := s.AdmitBytes(); err != nil {
			return nil, err
		}
	}
	return s.readFrames(min(size-n, pieceSize))
}

// readFrames reads size bytes, which count as if each were a frame until all are there.
func (s *Stream) readFrames(size int) (mem.BufferSlice, error) {
	s.client.account.AddUse(limits.Bytes, int64(size)*frameOverhead)
	defer s.client.account.AddUse(limits.Bytes, -int64(size)*frameOverhead)
	return s.transport.Read(size)
}

// endReason returns why the stream was ended, if this server ended it, and otherwise err.
func (s *Stream) endReason(err error) error {
	cause := context.Cause(s.ctx)
	if _, ok := errors.AsType[*TimeoutError](cause); ok || errors.Is(cause, limits.ErrTooManyBytes) {
		return cause
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Error(codes.Internal, err.Error())
	}
	return err
}

// sending is the state of a stream while SendReply waits.
var sending = &StreamState{Name: "unread reply"}

// SendReply sends an encoded reply, which it frees. It waits while the client does not read the replies before.
func (s *Stream) SendReply(data mem.BufferSlice) error {
	state, ofState := s.state.Load(), s.deadline.Load()
	s.state.Store(sending)
	s.deadline.Store(s.deadlineAfter(s.client.server.params.SendTimeout))
	s.reply.data = data
	err := s.inner.SendMsg(&s.reply)
	s.reply.data = nil
	s.deadline.Store(ofState)
	s.state.Store(state)
	if err != nil {
		return s.endReason(err)
	}
	return nil
}

// discarding is the state of a stream after a refusal.
var discarding = &StreamState{Name: "end after a refusal", Timeout: discardTimeout}

// SendRefusal sends the last reply to a client that may still send its request, and discards that until the client stops, for a second
// at most. Without this, gRPC would leave the frames that arrived in the meantime to the garbage collector, and they would
// count as long.
func (s *Stream) SendRefusal(reply mem.BufferSlice) error {
	if err := s.SendReply(reply); err != nil {
		return err
	}
	s.EnterState(discarding)
	for {
		frames, err := s.transport.Read(discardSize)
		if err != nil {
			return nil //nolint:nilerr // the client, or the timeout, has ended the stream: the refusal was sent before
		}
		frames.Free()
	}
}
