//go:build system

package hermetic

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	pathGenerate = "/vllm.grpc.engine.VllmEngine/Generate"
	pathEmbed    = "/vllm.grpc.engine.VllmEngine/Embed"
)

// field appends a field of protobuf that has a length.
func field(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

func number(b []byte, at protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, at, protowire.VarintType), value)
}

// frame puts a message as gRPC sends it.
func frame(message []byte) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))) + string(message)
}

// tokens is a TokenizedInput of n tokens from first on.
func tokens(first, n int) []byte {
	var ids []byte
	for i := range n {
		ids = protowire.AppendVarint(ids, uint64(first+i))
	}
	return field(field(nil, 1, []byte("text")), 2, ids)
}

// generate is a GenerateRequest of n tokens.
func generate(n int, stream bool) string {
	b := field(nil, 1, []byte("req-1"))
	b = field(b, 2, tokens(1000, n))
	b = field(b, 4, number(nil, 8, 100))
	if stream {
		b = number(b, 5, 1)
	}
	return frame(b)
}

// usage are three consecutive numbers.
func usage(b []byte, first protowire.Number, prompt, output, cached uint64) []byte {
	return number(number(number(b, first, prompt), first+1, output), first+2, cached)
}

var (
	grpcHeaders = []string{"content-type", "application/grpc"}
	generated   = frame(field(nil, 2, usage(field(nil, 2, []byte("stop")), 3, 100, 40, 16)))
	chunks      = frame(field(nil, 1, usage(nil, 2, 100, 1, 16))) + frame(field(nil, 1, usage(nil, 2, 100, 20, 16))) + generated
	embedded    = frame(number(field(nil, 1, []byte("0123")), 2, 100))
)

// Upstream's suite of vLLM's own gRPC service, in one mode after the other: how a body is read has nothing to do with it.
func TestGRPC(t *testing.T) {
	t.Parallel()
	pages := []string{pageOf(3, 1, 0.2, ""), pageOf(0, 1, 0.1, ""), pageOf(10, 1, 0.2, "")}
	full := []string{pageOf(60, 90, 0.98, ""), pageOf(50, 90, 0.97, ""), pageOf(70, 90, 0.99, "")}
	const malformed = "parse request body: it is not a "
	tests := []struct {
		name         string
		pages        []string
		give         request
		subset       []int // servers; nil for no hint
		answer       string
		in, out      float64 // tokens
		want         int
		refused      refusal
		wantStreamed bool
	}{
		{name: "the shorter queue and the emptier cache", pages: pages, give: request{path: pathGenerate, body: generate(100, false)}, answer: generated, in: 100, out: 40, want: 1},
		{name: "embeddings", pages: pages, give: request{path: pathEmbed, body: generate(100, false)}, answer: embedded, in: 100, want: 1},
		{name: "streaming", pages: pages, give: request{path: pathGenerate, body: generate(100, true)}, answer: chunks, in: 100, out: 40, want: 1, wantStreamed: true},
		{name: "saturated, and not shed", pages: full, give: request{path: pathGenerate, body: generate(100, false)}, answer: generated, in: 100, out: 40, want: 1},
		{name: "a body in pieces", pages: pages, give: request{path: pathGenerate, body: generate(100, false), chunk: 3}, answer: generated, in: 100, out: 40, want: 1},
		{name: "the end apart", pages: pages, give: request{path: pathGenerate, body: generate(100, false), endApart: true}, answer: generated, in: 100, out: 40, want: 1},
		{name: "no model server", give: request{path: pathGenerate, body: generate(100, false)}, refused: nobodyThere},
		{name: "subset with the best", pages: pages, give: request{path: pathGenerate, body: generate(100, false)}, subset: []int{0, 1}, answer: generated, in: 100, out: 40, want: 1},
		{name: "subset without the best", pages: pages, give: request{path: pathGenerate, body: generate(100, false)}, subset: []int{0, 2}, answer: generated, in: 100, out: 40, want: 0},
		{name: "subset of none", pages: pages, give: request{path: pathGenerate, body: generate(100, false)}, subset: []int{}, refused: nobodyAllowed},
		{name: "a method that is not known", pages: pages, give: request{path: "/vllm.grpc.engine.VllmEngine/Abort", body: frame(nil)}, answer: frame(nil), want: 1},
		{name: "no frame", pages: pages, give: request{path: pathGenerate, body: "no frame"}, refused: refusal{status: 400, text: malformed + "gRPC message"}},
		{name: "no message", pages: pages, give: request{path: pathGenerate, body: frame([]byte("\xff\xff"))}, refused: refusal{status: 400, text: malformed + "protobuf message"}},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, world{mode: modes[i%len(modes)], pages: tt.pages, config: upstreamConfig})
			if tt.subset != nil {
				var allowed []string
				for _, i := range tt.subset {
					allowed = append(allowed, r.at(i))
				}
				tt.give.subset = list(allowed...)
			}
			if tt.refused.status != 0 {
				assert.Equal(t, tt.refused, r.ask(tt.give).refused())
				return
			}
			for _, pieces := range [][]string{{tt.answer}, strings.Split(tt.answer, ""), {tt.answer[:4], tt.answer[4:]}} {
				assert.Equal(t, r.at(tt.want), r.serve(tt.give, response{headers: grpcHeaders, pieces: pieces, trailers: true}))
			}
			page := r.metrics()
			assert.Equal(t, 3*tt.in, page.sampled("llm_d_epp_request_input_tokens"))
			assert.Equal(t, 3*tt.out, page.sampled("llm_d_epp_request_output_tokens"))
			streaming := map[bool]float64{true: 3}
			assert.Equal(t, streaming[tt.wantStreamed], page.sum("llm_d_epp_request_ttft_seconds", "streaming", "true"))
		})
	}
}
