package api

// anthropic are the APIs of Anthropic, as vLLM and SGLang serve them: https://docs.anthropic.com/en/api/messages.
var anthropic = []API{
	{suffix: "/v1/messages", readBody: (*Request).readJSON, fields: anthropicFields, namesModel: true, Generates: true},
	{suffix: "/v1/messages/count_tokens", readBody: (*Request).readJSON, fields: modelFields, namesModel: true},
}

var anthropicFields = fields{
	"model":      (*Request).readModel,
	"stream":     (*Request).readStream,
	"cache_salt": (*Request).readCacheSalt, // vLLM
	"tools":      (*Request).readTools,
	"system":     (*Request).readSystem,
	"messages":   (*Request).readMessages,
}
