package api

import (
	"encoding/binary"
	"errors"

	"github.com/cespare/xxhash/v2"

	"fairlead.dev/pkg/protoscan"
)

// vllmGRPC is vLLM's gRPC service: vllm_engine.proto. Its requests name no model.
var vllmGRPC = []API{
	{suffix: "/vllm.grpc.engine.VllmEngine/Generate", readBody: (*Request).readVLLM, Generates: true, Usage: FormatVLLM},
	{suffix: "/vllm.grpc.engine.VllmEngine/Embed", readBody: (*Request).readVLLM, Generates: true, Usage: FormatVLLM},
}

// Fields of vllm_engine.proto. GenerateRequest and EmbedRequest use the same number for tokenized.
const (
	vllmTokenized = 2<<3 | protoscan.Bytes // of GenerateRequest, EmbedRequest
	vllmText      = 3<<3 | protoscan.Bytes
	vllmStream    = 5<<3 | protoscan.Varint
	vllmMedia     = 7<<3 | protoscan.Bytes
	vllmIDs       = 2<<3 | protoscan.Bytes // of TokenizedInput
	vllmHashes    = 6<<3 | protoscan.Bytes // of MultimodalInputs
)

// frameHead is the length of the header of a gRPC message: a compression flag and the length of the message.
const frameHead = 5

var (
	errFrame = errors.New("it is not a gRPC message")
	errProto = errors.New("it is not a protobuf message")
)

// readVLLM reads a body of vLLM's gRPC service. It accepts compressed bodies unread.
func (r *Request) readVLLM() error {
	if len(r.body) < frameHead || int(binary.BigEndian.Uint32(r.body[1:])) != len(r.body)-frameHead {
		return errFrame
	}
	if r.body[0] != 0 {
		r.API = opaque
		return nil
	}
	f := protoscan.Scan(r.body[frameHead:])
	for f.Next() {
		at := frameHead + f.Offset
		switch f.Tag {
		case vllmTokenized:
			r.readTokenized(f.Bytes, at)
		case vllmText:
			r.discardPrompt()
			r.main.addPart(partOf(at, len(f.Bytes), Text, len(f.Bytes)))
		case vllmStream:
			r.Stream = f.Value != 0
		case vllmMedia:
			r.readHashes(f.Bytes, at)
		}
	}
	if f.Err() != nil {
		return errProto
	}
	return nil
}

// partOf returns the part at an offset in the body.
func partOf(at, length int, kind Kind, size int) Part {
	return Part{From: uint32(at), To: uint32(at + length), Size: uint32(size), Kind: kind}
}

// readTokenized reads a TokenizedInput at an offset in the body.
func (r *Request) readTokenized(message []byte, at int) {
	for f := protoscan.Scan(message); f.Next(); {
		if f.Tag != vllmIDs {
			continue
		}
		ids := 0
		for _, b := range f.Bytes {
			if b < 0x80 { // the last byte of an id
				ids++
			}
		}
		r.discardPrompt()
		r.main.addPart(partOf(at+f.Offset, len(f.Bytes), PackedIDs, ids))
	}
}

// readHashes reads the hashes of MultimodalInputs at an offset in the body. They come first in the prompt, because the tokens
// of all images are the same; those are among the token ids.
func (r *Request) readHashes(message []byte, at int) {
	for f := protoscan.Scan(message); f.Next(); {
		if f.Tag == vllmHashes {
			p := partOf(at+f.Offset, len(f.Bytes), Media, 0)
			p.Hash = xxhash.Sum64(f.Bytes)
			r.head.addPart(p)
		}
	}
}
