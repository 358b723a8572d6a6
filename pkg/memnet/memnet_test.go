package memnet_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/memnet"
)

func TestListener(t *testing.T) {
	t.Parallel()
	l := memnet.Listen()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		assert.NoError(t, err)
		accepted <- conn
	}()
	client, err := l.Dial(t.Context(), "", "")
	require.NoError(t, err)
	go func() { _, _ = (<-accepted).Write([]byte("hi")) }()
	got := make([]byte, 2)
	_, err = io.ReadFull(client, got)
	require.NoError(t, err)
	assert.Equal(t, "hi", string(got))

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Dial(canceled, "", "")
	require.ErrorIs(t, err, context.Canceled, "nobody accepts")

	go func() {
		conn, err := l.Accept()
		assert.NoError(t, err)
		accepted <- conn
	}()
	_, err = l.From(netip.MustParseAddrPort("192.0.2.1:1000"))(t.Context(), "", "")
	require.NoError(t, err)
	assert.Equal(t, "192.0.2.1:1000", (<-accepted).RemoteAddr().String())

	l.Break()
	_, err = client.Read(got)
	require.ErrorIs(t, err, io.EOF)
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = l.Dial(t.Context(), "", "")
	require.ErrorContains(t, err, "connection refused")
}
