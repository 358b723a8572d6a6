package kubetest_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
)

func TestFreeAddress(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		address := kubetest.FreeAddress(t)
		assert.False(t, seen[address], "%s twice", address)
		seen[address] = true
		for range 2 { // a server that restarts
			l, err := net.Listen("tcp", address)
			require.NoError(t, err)
			require.NoError(t, l.Close())
		}
	}
}
