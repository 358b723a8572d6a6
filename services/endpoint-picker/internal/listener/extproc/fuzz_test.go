package extproc

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// script is a random exchange as a gateway may send it, right in order and in modes.
type script struct {
	random *rand.Rand
	list   []Message
}

// FuzzExchange plays whole exchanges (any mode, any split of the bodies, the end in a message of its own or delivered
// twice, trailers, the gateway's own response) against the strict gateway, all of it or as much as cut says, and
// checks that everything sent is answered, byte for byte, and that at rest every counter is zero.
func FuzzExchange(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint16(0))
		f.Add(seed, uint16(seed+1))
	}
	f.Fuzz(func(t *testing.T, seed uint64, cut uint16) {
		s := &script{random: rand.New(rand.NewPCG(seed, 7))}
		s.write()
		messages := s.list
		if cut > 0 {
			messages = messages[:min(int(cut), len(messages))]
		}
		picker := newOne()
		if s.random.IntN(8) == 0 {
			picker.refusal = request.Unavailable(scheduling.ErrNoEndpoints)
		}
		m := NewMachine(picker, pool, &Options{MaxRequestBody: 1 << 18, Options: life})
		g := strictGateway()
		for i := range messages {
			if g.ImmediateResponse() != nil {
				break // the stream is closed
			}
			g.RecordSent(toEnvoy(&messages[i]))
			replies, err := m.Step(context.Background(), &messages[i], nil)
			require.NoError(t, err)
			deliver(t, g, replies)
		}
		if len(messages) == len(s.list) {
			require.NoError(t, g.CheckFinished())
		}
		outcome := m.close()
		require.Equal(t, outcome.Outcome == request.Refused, g.ImmediateResponse() != nil)
		settle(t, picker)
	})
}

// FuzzAnyOrder sends any messages in any order and checks what must hold even so.
func FuzzAnyOrder(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5}, uint8(0))
	f.Add([]byte{0, 0, 7, 7, 3, 10, 10, 11}, uint8(1))
	f.Add([]byte{9, 1, 0, 5, 4, 3}, uint8(2))
	f.Add([]byte{6, 2, 2, 8, 3, 12}, uint8(3))
	f.Fuzz(func(t *testing.T, program []byte, mode uint8) {
		picker := newOne()
		m := NewMachine(picker, pool, &Options{MaxRequestBody: 1 << 10, Options: life})
		var headerReplies, immediates, ends int
		for _, op := range program {
			in := Message{
				Kind: Kind(op % 7), EndOfStream: op&8 != 0, Body: buffer(strings.Repeat(string(rune(op%128)), int(op))),
				Modes: Modes{Request: BodyMode(mode % 4), Response: BodyMode(mode / 4 % 4)},
			}
			replies, err := m.Step(context.Background(), &in, nil)
			for i := range replies {
				require.Zero(t, immediates, "nothing follows an immediate response")
				require.LessOrEqual(t, len(content(replies[i].Body)), maxChunk)
				require.NotNil(t, encoded(&replies[i]).GetResponse())
				switch {
				case replies[i].Kind == RequestHeaders:
					headerReplies++
				case replies[i].Kind == Immediate:
					immediates++
				case replies[i].Kind == RequestBody && replies[i].EndOfStream:
					ends++
				}
			}
			if err != nil {
				break
			}
		}
		require.LessOrEqual(t, headerReplies, 1)
		require.LessOrEqual(t, ends, 1)
		require.LessOrEqual(t, len(picker.asked), 1)
		m.Close(nil)
		settle(t, picker)
	})
}

// settle brings a scrape and checks that nothing is counted any more.
func settle(t *testing.T, o *one) {
	t.Helper()
	o.endpoint.RecordSample(o.endpoint.StartScrape(noon), endpoint.Gauges{})
	require.Zero(t, o.inFlight())
	require.Zero(t, o.endpoint.Load().Requests)
}

func deliver(t *testing.T, g *envoytest.Gateway, replies []Reply) {
	t.Helper()
	for i := range replies {
		out := encoded(&replies[i])
		require.NoError(t, g.CheckReply(out))
	}
}

func (s *script) write() {
	modes := []BodyMode{FullDuplex, FullDuplex, Chunked, Buffered, None}
	m := Modes{Request: modes[s.random.IntN(len(modes))], Response: modes[s.random.IntN(len(modes))]}
	s.headers(Message{Kind: RequestHeaders, Modes: m}, RequestBody, RequestTrailers, m.Request)
	if s.random.IntN(6) > 0 {
		s.headers(reply(), ResponseBody, ResponseTrailers, m.Response)
	}
}

// headers writes one direction.
func (s *script) headers(h Message, body, trailers Kind, mode BodyMode) {
	if h.EndOfStream = s.random.IntN(6) == 0; h.EndOfStream {
		s.list = append(s.list, h)
		return
	}
	s.list = append(s.list, h)
	if h.Kind == RequestHeaders && mode == FullDuplex && s.random.IntN(10) == 0 {
		return // the gateway answers itself, before the body
	}
	withTrailers := s.random.IntN(4) == 0
	switch mode {
	case FullDuplex, Chunked:
		s.pieces(body, !withTrailers)
	case Buffered:
		s.add(body, s.bytes(1<<12), !withTrailers)
	case None:
		return
	}
	if withTrailers {
		s.list = append(s.list, Message{Kind: trailers})
	}
}

// pieces writes a body, and what Envoy may make of its end.
func (s *script) pieces(kind Kind, end bool) {
	for range s.random.IntN(5) {
		s.add(kind, s.bytes([]int{1, 100, 16 << 10, 70_000, 130_000}[s.random.IntN(5)]), false)
	}
	switch {
	case !end:
	case s.random.IntN(2) == 0:
		s.add(kind, nil, true)
	default:
		s.add(kind, s.bytes(1000), true)
	}
	if end && kind == RequestBody && s.random.IntN(3) == 0 {
		s.list = append(s.list, s.list[len(s.list)-1])
	}
}

func (s *script) add(kind Kind, b []byte, end bool) {
	s.list = append(s.list, Message{Kind: kind, Body: buffer(string(b)), EndOfStream: end})
}

// bytes returns up to n bytes, none of them predictable.
func (s *script) bytes(n int) []byte {
	b := make([]byte, s.random.IntN(n+1))
	for i := range b {
		b[i] = byte(s.random.Uint32())
	}
	return b
}
