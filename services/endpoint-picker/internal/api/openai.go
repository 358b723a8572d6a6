package api

import (
	"strings"

	"github.com/cespare/xxhash/v2"
)

// openAI are the APIs of OpenAI, as vLLM and SGLang serve them: https://platform.openai.com/docs/api-reference.
var openAI = []API{
	{suffix: "/chat/completions", readBody: (*Request).readJSON, fields: chatFields, namesModel: true, Generates: true},
	{suffix: "/completions", readBody: (*Request).readJSON, fields: completionFields, namesModel: true, Generates: true},
	{suffix: "/responses", readBody: (*Request).readJSON, fields: responseFields, namesModel: true, Generates: true, Stores: true},
	{suffix: "/embeddings", readBody: (*Request).readJSON, fields: embeddingFields, namesModel: true, Generates: true,
		Usage: FormatLists},
	{suffix: "/images/generations", readBody: (*Request).readJSON, fields: completionFields, namesModel: true, Generates: true,
		Usage: FormatLists},
	{suffix: "/completions/render", readBody: (*Request).readJSON, fields: modelFields, namesModel: true}, // also of chats
	{suffix: "/conversations", readBody: (*Request).readJSON, fields: modelFields},
	// Of vLLM, SGLang and TGI. Only the model is read.
	{suffix: "/rerank", readBody: (*Request).readJSON, fields: modelFields, Generates: true, Usage: FormatLists},
	{suffix: "/score", readBody: (*Request).readJSON, fields: modelFields, Generates: true, Usage: FormatLists},
	{suffix: "/classify", readBody: (*Request).readJSON, fields: modelFields, Generates: true, Usage: FormatLists},
	{suffix: "/pooling", readBody: (*Request).readJSON, fields: modelFields, Generates: true, Usage: FormatLists},
	{suffix: "/generate_stream", readBody: (*Request).readJSON, fields: modelFields, Generates: true, Usage: FormatOpen},
}

// modelFields are for requests whose prompt is not computed.
var modelFields = fieldsOf("model")

// otherFields are for paths without an API here, such as /v1/responses/compact.
var otherFields = fieldsOf("model", "previous_response_id")

var chatFields = fieldsOf("model", "stream", "cache_salt", "extra_key", "tools", "messages")

var completionFields = fieldsOf("model", "stream", "cache_salt", "extra_key", "prompt")

// responseFields lack text, the format of the answer, and prompt, a reference to a stored template.
var responseFields = fieldsOf("model", "stream", "cache_salt", "tools", "instructions", "input", "previous_response_id")

// readPrevious reads the identifier of the stored response that the prompt begins with.
func (r *Request) readPrevious() { r.Stored = r.readHash() }

// storedResponse returns the hash of the identifier in the path of a stored response, 0 for other paths: /responses/{id}, /cancel and
// /input_items below it, whatever comes before.
func storedResponse(path string) uint64 {
	const responses = "/responses/"
	at := strings.LastIndex(path, responses)
	if at < 0 {
		return 0
	}
	id, _, _ := strings.Cut(path[at+len(responses):], "/")
	if id == "compact" || id == "input_tokens" { // POST to them names none in the path
		return 0
	}
	return xxhash.Sum64String(id)
}

// embeddingFields have messages, with which vLLM embeds conversations and images.
var embeddingFields = fields{
	"model":      (*Request).readModel,
	"cache_salt": (*Request).readCacheSalt,
	"input":      (*Request).readPrompts,
	"messages":   (*Request).readMessages,
}
