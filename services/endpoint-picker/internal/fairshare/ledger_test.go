package fairshare

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAddressOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give net.Addr
		want string
	}{
		{give: &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 1}, want: "10.0.0.1"},
		{give: &net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.1"), Port: 2}, want: "10.0.0.1"},
		{give: &net.TCPAddr{IP: net.ParseIP("fd00::1")}, want: "fd00::1"},
		{give: &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, want: "fe80::1"},
		{give: &net.UnixAddr{Name: "memory"}, want: "invalid IP"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, AddressOf(tt.give).String())
	}
}

// TestSharedByListeners has a client that uses two listeners: both see all that it uses, and others get their share.
func TestSharedByListeners(t *testing.T) {
	t.Parallel()
	greedy, good := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	l := NewLedger(Limits{Bytes: 100})
	one, two := l.Open(greedy), l.Open(greedy)
	assert.Same(t, one, two)
	one.Add(Bytes, 60)
	assert.False(t, two.BeyondShare(Bytes), "the total is within the limit")
	two.Add(Bytes, 60)
	other := l.Open(good)
	other.Add(Bytes, 50)
	assert.True(t, one.BeyondShare(Bytes))
	assert.False(t, other.BeyondShare(Bytes))
	one.Add(Bytes, -120)
	other.Add(Bytes, -50)
	one.Close()
	assert.Same(t, two, l.Open(greedy), "the other listener still has it")
	two.Close()
	two.Close()
	other.Close()
	assert.Empty(t, *l.all.Load(), "nobody has an account")
	assert.Zero(t, l.Total(Bytes))
}
