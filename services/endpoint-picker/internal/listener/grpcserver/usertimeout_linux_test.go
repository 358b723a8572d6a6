//go:build system

package grpcserver

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUserTimeout(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	accepted, err := l.Accept()
	require.NoError(t, err)
	defer accepted.Close()

	newClientConn(accepted, newTestPeer())

	raw, err := accepted.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	var timeout int
	require.NoError(t, raw.Control(func(fd uintptr) {
		timeout, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
	}))
	require.NoError(t, err)
	assert.Equal(t, int(userTimeout.Milliseconds()), timeout)
}
