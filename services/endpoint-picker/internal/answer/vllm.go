package answer

import (
	"encoding/binary"

	"fairlead.dev/services/endpoint-picker/internal/scan/protoscan"
)

const (
	frameHead = 5       // bytes: compression flag and length of a message
	maxFrame  = 1 << 20 // longer messages are skipped
)

// Fields of vLLM's vllm_engine.proto.
const (
	vllmChunk        = 1<<3 | protoscan.Bytes  // of GenerateResponse: a GenerateStreamChunk
	vllmComplete     = 2<<3 | protoscan.Bytes  // of GenerateResponse: a GenerateComplete
	vllmEmbedPrompt  = 2<<3 | protoscan.Varint // of EmbedResponse: tokens of the prompt
	vllmChunkUsage   = 2<<3 | protoscan.Varint // of GenerateStreamChunk: prompt, output, cached in this order
	vllmOverallUsage = 3<<3 | protoscan.Varint // of GenerateComplete: likewise
)

// frames reassembles gRPC messages.
type frames struct {
	head []byte // of the next message
	body []byte
	left int  // remaining bytes of the message
	skip bool // skip the message
}

// read processes a piece of a body and calls f for each complete message.
func (r *frames) read(piece []byte, f func(message []byte)) {
	for len(piece) > 0 {
		if len(r.head) < frameHead {
			n := min(frameHead-len(r.head), len(piece))
			r.head = append(r.head, piece[:n]...)
			piece = piece[n:]
			if len(r.head) < frameHead {
				return
			}
			r.left = int(binary.BigEndian.Uint32(r.head[1:]))
			r.skip = r.head[0] != 0 || r.left > maxFrame
			r.body = r.body[:0]
		}
		n := min(r.left, len(piece))
		if !r.skip {
			r.body = append(r.body, piece[:n]...)
		}
		piece = piece[n:]
		if r.left -= n; r.left > 0 {
			return
		}
		if r.head = r.head[:0]; !r.skip {
			f(r.body)
		}
	}
}

// message reads the usage of a GenerateResponse or an EmbedResponse.
func (r *UsageReader) message(b []byte) {
	for f := protoscan.Read(b); f.Next(); {
		switch f.Tag {
		case vllmChunk:
			r.counts(f.Bytes, vllmChunkUsage)
		case vllmComplete:
			r.counts(f.Bytes, vllmOverallUsage)
		case vllmEmbedPrompt:
			r.usage.Known, r.usage.Prompt = true, int(f.Value)
		}
	}
}

// counts reads three numbers in consecutive fields. It ignores a chunk without them.
func (r *UsageReader) counts(b []byte, first protoscan.Tag) {
	const next = 1 << 3 // from the tag of a field to that of the next
	for f := protoscan.Read(b); f.Next(); {
		switch f.Tag {
		case first:
			r.usage.Known, r.usage.Prompt = true, int(f.Value)
		case first + next:
			r.usage.Known, r.usage.Output = true, int(f.Value)
		case first + 2*next:
			r.usage.Cached, r.usage.CachedKnown = int(f.Value), true
		}
	}
}
