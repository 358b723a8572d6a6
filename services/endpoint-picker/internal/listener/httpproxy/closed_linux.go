package httpproxy

import (
	"crypto/tls"
	"net"
	"syscall"
)

// closedByPeer reports whether the end of a TCP connection has arrived. It neither waits nor takes what else has arrived: within TLS, that
// is the end, too.
func closedByPeer(c net.Conn) bool {
	secure, isTLS := c.(*tls.Conn)
	if isTLS {
		c = secure.NetConn()
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	closed := false
	_ = raw.Control(func(fd uintptr) { // not Read, which waits for the read in progress
		var first [1]byte
		n, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = (n == 0 || isTLS) && err == nil || err != nil && err != syscall.EAGAIN && err != syscall.EINTR
	})
	return closed
}
