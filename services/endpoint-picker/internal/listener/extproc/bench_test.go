package extproc

import (
	"context"
	"fmt"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// BenchmarkMachine is what a request costs without gRPC and without the wire.
func BenchmarkMachine(b *testing.B) {
	for _, size := range []int{5_000, 67_000} {
		b.Run(fmt.Sprintf("body=%d", size), func(b *testing.B) {
			picker := newOne()
			pieces := append([]Message{headers(FullDuplex)}, inChunks(noise(size), 16<<10)...)
			pieces = append(pieces, reply(), pieceEnd("{}"))
			var replies []Reply
			b.ReportAllocs()
			for b.Loop() {
				picker.asked, picker.shown = picker.asked[:0], picker.shown[:0]
				m := NewMachine(picker, pool, &Options{MaxRequestBody: 1 << 20, Options: life})
				for i := range pieces {
					var err error
					in := pieces[i] // the machine takes its body
					if replies, err = m.Step(context.Background(), &in, replies[:0]); err != nil {
						b.Fatal(err)
					}
					for j := range replies {
						encodeReply(&replies[j]).Free()
					}
				}
				m.Close(nil)
			}
		})
	}
}

// BenchmarkStream is a whole exchange over gRPC, client included.
func BenchmarkStream(b *testing.B) {
	for _, bench := range []struct{ body, tokens int }{{0, 1}, {5_000, 1}, {67_000, 1}, {5_000, 200}} {
		b.Run(fmt.Sprintf("body=%d/tokens=%d", bench.body, bench.tokens), func(b *testing.B) {
			picker := newOne()
			r := &rig{Server: NewServer(Params{Options: Options{Options: life, MaxRequestBody: maxBodyHere}, Log: zap.NewNop(), Pools: picker})}
			r.dial(b)
			first, begin, token, last := headers(FullDuplex), reply(), piece("data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n"), pieceEnd("data: [DONE]\n\n")
			request := []*extprocv3.ProcessingRequest{toEnvoy(&first)}
			pieces := inChunks(noise(bench.body), 16<<10)
			for i := range pieces {
				request = append(request, toEnvoy(&pieces[i]))
			}
			b.ReportAllocs()
			for b.Loop() {
				picker.asked, picker.shown = picker.asked[:0], picker.shown[:0]
				stream, err := r.client.Process(b.Context())
				require.NoError(b, err)
				roundTrip(b, stream, request...)
				roundTrip(b, stream, toEnvoy(&begin))
				for range bench.tokens - 1 {
					roundTrip(b, stream, toEnvoy(&token))
				}
				roundTrip(b, stream, toEnvoy(&last))
				require.NoError(b, stream.CloseSend())
				_, _ = stream.Recv()
			}
		})
	}
}

// roundTrip sends messages and waits until what was sent has come back whole: pieces of a body may come back joined.
func roundTrip(b *testing.B, stream extprocv3.ExternalProcessor_ProcessClient, messages ...*extprocv3.ProcessingRequest) {
	b.Helper()
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			b.Fatal(err)
		}
	}
	last := messages[len(messages)-1].GetRequestBody() == nil // of a body it is told by the reply
	for {
		reply, err := stream.Recv()
		if err != nil {
			b.Fatal(err)
		}
		if last || reply.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream() {
			return
		}
	}
}
