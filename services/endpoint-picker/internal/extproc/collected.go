package extproc

import (
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// minPiece is how long a piece must be to be kept as it came, in bytes. Each that is holds memory of its own: a gateway
// that sends single bytes could else hold many times its body.
const minPiece = 1 << 10

// errBuffered means that the budget is used up.
var errBuffered = errors.New("too many request bodies are buffered")

// A Budget is how many bytes of bodies may be held at a time. A nil Budget has no end.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget returns a Budget of so many bytes; of 0 it is nil.
func NewBudget(limit int) *Budget {
	if limit == 0 {
		return nil
	}
	return &Budget{limit: int64(limit)}
}

// Used returns how many bytes are held.
func (b *Budget) Used() int {
	if b == nil {
		return 0
	}
	return int(b.used.Load())
}

func (b *Budget) take(n int) bool {
	if b == nil || b.used.Add(int64(n)) <= b.limit {
		return true
	}
	b.used.Add(int64(-n))
	return false
}

func (b *Budget) give(n int) {
	if b != nil {
		b.used.Add(int64(-n))
	}
}

// collected is what has come of a request's body.
type collected struct {
	pieces mem.BufferSlice
	tail   mem.SliceBuffer // behind pieces: small ones, joined
	size   int             // bytes
	budget *Budget
	owed   int // bytes of the budget, also of what was taken
}

// add takes a piece over, which may be nil. It reports whether there was room for it.
func (b *collected) add(piece mem.Buffer) bool {
	if piece == nil {
		return true
	}
	n := piece.Len()
	if !b.budget.take(n) {
		piece.Free()
		return false
	}
	b.size += n
	b.owed += n
	if n < minPiece {
		b.tail = append(b.tail, piece.ReadOnlyData()...)
		piece.Free()
		return true
	}
	b.close()
	b.pieces = append(b.pieces, piece)
	return true
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
		whole := b.pieces.MaterializeToBuffer(bufferPool)
		b.pieces.Free()
		b.pieces = append(b.pieces[:0], whole)
	}
	return b.pieces[0].ReadOnlyData()
}

// take returns the body in one piece, nil if it is empty, and forgets it. It still counts until it is released.
func (b *collected) take() mem.Buffer {
	var whole mem.Buffer
	if b.bytes() != nil {
		whole = b.pieces[0]
	}
	b.pieces, b.size = nil, 0
	return whole
}

// release says that what was taken is no longer held.
func (b *collected) release() {
	b.budget.give(b.owed - b.size)
	b.owed = b.size
}

// drop forgets the body.
func (b *collected) drop() {
	b.pieces.Free()
	b.pieces, b.tail, b.size = nil, nil, 0
	b.release()
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
