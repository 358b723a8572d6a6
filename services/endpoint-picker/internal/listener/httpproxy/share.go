package httpproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// handshakeTime is the time in which the connections that the kernel has begun to open for a socket arrive: they need an answer of their
// clients.
const handshakeTime = 500 * time.Millisecond

// The sockets of a shared port, by the order in which they were opened. When one is closed, the others move up.
const (
	oldest = iota
	successor
)

// A sharedPort is the socket of a port that the next process can open, too, before this one ends. The kernel gives each connection to one
// of the sockets, by a rule for all of them. If the rule names a socket that does not exist, there is one only, or the kernel chooses.
//
//	step                                      rule         connections
//	a process opens the port                  oldest       its own
//	the next process opens it, too            the same     of the first process. If that crashes, of the next one
//	the first process hands over, in a drain  successor    of the next process, also if it opens the port only now
//	half a second later, it closes its socket the same     of the next process, which is alone
//	the next process knows that               oldest       as in the first line
type sharedPort struct {
	*net.TCPListener

	first sync.Once
	mu    sync.Mutex // guards phase, and the order of rules
	phase phase
}

// phase is what a process has done about the rule of its port.
type phase uint8

const (
	opened  phase = iota // nothing: the rule may be that of a process before this one
	settled              // it has set the rule for the oldest socket, as no process before it is left
	leaving              // it has handed over
)

// Accept implements net.Listener. Some time after the first connection, a process before this one is gone.
func (p *sharedPort) Accept() (net.Conn, error) {
	c, err := p.TCPListener.Accept()
	if err == nil {
		p.first.Do(func() { time.AfterFunc(2*handshakeTime, p.settle) })
	}
	return c, err
}

// settle sets the rule for the oldest socket, unless this process has handed over.
func (p *sharedPort) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == opened {
		_ = steerConns(p.TCPListener, oldest)
		p.phase = settled
	}
}

// handOver gives new connections to the next process. It returns when those that had begun before have been accepted, because the kernel
// resets what a closed socket has not accepted.
func (p *sharedPort) handOver(ctx context.Context) {
	p.mu.Lock()
	err := steerConns(p.TCPListener, successor)
	p.phase = leaving
	p.mu.Unlock()
	if err != nil {
		return // the kernel chooses, and resets some
	}
	select {
	case <-ctx.Done():
	case <-time.After(handshakeTime):
	}
}
