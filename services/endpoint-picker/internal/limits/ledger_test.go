package limits

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestSharedByListeners has a client that uses two listeners: both see all that it uses, and others get their share.
func TestSharedByListeners(t *testing.T) {
	t.Parallel()
	greedy, good := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	l := NewLedger(Limits{Bytes: 100})
	one, two := l.OpenAccount(greedy), l.OpenAccount(greedy)
	assert.Same(t, one, two)
	one.AddUse(Bytes, 60)
	assert.False(t, two.IsBeyondShare(Bytes), "the total is within the limit")
	two.AddUse(Bytes, 60)
	other := l.OpenAccount(good)
	other.AddUse(Bytes, 50)
	assert.True(t, one.IsBeyondShare(Bytes))
	assert.False(t, other.IsBeyondShare(Bytes))
	one.AddUse(Bytes, -120)
	other.AddUse(Bytes, -50)
	one.Close()
	assert.Same(t, two, l.OpenAccount(greedy), "the other listener still has it")
	two.Close()
	two.Close()
	other.Close()
	assert.Empty(t, l.accounts, "nobody has an account")
	assert.Zero(t, l.TotalUse(Bytes))
}

func TestTake(t *testing.T) {
	t.Parallel()
	l := NewLedger(Limits{Streams: 2})
	a := l.OpenAccount(netip.Addr{})
	defer a.Close()
	assert.True(t, a.TryAddUse(Streams, 1))
	assert.True(t, a.TryAddUse(Streams, 1))
	assert.False(t, a.TryAddUse(Streams, 1))
	assert.EqualValues(t, 2, a.CurrentUse(Streams), "what is refused does not count")
	assert.EqualValues(t, 2, l.TotalUse(Streams))
	a.AddUse(Streams, -1)
	assert.True(t, a.TryAddUse(Streams, 1))
	assert.True(t, a.TryAddUse(Bytes, 1<<40), "there is no limit")
}

// TestOverdrawn has a client with a share of 800 bytes that holds more.
func TestOverdrawn(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		used, parked int64
		want         bool
	}{
		{name: "within the share", used: 800, want: false},
		{name: "beyond it", used: 801, want: true},
		{name: "by what is parked", used: 1600, parked: 1600, want: false},
		{name: "and the reserve", used: 1700, parked: 1600, want: false},
		{name: "and more", used: 1701, parked: 1600, want: true},
		{name: "a little is parked", used: 900, parked: 700, want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := NewLedger(Limits{Bytes: 800}).OpenAccount(netip.Addr{})
			a.AddUse(Bytes, tt.used)
			a.AddUse(Parked, tt.parked)
			assert.Equal(t, tt.want, a.IsOverdrawn())
		})
	}
}
