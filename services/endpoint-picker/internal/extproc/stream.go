package extproc

import (
	"container/list"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// errExpired means that the gateway took too long. The request is refused.
var errExpired = errors.New("the gateway took too long")

// A phase is who may send to the gateway.
type phase = uint32

const (
	handling  phase = iota // the handler
	receiving              // nobody: the handler waits for a message
	expired                // whoever has ended the wait
)

// stream is the stream of one request. Its handler calls all methods except expire.
type stream struct {
	grpc.ServerStream

	machine *Machine
	phase   atomic.Uint32
	waiting *list.Element // its place among the streams with a deadline, nil if it has none
}

// receive waits for the next message.
func (s *stream) receive(m *Message) error {
	s.phase.Store(receiving)
	err := s.RecvMsg(m)
	if !s.phase.CompareAndSwap(receiving, handling) {
		s.machine.Refuse(exchange.TimedOut())
		return errExpired
	}
	return err
}

// expire answers the request of a stream that waits for a message. Any goroutine may call it.
func (s *stream) expire() {
	if s.phase.CompareAndSwap(receiving, expired) {
		_ = s.SendMsg(&Reply{Kind: Immediate, Refusal: exchange.TimedOut()}) // the gateway may be gone
	}
}
