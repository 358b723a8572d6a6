package httpproxy

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
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

	first   sync.Once
	leaving atomic.Bool
}

// Accept implements net.Listener. Some time after the first connection, a process before this one is gone.
func (p *sharedPort) Accept() (net.Conn, error) {
	c, err := p.TCPListener.Accept()
	if err == nil {
		p.first.Do(func() {
			time.AfterFunc(2*handshakeTime, func() {
				if !p.leaving.Load() {
					_ = steerConns(p.TCPListener, oldest)
				}
			})
		})
	}
	return c, err
}

// handOver gives new connections to the next process. It returns when those that had begun before have been accepted, because the kernel
// resets what a closed socket has not accepted.
func (p *sharedPort) handOver(ctx context.Context) {
	p.leaving.Store(true)
	if steerConns(p.TCPListener, successor) != nil {
		return // the kernel chooses, and resets some
	}
	select {
	case <-ctx.Done():
	case <-time.After(handshakeTime):
	}
}
