package extproc

import "google.golang.org/grpc/mem"

// minPiece is how long a piece must be to be kept as it came, in bytes. Each that is holds memory of its own: a gateway
// that sends single bytes could else hold many times its body.
const minPiece = 1 << 10

// collected is what has come of a request's body.
type collected struct {
	pieces mem.BufferSlice
	tail   mem.SliceBuffer // behind pieces: small ones, joined
	size   int             // bytes
}

// add takes a piece over, which may be nil.
func (b *collected) add(piece mem.Buffer) {
	if piece == nil {
		return
	}
	b.size += piece.Len()
	if piece.Len() < minPiece {
		b.tail = append(b.tail, piece.ReadOnlyData()...)
		piece.Free()
		return
	}
	b.close()
	b.pieces = append(b.pieces, piece)
}

// close makes the tail a piece.
func (b *collected) close() {
	if len(b.tail) > 0 {
		b.pieces = append(b.pieces, b.tail)
		b.tail = nil
	}
}

// bytes returns the body, which stays where it is. It is nil if nothing came.
func (b *collected) bytes() []byte {
	b.close()
	switch len(b.pieces) {
	case 0:
		return nil
	case 1:
	default:
		whole := b.pieces.MaterializeToBuffer(mem.DefaultBufferPool())
		b.pieces.Free()
		b.pieces = append(b.pieces[:0], whole)
	}
	return b.pieces[0].ReadOnlyData()
}

// take returns the body in one piece and forgets it. It must not be empty.
func (b *collected) take() mem.Buffer {
	b.bytes()
	whole := b.pieces[0]
	*b = collected{}
	return whole
}

// drop forgets the body.
func (b *collected) drop() {
	b.pieces.Free()
	*b = collected{}
}

// size is how many bytes of a body the message has.
func (m *Message) size() int {
	if m.Body == nil {
		return 0
	}
	return m.Body.Len()
}

// take hands the message's body over.
func (m *Message) take() mem.Buffer {
	b := m.Body
	m.Body = nil
	return b
}
