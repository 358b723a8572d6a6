//go:build system

package peers

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lender is a pool that knows how many buffers are lent.
type lender struct{ lent chan int }

func (l lender) Get(n int) *[]byte {
	l.lent <- 1
	b := make([]byte, n)
	return &b
}

func (l lender) Put(*[]byte) { l.lent <- -1 }

func TestSocketNeedsNoBufferToWait(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	accepted, err := l.Accept()
	require.NoError(t, err)
	c := newConn(accepted, newTestPeer())
	require.NotNil(t, c.socket)

	var timeout int
	require.NoError(t, c.socket.raw.Control(func(fd uintptr) {
		timeout, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
	}))
	require.NoError(t, err)
	assert.Equal(t, int(userTimeout.Milliseconds()), timeout)

	pool := lender{make(chan int, 10)}
	type result struct {
		text string
		err  error
	}
	results := make(chan result)
	read := func() {
		b, n, err := c.ReadOnReady(100, pool)
		r := result{err: err}
		if b != nil {
			r.text = string((*b)[:n])
			pool.Put(b)
		}
		results <- r
	}
	go read()
	assert.Equal(t, []int{1, -1}, []int{<-pool.lent, <-pool.lent}, "it has tried, and waits without a buffer")
	_, err = client.Write([]byte("data"))
	require.NoError(t, err)
	assert.Equal(t, result{text: "data"}, <-results)
	assert.Equal(t, []int{1, -1}, []int{<-pool.lent, <-pool.lent})

	require.NoError(t, c.SetReadDeadline(time.Now().Add(-time.Second)))
	go read()
	var timedOut net.Error
	require.ErrorAs(t, (<-results).err, &timedOut)
	assert.True(t, timedOut.Timeout())
	require.NoError(t, c.SetReadDeadline(time.Time{}))

	require.NoError(t, client.Close())
	go read()
	require.ErrorIs(t, (<-results).err, io.EOF)
	require.NoError(t, c.Close())
	go read()
	require.ErrorIs(t, (<-results).err, net.ErrClosed)
	for range len(pool.lent) / 2 {
		assert.Equal(t, []int{1, -1}, []int{<-pool.lent, <-pool.lent}, "every buffer is returned")
	}
	assert.Empty(t, pool.lent)
}
