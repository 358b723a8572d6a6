package answer

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	frameHead = 5       // bytes: compression flag and length of a message
	maxFrame  = 1 << 20 // longer messages are skipped
)

// Fields of vLLM's vllm_engine.proto.
const (
	vllmChunk        = 1 // of GenerateResponse: a GenerateStreamChunk
	vllmComplete     = 2 // of GenerateResponse: a GenerateComplete; of EmbedResponse, as a number: the prompt's tokens
	vllmChunkUsage   = 2 // of GenerateStreamChunk: prompt, output, cached in this order
	vllmOverallUsage = 3 // of GenerateComplete: likewise
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
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		switch {
		case kind == protowire.BytesType && number <= vllmComplete:
			inside, size := protowire.ConsumeBytes(b)
			if size < 0 {
				return
			}
			first := protowire.Number(vllmChunkUsage)
			if number == vllmComplete {
				first = vllmOverallUsage
			}
			r.counts(inside, first)
		case kind == protowire.VarintType && number == vllmComplete:
			prompt, _ := protowire.ConsumeVarint(b)
			r.usage.Known, r.usage.Prompt = true, int(prompt)
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return
		}
		b = b[n:]
	}
}

// counts reads three numbers in consecutive fields. It ignores a chunk without them.
func (r *UsageReader) counts(b []byte, first protowire.Number) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(b)
			switch number {
			case first:
				r.usage.Known, r.usage.Prompt = true, int(v)
			case first + 1:
				r.usage.Known, r.usage.Output = true, int(v)
			case first + 2:
				r.usage.Cached, r.usage.CachedKnown = int(v), true
			}
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return
		}
		b = b[n:]
	}
}
