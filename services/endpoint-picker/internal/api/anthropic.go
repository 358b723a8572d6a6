package api

// anthropic are the APIs of Anthropic, as vLLM and SGLang serve them: https://docs.anthropic.com/en/api/messages.
var anthropic = []API{
	{suffix: "/v1/messages", readBody: (*Request).readJSON, fields: anthropicFields, namesModel: true, Generates: true},
	{suffix: "/v1/messages/count_tokens", readBody: (*Request).readJSON, fields: modelFields, namesModel: true},
}

var anthropicFields = fieldsOf("model", "stream", "cache_salt", "tools", "system", "messages")
