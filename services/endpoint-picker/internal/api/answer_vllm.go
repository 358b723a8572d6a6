package api

import (
	"encoding/binary"

	"fairlead.dev/pkg/protoscan"
)

const (
	maxFrame = 1 << 20 // longer messages are skipped
)

// Fields of vLLM's vllm_engine.proto.
const (
	vllmChunk        = 1<<3 | protoscan.Bytes  // of GenerateResponse: a GenerateStreamChunk
	vllmComplete     = 2<<3 | protoscan.Bytes  // of GenerateResponse: a GenerateComplete
	vllmEmbedPrompt  = 2<<3 | protoscan.Varint // of EmbedResponse: tokens of the prompt
	vllmTokens       = 1<<3 | protoscan.Bytes  // of GenerateStreamChunk and GenerateComplete: packed identifiers of tokens
	vllmChunkUsage   = 2<<3 | protoscan.Varint // of GenerateStreamChunk: prompt, output, cached in this order
	vllmOverallUsage = 3<<3 | protoscan.Varint // of GenerateComplete: likewise
)

// frameReader reassembles gRPC messages.
type frameReader struct {
	head      [frameHead]byte // of the next message
	headSize  uint8           // bytes of the head that have arrived
	skip      bool            // skip the message
	remaining int             // remaining bytes of the message
	body      []byte
}

// readPiece processes a piece of a body and calls f for each complete message.
func (r *frameReader) readPiece(piece []byte, f func(message []byte)) {
	for len(piece) > 0 {
		if r.headSize < frameHead {
			n := copy(r.head[r.headSize:], piece)
			r.headSize += uint8(n)
			piece = piece[n:]
			if r.headSize < frameHead {
				return
			}
			r.remaining = int(binary.BigEndian.Uint32(r.head[1:]))
			r.skip = r.head[0] != 0 || r.remaining > maxFrame
			r.body = r.body[:0]
		}
		n := min(r.remaining, len(piece))
		if !r.skip {
			r.body = append(r.body, piece[:n]...)
		}
		piece = piece[n:]
		if r.remaining -= n; r.remaining > 0 {
			return
		}
		if r.headSize = 0; !r.skip {
			f(r.body)
		}
	}
}

// readMessage reads a GenerateResponse or an EmbedResponse.
func (r *AnswerReader) readMessage(b []byte) {
	for f := protoscan.Scan(b); f.Next(); {
		switch f.Tag {
		case vllmChunk:
			r.readGenerated(f.Bytes, vllmChunkUsage)
		case vllmComplete:
			r.readGenerated(f.Bytes, vllmOverallUsage)
		case vllmEmbedPrompt:
			r.countContent()
			r.usage.usage.Known, r.usage.usage.Prompt = true, int(f.Value)
		}
	}
}

// readGenerated reads the tokens of an answer, or of a part of it, and its usage: three numbers in consecutive fields, if it has them.
func (r *AnswerReader) readGenerated(b []byte, usage protoscan.Tag) {
	const next = 1 << 3 // from the tag of a field to that of the next
	content, u := false, &r.usage.usage
	for f := protoscan.Scan(b); f.Next(); {
		switch f.Tag {
		case vllmTokens:
			content = content || len(f.Bytes) > 0
		case usage:
			u.Known, u.Prompt = true, int(f.Value)
		case usage + next:
			u.Known, u.Output = true, int(f.Value)
		case usage + 2*next:
			u.Cached, u.CachedKnown = int(f.Value), true
		}
	}
	if content {
		r.countContent()
	}
}
