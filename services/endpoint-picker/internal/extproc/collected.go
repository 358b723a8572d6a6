package extproc

import (
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// minPiece is the minimum length of a piece to be stored as it came, in bytes. Each stored piece has memory overhead: a
// gateway that sends single bytes could otherwise use many times the size of its body.
const minPiece = 1 << 10

// errBuffered means that the budget is used up.
var errBuffered = errors.New("too many request bodies are buffered")

// A Budget limits the bytes of bodies in memory. A nil Budget has no limit.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget returns a Budget of limit bytes, or nil for 0.
func NewBudget(limit int) *Budget {
	if limit == 0 {
		return nil
	}
	return &Budget{limit: int64(limit)}
}

// Used returns the number of bytes in memory.
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
	if b != nil && n > 0 {
		b.used.Add(int64(-n))
	}
}

// collected is the received part of a request's body.
type collected struct {
	pieces mem.BufferSlice
	tail   mem.SliceBuffer // small pieces after pieces, joined
	size   int             // bytes
	budget *Budget
	owed   int // bytes of the budget, including taken ones
}

// add takes over a piece, which may be nil. It reports whether the budget allows it.
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

// close converts the tail to a piece.
func (b *collected) close() {
	if len(b.tail) > 0 {
		b.pieces = append(b.pieces, b.tail)
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
		whole := b.pieces.MaterializeToBuffer(bufferPool)
		b.pieces.Free()
		b.pieces = append(b.pieces[:0], whole)
	}
	return b.pieces[0].ReadOnlyData()
}

// take removes and returns the body in one piece, nil if it is empty. It counts until release.
func (b *collected) take() mem.Buffer {
	var whole mem.Buffer
	if b.bytes() != nil {
		whole = b.pieces[0]
	}
	b.pieces, b.size = nil, 0
	return whole
}

// release returns the bytes of the taken body to the budget.
func (b *collected) release() {
	b.budget.give(b.owed - b.size)
	b.owed = b.size
}

// drop discards the body.
func (b *collected) drop() {
	b.pieces.Free()
	b.pieces, b.tail, b.size = nil, nil, 0
	b.release()
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
