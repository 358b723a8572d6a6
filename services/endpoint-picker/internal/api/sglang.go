package api

// sglang is SGLang's own API: GenerateReqInput in python/sglang/srt/managers/io_struct.py.
var sglang = []API{
	{suffix: "/generate", readBody: (*Request).readJSON, fields: sglangFields, Generates: true, Usage: FormatMetaInfo},
}

// sglangFields have a model, which SGLang ignores, because rules of the picker may need it.
var sglangFields = fieldsOf("model", "stream", "cache_salt", "extra_key", "text", "input_ids", "image_data", "audio_data", "video_data")

// readMedia returns a function that reads one medium or a list. They come first in the prompt: their places in it are the same for all
// media.
func readMedia(tokens uint32) func(*Request) {
	return func(r *Request) {
		r.eachElement(func() { r.head.addPart(r.readMedium(tokens)) })
	}
}
