package api

// vllm is vLLM's own API: GenerateRequest in vllm/entrypoints/serve/disagg/protocol.py.
var vllm = []API{
	{suffix: "/inference/v1/generate", readBody: (*Request).readJSON, fields: vllmFields, Generates: true},
}

var vllmFields = fieldsOf("model", "stream", "cache_salt", "token_ids", "features")

// readFeatures reads the hashes of media. Their tokens are among the token ids, and the same for all media.
func (r *Request) readFeatures() {
	r.scanner.EachMember(func(key []byte) {
		if string(key) == "mm_hashes" {
			r.head.addPart(r.readMedium(0))
		} else {
			r.scanner.SkipValue()
		}
	})
}
