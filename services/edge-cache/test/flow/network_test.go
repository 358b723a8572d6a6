//go:build system || long

package flow

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// network is the link between a cache and the API server. It can be cut: connections are refused; or swallow: connections stay open, and
// nothing passes.
type network struct {
	listener net.Listener
	target   string

	mu        sync.Mutex
	state     string
	conns     map[net.Conn]struct{}
	bytes     int64
	accepted  int
	throttled time.Duration
	budget    int64 // bytes from the API server until the link is cut; 0 is no limit
}

const (
	linkUp      = "up"
	linkCut     = "cut"
	linkSwallow = "swallow"
)

func newNetwork(t *testing.T, target string) *network {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &network{listener: l, target: target, state: linkUp, conns: map[net.Conn]struct{}{}}
	t.Cleanup(func() { l.Close(); n.set(linkCut) })
	go n.accept()
	return n
}

func (n *network) address() string { return n.listener.Addr().String() }

// cutAfter brings the link up, and cuts it in the middle of whatever is sent after some bytes.
func (n *network) cutAfter(bytes int64) {
	n.set(linkUp)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.budget = bytes
}

// spend returns how many of the next bytes from the API server pass, and whether the link is cut after them.
func (n *network) spend(bytes int) (pass int, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.budget == 0 {
		return bytes, false
	}
	if int64(bytes) < n.budget {
		n.budget -= int64(bytes)
		return bytes, false
	}
	pass, n.budget = int(n.budget), 0
	return pass, true
}

// set changes the state of the link. A cut ends all connections.
func (n *network) set(state string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = state
	if state != linkCut {
		return
	}
	for c := range n.conns {
		c.Close()
	}
	clear(n.conns)
}

func (n *network) is(state string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state == state
}

func (n *network) accept() {
	for {
		c, err := n.listener.Accept()
		if err != nil {
			return
		}
		go n.serve(c)
	}
}

func (n *network) serve(c net.Conn) {
	n.mu.Lock()
	if n.state == linkCut {
		n.mu.Unlock()
		c.Close()
		return
	}
	n.accepted++
	n.conns[c] = struct{}{}
	n.mu.Unlock()
	up, err := net.Dial("tcp", n.target)
	if err != nil {
		c.Close()
		return
	}
	n.mu.Lock()
	n.conns[up] = struct{}{}
	n.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { n.pipe(up, c, func(bytes int) (int, bool) { return bytes, false }) })
	both.Go(func() { n.pipe(c, up, n.spend) })
	both.Wait()
}

// pipe copies until an end closes. While the link swallows, what was sent is lost, and the connection can only be closed.
func (n *network) pipe(to, from net.Conn, spend func(bytes int) (int, bool)) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for lost := false; ; {
		got, err := from.Read(buffer)
		lost = lost || n.is(linkSwallow)
		if lost && got > 0 {
			continue
		}
		n.mu.Lock()
		n.bytes += int64(got)
		wait := n.throttled
		n.mu.Unlock()
		if wait > 0 {
			time.Sleep(wait)
		}
		pass, cut := spend(got)
		if pass > 0 {
			if _, err := to.Write(buffer[:pass]); err != nil {
				return
			}
		}
		if cut {
			n.set(linkCut)
			return
		}
		if err != nil {
			return
		}
	}
}
