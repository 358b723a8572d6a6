package api

import (
	"bytes"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"fairlead.dev/services/endpoint-picker/test/apitest"
)

// field is a field of a protobuf message that has a length.
func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func number(n protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), value)
}

func TestReadVLLM(t *testing.T) {
	t.Parallel()
	ids := protowire.AppendVarint(protowire.AppendVarint(protowire.AppendVarint(nil, 1), 300), 128_000)
	sampling := field(4, append(number(9, 5), number(8, 16)...))
	tests := []struct {
		name       string
		give       [][]byte
		wantStream bool
		wantTokens int
		wantHead   []Part
		want       []Part
	}{
		{name: "nothing"},
		{
			name: "text", give: [][]byte{field(1, []byte("id")), field(3, []byte("a text")), sampling, number(5, 1)},
			wantStream: true, wantTokens: 1, want: []Part{{From: 11, To: 17, Size: 6}},
		},
		{
			name: "token ids, beside the text", give: [][]byte{field(2, append(field(1, []byte("ab")), field(2, ids)...))},
			wantTokens: 3, want: []Part{{From: 13, To: 19, Size: 3, Kind: PackedIDs}},
		},
		{
			name: "the last prompt counts", give: [][]byte{field(3, []byte("a text")), field(2, field(2, []byte{5}))},
			wantTokens: 1, want: []Part{{From: 17, To: 18, Size: 1, Kind: PackedIDs}},
		},
		{
			name: "hashes of images come first, and their tokens are among the ids",
			give: [][]byte{field(7, append(field(6, []byte("h1")), field(6, []byte("h2"))...)), field(2, field(2, []byte{5}))},
			wantHead: []Part{
				{From: 9, To: 11, Hash: xxhash.Sum64String("h1"), Kind: Media},
				{From: 13, To: 15, Hash: xxhash.Sum64String("h2"), Kind: Media},
			},
			wantTokens: 1, want: []Part{{From: 19, To: 20, Size: 1, Kind: PackedIDs}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := parsed(t, apitest.VLLMGRPC, string(apitest.Frame(bytes.Join(tt.give, nil))))
			assert.Equal(t, tt.wantStream, r.Stream)
			assert.Equal(t, tt.wantTokens, r.Tokens)
			assert.Equal(t, tt.wantHead, r.Head)
			assert.Equal(t, tt.want, r.Prompt)
		})
	}
}

func FuzzReadVLLM(f *testing.F) {
	f.Add(field(3, []byte("hello")))
	f.Add(field(2, field(2, []byte{1, 2, 0x80})))
	f.Add(field(7, field(6, []byte("h"))))
	for _, shape := range apitest.Shapes() {
		if shape.Path == apitest.VLLMGRPC {
			f.Add(shape.BuildBody(200)[frameHead:])
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		body := apitest.Frame(message)
		var r Request
		if r.ParseIncoming(allParsers(t), Incoming{Path: apitest.VLLMGRPC, Body: body}, enough) != nil {
			return
		}
		checkParts(t, &r, body)
		for _, p := range r.Prompt {
			require.LessOrEqual(t, p.Size, p.To-p.From)
		}
	})
}
