package extproc

import (
	"container/list"
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// errExpired means that the gateway took too long. The request is refused.
var errExpired = errors.New("the gateway took too long")

// The phases of a stream say who may use its machine.
const (
	handling  uint32 = iota // the handler
	receiving               // nobody: the handler waits for a message
	expired                 // expire, and the handler after that
)

// stream is the stream of one request. Its handler calls all methods except expire.
type stream struct {
	grpc.ServerStream

	machine *Machine
	phase   atomic.Uint32
	expiry  sync.Mutex    // held while expire uses the machine
	waiting *list.Element // its place among the streams with a deadline, nil if it has none
}

// receive waits for the next message.
func (s *stream) receive(m *Message) error {
	s.phase.Store(receiving)
	err := s.RecvMsg(m)
	if s.phase.CompareAndSwap(receiving, handling) {
		return err
	}
	s.expiry.Lock() // until expire has ended
	defer s.expiry.Unlock()
	if body := m.take(); body != nil {
		body.Free()
	}
	return errExpired
}

// expire refuses the request of a stream that waits for a message, and frees its memory. Any goroutine may call it: the
// handler, which waits, does not use the machine until then, and only ends it after that.
func (s *stream) expire() {
	s.expiry.Lock()
	defer s.expiry.Unlock()
	if !s.phase.CompareAndSwap(receiving, expired) {
		return
	}
	replies := s.machine.Refuse(exchange.TimedOut())
	_, _ = send(s.ServerStream, replies) // the gateway may be gone
}
