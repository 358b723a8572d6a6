// Package apitest contains request bodies of hostile clients, for tests.
package apitest

import (
	"encoding/binary"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Paths of APIs.
const (
	Chat        = "/v1/chat/completions"
	Completions = "/v1/completions"
	Responses   = "/v1/responses"
	Embeddings  = "/v1/embeddings"
	Messages    = "/v1/messages"
	SGLang      = "/generate"
	VLLM        = "/inference/v1/generate"
	VLLMGRPC    = "/vllm.grpc.engine.VllmEngine/Generate"
)

// A Body is the body of a request to a path.
type Body struct {
	Name string
	Path string
	Text []byte
}

// shape is a body of any size: a beginning, pieces, and an end.
type shape struct {
	name, path        string
	begin, piece, end string
}

// Hostile returns bodies of about the given size, each with as many pieces of one kind as fit. All are valid for their path,
// except for those with too long names of models.
func Hostile(size int) []Body {
	var bodies []Body
	for _, s := range append(shapes(), deepShapes()...) {
		bodies = append(bodies, Body{Name: s.name, Path: s.path, Text: s.text(size)})
	}
	return append(bodies, framedBodies(size)...)
}

func (s shape) text(size int) []byte {
	n := max((size-len(s.begin)-len(s.end))/len(s.piece), 1)
	text := make([]byte, 0, len(s.begin)+n*len(s.piece)+len(s.end))
	text = append(text, s.begin...)
	for range n {
		text = append(text, s.piece...)
	}
	return append(text, s.end...)
}

const (
	model   = `{"model":"m",`
	chat    = model + `"messages":[`
	message = chat + `{"role":"user","content":`
)

func shapes() []shape {
	return []shape{
		{"messages that are numbers", Chat, chat, `1,`, `1]}`},
		{"messages that are texts", Chat, chat, `"a",`, `"a"]}`},
		{"messages that are empty", Chat, chat, `{},`, `{}]}`},
		{"messages with an empty key", Chat, chat, `{"":1},`, `{}]}`},
		{"smallest messages", Chat, chat, `{"role":"user","content":"a"},`, `{}]}`},
		{"answers", Chat, chat, `{"role":"assistant","content":"a"},`, `{}]}`},
		{"keys of a message", Chat, chat + `{`, `"":"a",`, `"a":"b"}]}`},
		{"escaped keys of a message", Chat, chat + `{`, `"\u0061":"",`, `"a":"b"}]}`},
		{"keys of the body", Chat, `{`, `"a":1,`, `"model":"m"}`},
		{"known keys of the body", Chat, `{`, `"cache_salt":"",`, `"model":"m"}`},
		{"a long key", Chat, `{"`, `key`, `":1,"model":"m"}`},
		{"a long escaped key", Chat, `{"`, `\u0061`, `":1,"model":"m"}`},
		{"contents", Chat, message + `[`, `{"text":"a"},`, `{}]}]}`},
		{"images", Chat, message + `[`, `{"image_url":""},`, `{}]}]}`},
		{"a long image", Chat, message + `[{"type":"image_url","image_url":{"url":"data:image/png;base64,`, `iVBORw0KGgo`, `"}}]}]}`},
		{"a long text", Chat, message + `"`, `a long text `, `"}]}`},
		{"a text of escapes", Chat, message + `"`, `\u0000`, `"}]}`},
		{"repeated messages", Chat, model, `"messages":["a"],`, `"a":1}`},
		{"repeated tools", Chat, model, `"tools":[1],`, `"a":1}`},
		{"tools", Chat, model + `"tools":[`, `{},`, `{}]}`},
		{"repeated models", Chat, `{`, `"model":"\u006d",`, `"model":"m"}`},
		{"a long model", Chat, `{"model":"`, `m`, `"}`},
		{"a long escaped model", Chat, `{"model":"`, `\u006d`, `"}`},
		{"blanks", Chat, ``, " \n", `{"model":"m"}`},
		{"a long number", Chat, model + `"n":1`, `1`, `}`},
		{"prompts", Completions, model + `"prompt":[`, `"a",`, `"a"]}`},
		{"empty prompts", Completions, model + `"prompt":[`, `"",`, `""]}`},
		{"repeated prompts", Completions, model, `"prompt":["a"],`, `"a":1}`},
		{"token ids", Completions, model + `"prompt":[`, `1,`, `1]}`},
		{"lists of token ids", Completions, model + `"prompt":[`, `[1],`, `[1]]}`},
		{"inputs", Responses, model + `"input":[`, `{"role":"assistant"},`, `{}]}`},
		{"embeddings", Embeddings, model + `"input":[`, `"a",`, `"a"]}`},
		{"sources", Messages, message + `[`, `{"source":{}},`, `{}]}]}`},
		{"media", SGLang, `{"text":"a","image_data":[`, `"",`, `""]}`},
		{"lists of media", SGLang, `{"text":"a","image_data":[`, `[""],`, `[]]}`},
		{"repeated features", VLLM, `{"token_ids":[1],`, `"features":{"mm_hashes":1},`, `"a":1}`},
		{"an object without a path", "", `{`, `"prompt":[1],"text":"a",`, `"a":1}`},
	}
}

// deepest is less than the maximum depth of JSON, for the levels around it.
const deepest = 9_000

func deepShapes() []shape {
	list := strings.Repeat("[", deepest) + strings.Repeat("]", deepest) + ","
	contents := strings.Repeat(`{"content":[`, deepest/2) + strings.Repeat(`]}`, deepest/2) + ","
	open := strings.Repeat(`{"content":`, deepest/2) + "1" + strings.Repeat(`}`, deepest/2) + ","
	return []shape{
		{"deep lists", Chat, chat, list, `1]}`},
		{"deep contents", Chat, chat, contents, `1]}`},
		{"deep objects", Chat, chat, open, `1]}`},
		{"deep prompts", Completions, model + `"prompt":[`, list, `1]}`},
		{"deep tools", Chat, model + `"tools":[`, list, `1]}`},
	}
}

func framedBodies(size int) []Body {
	field := func(number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	repeated := func(piece []byte) []byte { return []byte(strings.Repeat(string(piece), max(size/len(piece), 1))) }
	body := func(name string, message []byte) Body {
		return Body{Name: name, Path: VLLMGRPC, Text: Frame(message)}
	}
	return []Body{
		body("gRPC: token ids", field(2, field(2, repeated([]byte{1})))),
		body("gRPC: tokenized inputs", repeated(field(2, field(2, []byte{1})))),
		body("gRPC: lists of token ids", field(2, repeated(field(2, []byte{1})))),
		body("gRPC: hashes of images", field(7, repeated(field(6, nil)))),
		body("gRPC: texts", repeated(field(3, nil))),
		body("gRPC: unknown fields", repeated(field(100, nil))),
	}
}

// Frame makes a gRPC message as it is in an HTTP body.
func Frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}
