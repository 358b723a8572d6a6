package decision

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestShares(t *testing.T) {
	t.Parallel()
	a, b, c := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")
	s := newShares(12)
	assert.True(t, s.take(a, 12), "alone it has all")
	assert.False(t, s.take(a, 1))
	assert.True(t, s.take(b, 6), "the second one has a half")
	assert.False(t, s.take(b, 1))
	assert.True(t, s.take(c, 4), "the third one a third")
	assert.False(t, s.take(c, 1))
	s.give(a, 12)
	assert.True(t, s.take(c, 2), "there is room again")
	s.give(b, 6)
	s.give(c, 6)
	total, refused := s.usage()
	assert.Zero(t, total)
	assert.EqualValues(t, 3, refused)
	assert.Empty(t, s.used)
}

// TestShares_ManyClients cannot take more than twice the limit.
func TestShares_ManyClients(t *testing.T) {
	t.Parallel()
	s := newShares(1000)
	for i := range 10_000 {
		client := netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		for s.take(client, 1) {
			continue
		}
	}
	assert.LessOrEqual(t, s.total, int64(2000))
}
