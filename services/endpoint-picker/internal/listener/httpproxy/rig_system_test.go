//go:build system

package httpproxy

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// startTCP is start with connections of the machine.
func startTCP(t testing.TB, o Options, l limits.Limits) *rig {
	t.Helper()
	r := newRig(t, o, l)
	r.listenTCP()
	return r
}

func (r *rig) listenTCP() {
	r.t.Helper()
	require.NoError(r.t, r.OpenListener())
	r.address, r.connect = r.ListenAddress(), (&net.Dialer{}).DialContext
	r.listenBack = func() (net.Listener, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(r.t, err)
		return l, l.Addr().String()
	}
	r.run()
}
