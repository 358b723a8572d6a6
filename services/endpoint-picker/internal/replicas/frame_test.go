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

// streamOf returns a stream with a clock, events a millisecond apart, and the end of contents.
func streamOf(all []estimate.Event) []byte {
	stream := appendClock(nil, 7*time.Second)
	for i, event := range all {
		stream = appendEvent(stream, time.Duration(i)*time.Millisecond, event)
	}
	return appendFrame(stream, &Frame{Kind: Kind_COMPLETE})
}

func TestFrames(t *testing.T) {
	t.Parallel()
	e := endpoint.New(describe("a", "1"), time.Now(), nil)
	from := bufio.NewReader(bytes.NewReader(streamOf(events(e))))
	var got Frame
	require.NoError(t, readFrame(from, &got))
	assert.Equal(t, []uint64{uint64(Kind_CLOCK), 7e6}, []uint64{uint64(got.GetKind()), got.GetTime()})
	for i, want := range events(e) {
		require.NoError(t, readFrame(from, &got))
		assert.Equal(t, uint64(1000*i), got.GetTime())
		if want.Endpoint != nil {
			assert.Equal(t, idOf(e), got.GetEndpoint())
		}
		assert.ElementsMatch(t, want.Chain, got.GetChain())
		assert.Equal(t, []int64{int64(want.Kind), int64(want.Request), want.Tokens, want.Context, int64(want.Answer)},
			[]int64{int64(got.GetKind()), int64(got.GetRequest()), got.GetTokens(), got.GetContext(), int64(got.GetAnswer())})
	}
	require.NoError(t, readFrame(from, &got))
	assert.Equal(t, Kind_COMPLETE, got.GetKind())
	assert.ErrorIs(t, readFrame(from, &got), io.EOF)
}

// The numbers of frames are those of events.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, e := range events(endpoint.New(describe("a", "1"), time.Now(), nil)) {
		assert.NotEmpty(t, Kind_name[int32(e.Kind)])
	}
	assert.Equal(t, estimate.EventBegun, estimate.EventKind(Kind_BEGUN))
	assert.Equal(t, estimate.EventOccupied, estimate.EventKind(Kind_OCCUPIED))
}

func TestBrokenFrames(t *testing.T) {
	t.Parallel()
	e := endpoint.New(describe("a", "1"), time.Now(), nil)
	whole := appendEvent(nil, time.Second, estimate.Event{Kind: estimate.EventCached, Endpoint: e, Chain: []uint64{1, 2}})
	for n := 1; n < len(whole); n++ {
		require.ErrorIs(t, readFrame(bufio.NewReader(bytes.NewReader(whole[:n])), &Frame{}), io.ErrUnexpectedEOF, "%d of %d bytes", n, len(whole))
	}
	for name, tt := range map[string]struct {
		stream []byte
		want   string
	}{
		"unknown kind":    {appendFrame(nil, &Frame{Kind: 10}), "unknown kind 10"},
		"negative kind":   {appendFrame(nil, &Frame{Kind: -1}), "unknown kind -1"},
		"too many hashes": {appendFrame(nil, &Frame{Kind: Kind_CACHED, Chain: make([]uint64, maxHashes+16)}), "exceeded"},
		"endless number":  {[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "variable length integer overflow"},
		"a late time":     {appendFrame(nil, &Frame{Time: 1 << 63}), "later than a century"},
		"unknown answer":  {appendFrame(nil, &Frame{Kind: Kind_BEGUN, Answer: 256}), "unknown form of answer 256"},
		"another message": {[]byte{2, 8, 0xff}, "cannot parse"},
	} {
		assert.ErrorContains(t, readFrame(bufio.NewReader(bytes.NewReader(tt.stream)), &Frame{}), tt.want, name)
	}
}

// Fields of a later version are skipped.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	var got Frame
	require.NoError(t, readFrame(bufio.NewReader(bytes.NewReader([]byte{5, 8, 4, 0x98, 6, 1})), &got))
	assert.Equal(t, Kind_ENDED, got.GetKind())
	assert.Empty(t, got.ProtoReflect().GetUnknown())
}

// A longer prompt is cut, so that followers accept it.
func TestLongPromptsAreCut(t *testing.T) {
	t.Parallel()
	e := endpoint.New(describe("a", "1"), time.Now(), nil)
	stream := appendEvent(nil, maxTime, estimate.Event{
		Kind: estimate.EventCached, Request: 1<<64 - 1, Endpoint: e, Tokens: -1, Context: -1, Chain: make([]uint64, maxHashes+5),
	})
	var got Frame
	require.NoError(t, readFrame(bufio.NewReader(bytes.NewReader(stream)), &got))
	assert.Len(t, got.GetChain(), maxHashes)
}

func TestIdentityOfAnEndpoint(t *testing.T) {
	t.Parallel()
	id := func(pod, uid string) uint64 { return idOf(endpoint.New(describe(pod, uid), time.Now(), nil)) }
	assert.Equal(t, id("a", "1"), id("a", "1"))
	assert.NotEqual(t, id("a", "1"), id("a", "2"))
	assert.NotEqual(t, id("a", "1"), id("b", "1"))
}

// Whatever the bytes are, reading ends, and a follower survives them.
func FuzzFrames(f *testing.F) {
	e := endpoint.New(describe("a", "1"), time.Now(), nil)
	f.Add(streamOf(events(e)))
	for kind := range Kind_name {
		f.Add(appendFrame(nil, &Frame{Kind: Kind(kind)})) // without an endpoint
	}
	f.Add([]byte{11, 8, 6, 33, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := newReplica(nil)
		follower := follower{member: r.member, view: r.estimator.NewReplica()}
		for from := bufio.NewReader(bytes.NewReader(stream)); ; {
			var next Frame
			if readFrame(from, &next) != nil {
				break
			}
			follower.applyFrame(&next)
		}
		follower.view.Close(time.Now())
		if open := r.endpoint.Load().Open; open < 0 {
			t.Errorf("%v open requests", open)
		}
	})
}

// requestEvents are the events of one request with a prompt of 5 kB.
func requestEvents() []estimate.Event {
	e := endpoint.New(describe("a", "1"), time.Now(), nil)
	return []estimate.Event{
		{Kind: estimate.EventBegun, Request: 300, Endpoint: e, Tokens: 1250, Context: 300, Answer: estimate.Streamed},
		{Kind: estimate.EventCached, Endpoint: e, Tokens: 1250, Chain: make([]uint64, 78)},
		{Kind: estimate.EventFirst, Request: 300},
		{Kind: estimate.EventAnswered, Endpoint: e, Tokens: 100},
		{Kind: estimate.EventEnded, Request: 300},
	}
}

func BenchmarkEncode(b *testing.B) {
	all := requestEvents()
	var stream []byte
	b.ReportAllocs()
	for b.Loop() {
		stream = stream[:0]
		for _, e := range all {
			stream = appendEvent(stream, time.Second, e)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	stream := streamOf(requestEvents())
	source := bytes.NewReader(nil)
	from := bufio.NewReaderSize(source, readBuffer)
	b.ReportAllocs()
	var next Frame
	for b.Loop() {
		source.Reset(stream)
		from.Reset(source)
		for readFrame(from, &next) == nil {
		}
	}
}
