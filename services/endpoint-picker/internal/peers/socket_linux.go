package peers

import (
	"io"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc/mem"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h, in milliseconds.
const tcpUserTimeout = 18

// A socket reads from a TCP connection without a buffer while there is nothing to read.
type socket struct {
	raw syscall.RawConn

	// The read in progress. Fields, because variables would move to the heap with each read.
	attempt func(fd uintptr) (done bool)
	size    int
	pool    mem.BufferPool
	buffer  *[]byte
	n       int
	err     error
}

// newSocket returns nil if c is not a TCP connection.
func newSocket(c net.Conn, timeout time.Duration) *socket {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(timeout.Milliseconds())) // without it, keepalive pings take longer
	})
	s := &socket{raw: raw}
	s.attempt = s.try
	return s
}

// read waits for data and returns it in a buffer of the pool.
func (s *socket) read(size int, pool mem.BufferPool) (buffer *[]byte, n int, err error) {
	s.size, s.pool = size, pool
	err = s.raw.Read(s.attempt)
	buffer, n = s.buffer, s.n
	if err == nil {
		err = s.err
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	s.buffer, s.n, s.err = nil, 0, nil
	if err != nil && buffer != nil {
		pool.Put(buffer)
		buffer = nil
	}
	return buffer, n, err
}

// try reads once, and reports whether there was data or an error. It uses package syscall, like package net: the race
// detector has to see both.
func (s *socket) try(fd uintptr) (done bool) {
	s.buffer = s.pool.Get(s.size)
	for {
		s.n, s.err = syscall.Read(int(fd), *s.buffer)
		if s.err != syscall.EINTR { //nolint:errorlint // a bare syscall.Errno
			break
		}
	}
	if s.err == nil {
		return true
	}
	s.n = 0
	s.pool.Put(s.buffer)
	s.buffer = nil
	return s.err != syscall.EAGAIN //nolint:errorlint // a bare syscall.Errno
}
