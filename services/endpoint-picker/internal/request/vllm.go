package request

import (
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"fairlead.dev/services/endpoint-picker/internal/jsonscan"
)

// Fields of vLLM's vllm_engine.proto. GenerateRequest and EmbedRequest use the same number for tokenized.
const (
	vllmTokenized = 2 // of GenerateRequest, EmbedRequest
	vllmText      = 3
	vllmSampling  = 4
	vllmStream    = 5
	vllmMedia     = 7
	vllmIDs       = 2 // of TokenizedInput
	vllmMax       = 8 // of SamplingParams
	vllmHashes    = 6 // of MultimodalInputs
)

// frameHead is the length of the header of a gRPC message: a compression flag and the length of the message.
const frameHead = 5

var (
	errFrame = errors.New("it is not a gRPC message")
	errProto = errors.New("it is not a protobuf message")
)

// readVLLM reads a body of vLLM's gRPC service. It accepts compressed bodies unread.
func (r *Request) readVLLM() error {
	if len(r.Body) < frameHead || int(binary.BigEndian.Uint32(r.Body[1:])) != len(r.Body)-frameHead {
		return errFrame
	}
	if r.Body[0] != 0 {
		r.API = unknown
		return nil
	}
	f := wire{rest: r.Body[frameHead:], at: frameHead}
	for f.more() {
		switch f.number {
		case vllmTokenized:
			r.tokenized(f)
		case vllmText:
			r.main = append(r.main[:0], Part{Span: f.span()})
		case vllmSampling:
			r.sampling(f)
		case vllmStream:
			r.Stream = f.value != 0
		case vllmMedia:
			r.media(f)
		}
	}
	if f.broken {
		return errProto
	}
	r.join()
	return nil
}

// sampling reads SamplingParams.
func (r *Request) sampling(f wire) {
	for s := f.inside(); s.more(); {
		if s.number == vllmMax {
			r.MaxTokens = int(min(s.value, 1<<31))
		}
	}
}

// media reads MultimodalInputs. Images come first in the prompt: their token ids are the same for every image.
func (r *Request) media(f wire) {
	for m := f.inside(); m.more(); {
		if m.number == vllmHashes {
			r.head = append(r.head, Part{Span: m.span(), Media: true})
		}
	}
}

// tokenized reads a TokenizedInput.
func (r *Request) tokenized(f wire) {
	for t := f.inside(); t.more(); {
		if t.number != vllmIDs {
			continue
		}
		part := Part{Span: t.span(), Packed: true}
		for _, b := range r.Text(part.Span) {
			if b < 0x80 { // the last byte of an id
				part.IDs++
			}
		}
		r.main = append(r.main[:0], part)
	}
}

// wire iterates over a message in protobuf's format.
type wire struct {
	rest []byte
	at   int // offset of rest in the body

	number protowire.Number
	value  uint64 // of a number field
	bytes  []byte // of a field with a length
	broken bool
}

func (w *wire) more() bool {
	if len(w.rest) == 0 || w.broken {
		return false
	}
	number, kind, head := protowire.ConsumeTag(w.rest)
	if head < 0 {
		w.broken = true
		return false
	}
	w.number, w.value, w.bytes = number, 0, nil
	var size int
	switch kind {
	case protowire.VarintType:
		w.value, size = protowire.ConsumeVarint(w.rest[head:])
	case protowire.BytesType:
		w.bytes, size = protowire.ConsumeBytes(w.rest[head:])
	default:
		size = protowire.ConsumeFieldValue(number, kind, w.rest[head:])
	}
	if size < 0 {
		w.broken = true
		return false
	}
	w.at += head + size
	w.rest = w.rest[head+size:]
	return true
}

// span returns the position of the bytes.
func (w *wire) span() jsonscan.Span { return jsonscan.Span{From: w.at - len(w.bytes), To: w.at} }

// inside iterates over the bytes.
func (w *wire) inside() wire { return wire{rest: w.bytes, at: w.at - len(w.bytes)} }
