// Package apitest contains request bodies of hostile clients, for tests.
package apitest

import (
	"bytes"
	"encoding/binary"
	"slices"
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

// A Shape is a kind of hostile body: as many pieces of one kind as fit in its size.
type Shape struct {
	Name string
	Path string

	begin, piece, end string
	framed            bool // as a gRPC message
}

// Shapes returns all shapes. The bodies are valid for their paths, except for too long names of models.
func Shapes() []Shape {
	return slices.Concat(flatShapes(), callShapes(), deepShapes(), framedShapes())
}

// BuildBody returns a body of about the given size. It has at least one piece.
func (s Shape) BuildBody(size int) []byte {
	n := max((size-len(s.begin)-len(s.end))/len(s.piece), 1)
	text := slices.Concat([]byte(s.begin), bytes.Repeat([]byte(s.piece), n), []byte(s.end))
	if s.framed {
		return Frame(text)
	}
	return text
}

const (
	model   = `{"model":"m",`
	chat    = model + `"messages":[`
	message = chat + `{"role":"user","content":`
	calling = chat + `{"role":"assistant","tool_calls":[`
)

func flatShapes() []Shape {
	shapes := []Shape{}
	for _, s := range [][5]string{
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
		{"keys of a tool", Chat, model + `"tools":[{`, `"a":1,`, `"a":1}]}`},
		{"a tool of escapes", Chat, model + `"tools":["`, `\u0000`, `"]}`},
		{"roles behind contents", Chat, chat, `{"content":"a","role":"user"},`, `{}]}`},
		{"system blocks", Messages, model + `"system":[`, `"a",`, `"a"]}`},
		{"repeated system prompts", Messages, model, `"system":["a"],`, `"a":1}`},
		{"a long attribution", Messages, model + `"system":"x-anthropic-billing-header`, `\u006e`, `\n"}`},
		{"a long identifier", Responses, model + `"previous_response_id":"`, `\u006e`, `"}`},
		{"another path", "/v1/rerank", `{`, `"model":"m",`, `"a":1}`},
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
		{"numbers of a tool", Chat, model + `"tools":[`, `1.7976931348623157e308,`, `1.0]}`},
		{"long numbers of a tool", Chat, model + `"tools":[`, `0.1234567890123456789012345678,`, `1.0]}`},
		{"repeated contents", Chat, chat + `{`, `"content":"a",`, `"a":1}]}`},
		{"repeated lists of contents", Chat, chat + `{`, `"content":["a","b"],"text":"c",`, `"a":1}]}`},
		{"repeated roles", Chat, chat + `{`, `"role":"user",`, `"a":1}]}`},
		{"sources", Messages, message + `[`, `{"source":{}},`, `{}]}]}`},
		{"media", SGLang, `{"text":"a","image_data":[`, `"",`, `""]}`},
		{"lists of media", SGLang, `{"text":"a","image_data":[`, `[""],`, `[]]}`},
		{"repeated features", VLLM, `{"token_ids":[1],`, `"features":{"mm_hashes":1},`, `"a":1}`},
		{"an object without a path", "", `{`, `"prompt":[1],"text":"a",`, `"a":1}`},
	} {
		shapes = append(shapes, Shape{Name: s[0], Path: s[1], begin: s[2], piece: s[3], end: s[4]})
	}
	return shapes
}

func callShapes() []Shape {
	shapes := []Shape{}
	for _, s := range [][4]string{
		{"calls", ``, `{"index":0,"function":{"arguments":"{}"}},`, `{}]}]}`},
		{"calls whose arguments are cut off", ``, `{"function":{"arguments":"{\"a\":"}},`, `{}]}]}`},
		{"long arguments", `{"function":{"arguments":"{\"a\":\"`, `a long text `, `\"}"}}]}]}`},
		{"arguments of escapes", `{"function":{"arguments":"{\"`, `\\u0061`, `\":1}"}}]}]}`},
		{"deep arguments", ``, `{"function":{"arguments":"{\"a\":` + strings.Repeat(`[`, 500) + `"}},`, `{}]}]}`},
		{"arguments in arguments", ``, `{"function":{"arguments":"{\"function\":{\"arguments\":\"{\\\"a\\\":1}\"}}"}},`, `{}]}]}`},
	} {
		shapes = append(shapes, Shape{Name: s[0], Path: Chat, begin: calling + s[1], piece: s[2], end: s[3]})
	}
	return shapes
}

// deepest is less than the maximum depth of JSON, for the levels around it.
const deepest = 9_000

func deepShapes() []Shape {
	lists := strings.Repeat("[", deepest) + strings.Repeat("]", deepest) + ","
	contents := strings.Repeat(`{"content":[`, deepest/2) + strings.Repeat(`]}`, deepest/2) + ","
	objects := strings.Repeat(`{"content":`, deepest) + "1" + strings.Repeat(`}`, deepest) + ","
	return []Shape{
		{Name: "deep lists", Path: Chat, begin: chat, piece: lists, end: `1]}`},
		{Name: "deep contents", Path: Chat, begin: chat, piece: contents, end: `1]}`},
		{Name: "deep objects", Path: Chat, begin: chat, piece: objects, end: `1]}`},
		{Name: "deep prompts", Path: Completions, begin: model + `"prompt":[`, piece: lists, end: `1]}`},
		{Name: "deep tools", Path: Chat, begin: model + `"tools":[`, piece: lists, end: `1]}`},
	}
}

func framedShapes() []Shape {
	field := func(number protowire.Number, value string) string {
		return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
	}
	shape := func(name, piece string) Shape {
		return Shape{Name: "gRPC: " + name, Path: VLLMGRPC, piece: piece, framed: true}
	}
	return []Shape{
		shape("tokenized inputs", field(2, field(2, "\x01"))),
		shape("token ids", field(2, field(2, strings.Repeat("\x01", 1<<10)))),
		shape("lists of token ids", field(2, strings.Repeat(field(2, "\x01"), 1<<10))),
		shape("hashes of images", field(7, strings.Repeat(field(6, ""), 1<<10))),
		shape("texts", field(3, "")),
		shape("unknown fields", field(100, "")),
	}
}

// Frame makes a gRPC message as it is in an HTTP body.
func Frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}
