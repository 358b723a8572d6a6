package api

// anthropic are the APIs of Anthropic, as vLLM and SGLang serve them: https://docs.anthropic.com/en/api/messages.
var anthropic = []API{
	{suffix: "/v1/messages", read: (*Request).readJSON, fields: anthropicFields, named: true, Generates: true},
	{suffix: "/v1/messages/count_tokens", read: (*Request).readJSON, fields: modelFields, named: true},
}

var anthropicFields = fields{
	"model":      (*Request).readModel,
	"stream":     (*Request).readStream,
	"cache_salt": (*Request).readCacheSalt, // vLLM
	"tools":      (*Request).readTools,
	"system":     (*Request).readSystem,
	"messages":   (*Request).readMessages,
}
