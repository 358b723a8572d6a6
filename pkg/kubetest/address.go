package kubetest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ports that FreeAddress returns. Outgoing connections use others: 32768 and above by default in Linux. NodePorts begin at 30000.
const (
	firstPort = 20000
	ports     = 10000
)

// given are the ports that this process has returned.
var given sync.Map

// FreeAddress returns an address on the loopback interface for a server that the test starts later, possibly more than once. A port that the system chose could be
// that of an outgoing connection by then.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports))
		if _, taken := given.LoadOrStore(address, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			require.NoError(tb, l.Close())
			return address
		}
	}
	require.Fail(tb, "no free address")
	return ""
}
