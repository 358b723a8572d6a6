package replicas

import (
	"bufio"
	"bytes"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
)

func describe(pod, uid string) endpoint.Description {
	return endpoint.Description{Identity: endpoint.Identity{Namespace: "ns", Pod: pod, UID: uid, Address: netip.MustParseAddrPort("10.0.0.1:8000")}}
}

// events contains one event of each kind.
func events(e *endpoint.Endpoint) []estimate.Event {
	return []estimate.Event{
		{Kind: estimate.EventBegun, Request: 300, Endpoint: e, Tokens: 70000, Context: 300, Answer: estimate.Whole},
		{Kind: estimate.EventFirst, Request: 300},
		{Kind: estimate.EventMoved, Request: 300, Endpoint: e},
		{Kind: estimate.EventEnded, Request: 300},
		{Kind: estimate.EventLost, Request: 1 << 62},
		{Kind: estimate.EventCached, Endpoint: e, Tokens: 300, Chain: []uint64{1, 1 << 63, 3}},
		{Kind: estimate.EventCached, Endpoint: e},
		{Kind: estimate.EventAnswered, Endpoint: e, Tokens: 5},
		{Kind: estimate.EventOccupied, Endpoint: e, Tokens: 1 << 40},
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	e := endpoint.New(describe("a", "1"), time.Now(), nil)
	stream := appendClock(nil, 7*time.Second)
	for i, event := range events(e) {
		stream = appendEvent(stream, time.Duration(i)*time.Millisecond, event)
	}
	stream = append(stream, frameContents)
	r := frameReader{from: bufio.NewReader(bytes.NewReader(stream))}
	var got frame
	require.NoError(t, r.readFrame(&got))
	assert.Equal(t, frame{kind: frameClock, at: 7 * time.Second}, got)
	for i, want := range events(e) {
		require.NoError(t, r.readFrame(&got))
		assert.Equal(t, time.Duration(i)*time.Millisecond, got.at)
		if want.Endpoint != nil {
			assert.Equal(t, idOf(e), got.endpoint)
		}
		assert.ElementsMatch(t, want.Chain, got.event.Chain)
		want.Endpoint, want.Chain, got.event.Chain = nil, nil, nil
		assert.Equal(t, want, got.event)
	}
	require.NoError(t, r.readFrame(&got))
	assert.Equal(t, byte(frameContents), got.kind)
	assert.ErrorIs(t, r.readFrame(&got), io.EOF)
}

func TestBrokenFrames(t *testing.T) {
	t.Parallel()
	whole := appendEvent(nil, time.Second, estimate.Event{Kind: estimate.EventCached, Endpoint: endpoint.New(describe("a", "1"), time.Now(), nil), Chain: []uint64{1, 2}})
	for n := 1; n < len(whole); n++ {
		r := frameReader{from: bufio.NewReader(bytes.NewReader(whole[:n]))}
		require.ErrorIs(t, r.readFrame(&frame{}), errFrame, "%d of %d bytes", n, len(whole))
	}
	for name, stream := range map[string][]byte{
		"unknown kind":    {10},
		"too many hashes": append([]byte{6, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0}, 0xff, 0xff, 0xff, 0xff, 0x0f),
		"endless number":  {0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"unknown answer":  {1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 1, 9},
	} {
		r := frameReader{from: bufio.NewReader(bytes.NewReader(stream))}
		assert.ErrorIs(t, r.readFrame(&frame{}), errFrame, name)
	}
}

// A longer prompt is cut, so that followers accept it.
func TestLongPromptsAreCut(t *testing.T) {
	t.Parallel()
	e := endpoint.New(describe("a", "1"), time.Now(), nil)
	stream := appendEvent(nil, 0, estimate.Event{Kind: estimate.EventCached, Endpoint: e, Chain: make([]uint64, maxHashes+5)})
	r := frameReader{from: bufio.NewReader(bytes.NewReader(stream))}
	var got frame
	require.NoError(t, r.readFrame(&got))
	assert.Len(t, got.event.Chain, maxHashes)
}

func TestIdentityOfAnEndpoint(t *testing.T) {
	t.Parallel()
	id := func(pod, uid string) uint64 { return idOf(endpoint.New(describe(pod, uid), time.Now(), nil)) }
	assert.Equal(t, id("a", "1"), id("a", "1"))
	assert.NotEqual(t, id("a", "1"), id("a", "2"))
	assert.NotEqual(t, id("a", "1"), id("b", "1"))
}

// Whatever the bytes are, reading ends, and allocates no more than a frame may have.
func FuzzFrames(f *testing.F) {
	e := endpoint.New(describe("a", "1"), time.Now(), nil)
	stream := appendClock(nil, time.Second)
	for _, event := range events(e) {
		stream = appendEvent(stream, time.Second, event)
	}
	f.Add(stream)
	f.Add([]byte{6, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0xff, 0xff, 7})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := frameReader{from: bufio.NewReader(bytes.NewReader(stream))}
		x := estimate.New(1 << 20)
		at, view := x.NewEndpoint(describe("a", "1"), time.Now()), x.NewReplica()
		var next frame
		for r.readFrame(&next) == nil {
			if next.kind == frameClock || next.kind == frameContents {
				continue
			}
			next.event.Endpoint = at
			view.ApplyEvent(next.event, time.Now())
		}
		if cap(r.chain) > 2*maxHashes {
			t.Errorf("%d hashes", cap(r.chain))
		}
		view.Close(time.Now())
		if open := at.Load().Open; open < 0 {
			t.Errorf("%v open requests", open)
		}
	})
}
