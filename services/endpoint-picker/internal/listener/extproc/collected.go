package extproc

import "google.golang.org/grpc/mem"

// minPiece is the minimum length of a piece to be stored as it came, in bytes. Each stored piece has memory overhead: a
// gateway that sends single bytes could otherwise use many times the size of its body.
const minPiece = 1 << 10

// tailSize is the size of a buffer for small pieces.
const tailSize = 16 << 10

// bodyBuffer is the received part of a request's body.
type bodyBuffer struct {
	pieces     mem.BufferSlice
	tail       *[]byte // the small pieces that follow pieces, joined; nil without such pieces
	size       int     // bytes
	bufferPool mem.BufferPool
}

// addPiece takes over a piece, which may be nil.
func (b *bodyBuffer) addPiece(piece mem.Buffer) {
	if piece == nil {
		return
	}
	n := piece.Len()
	b.size += n
	if n < minPiece {
		b.appendSmall(piece.ReadOnlyData())
		piece.Free()
		return
	}
	b.sealTail()
	b.pieces = append(b.pieces, piece)
}

// appendSmall adds a small piece to the tail, in a buffer of the pool.
func (b *bodyBuffer) appendSmall(small []byte) {
	if b.tail == nil {
		b.tail = b.bufferPool.Get(tailSize)
		*b.tail = (*b.tail)[:0]
	}
	*b.tail = append(*b.tail, small...)
	if len(*b.tail) > tailSize-minPiece {
		b.sealTail()
	}
}

// sealTail converts the tail to a piece.
func (b *bodyBuffer) sealTail() {
	if b.tail != nil {
		b.pieces = append(b.pieces, mem.NewBuffer(b.tail, b.bufferPool))
		b.tail = nil
	}
}

// joinPieces returns the body without moving it, or nil if it is empty.
func (b *bodyBuffer) joinPieces() []byte {
	b.sealTail()
	switch len(b.pieces) {
	case 0:
		return nil
	case 1:
	default:
		joined := b.pieces.MaterializeToBuffer(b.bufferPool)
		b.pieces.Free()
		b.pieces = append(b.pieces[:0], joined)
	}
	return b.pieces[0].ReadOnlyData()
}

// detachAll removes and returns the body in one piece, nil if it is empty.
func (b *bodyBuffer) detachAll() mem.Buffer {
	var joined mem.Buffer
	if b.joinPieces() != nil {
		joined = b.pieces[0]
	}
	b.pieces, b.size = nil, 0
	return joined
}

// freeAll discards the body.
func (b *bodyBuffer) freeAll() {
	b.sealTail()
	b.pieces.Free()
	b.pieces, b.size = nil, 0
}

// bodySize returns the length of the body in the message.
func (m *Message) bodySize() int {
	if m.Body == nil {
		return 0
	}
	return m.Body.Len()
}

// detachBody transfers the message's body to the caller.
func (m *Message) detachBody() mem.Buffer {
	b := m.Body
	m.Body = nil
	return b
}

// freeBody frees the message's body, unless it was taken.
func (m *Message) freeBody() {
	if b := m.detachBody(); b != nil {
		b.Free()
	}
}
