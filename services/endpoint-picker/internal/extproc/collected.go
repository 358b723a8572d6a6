package extproc

import "google.golang.org/grpc/mem"

// minPiece is the minimum length of a piece to be stored as it came, in bytes. Each stored piece has memory overhead: a
// gateway that sends single bytes could otherwise use many times the size of its body.
const minPiece = 1 << 10

// tailSize is the size of a buffer for small pieces. At half the value, bodies of small pieces need twice as many buffers. At
// double, a body of one small piece holds 32 KiB.
const tailSize = 16 << 10

// collected is the received part of a request's body.
type collected struct {
	pieces  mem.BufferSlice
	tail    *[]byte // the small pieces that follow pieces, joined; nil without such pieces
	size    int     // bytes
	buffers mem.BufferPool
}

// add takes over a piece, which may be nil.
func (b *collected) add(piece mem.Buffer) {
	if piece == nil {
		return
	}
	n := piece.Len()
	b.size += n
	if n < minPiece {
		b.join(piece.ReadOnlyData())
		piece.Free()
		return
	}
	b.close()
	b.pieces = append(b.pieces, piece)
}

// join adds a small piece to the tail, in a buffer of the pool.
func (b *collected) join(small []byte) {
	if b.tail == nil {
		b.tail = b.buffers.Get(tailSize)
		*b.tail = (*b.tail)[:0]
	}
	*b.tail = append(*b.tail, small...)
	if len(*b.tail) > tailSize-minPiece {
		b.close()
	}
}

// close converts the tail to a piece.
func (b *collected) close() {
	if b.tail != nil {
		b.pieces = append(b.pieces, mem.NewBuffer(b.tail, b.buffers))
		b.tail = nil
	}
}

// bytes returns the body without moving it, or nil if it is empty.
func (b *collected) bytes() []byte {
	b.close()
	switch len(b.pieces) {
	case 0:
		return nil
	case 1:
	default:
		whole := b.pieces.MaterializeToBuffer(b.buffers)
		b.pieces.Free()
		b.pieces = append(b.pieces[:0], whole)
	}
	return b.pieces[0].ReadOnlyData()
}

// take removes and returns the body in one piece, nil if it is empty.
func (b *collected) take() mem.Buffer {
	var whole mem.Buffer
	if b.bytes() != nil {
		whole = b.pieces[0]
	}
	b.pieces, b.size = nil, 0
	return whole
}

// drop discards the body.
func (b *collected) drop() {
	b.close()
	b.pieces.Free()
	b.pieces, b.size = nil, 0
}

// size returns the length of the body in the message.
func (m *Message) size() int {
	if m.Body == nil {
		return 0
	}
	return m.Body.Len()
}

// take transfers the message's body to the caller.
func (m *Message) take() mem.Buffer {
	b := m.Body
	m.Body = nil
	return b
}

// free frees the message's body, unless it was taken.
func (m *Message) free() {
	if b := m.take(); b != nil {
		b.Free()
	}
}
