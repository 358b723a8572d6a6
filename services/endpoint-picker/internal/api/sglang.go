package api

// sglang is SGLang's own API: GenerateReqInput in python/sglang/srt/managers/io_struct.py.
var sglang = []API{
	{suffix: "/generate", readBody: (*Request).readJSON, fields: sglangFields, Generates: true, Usage: FormatMetaInfo},
}

// sglangFields have a model, which SGLang ignores, because rules of the picker may need it.
var sglangFields = fields{
	"model":      (*Request).readModel,
	"stream":     (*Request).readStream,
	"cache_salt": (*Request).readCacheSalt,
	"extra_key":  (*Request).readCacheSalt,
	"text":       (*Request).readPrompts,
	"input_ids":  (*Request).readPrompts,
	"image_data": (*Request).readImages,
	"audio_data": (*Request).readAudio,
	"video_data": (*Request).readVideo,
}

func (r *Request) readImages() { r.readMedia(imageTokens) }
func (r *Request) readAudio()  { r.readMedia(audioTokens) }
func (r *Request) readVideo()  { r.readMedia(videoTokens) }

// readMedia reads one medium or a list. They come first in the prompt: their places in it are the same for all media.
func (r *Request) readMedia(tokens uint32) {
	r.eachElement(func() { r.head.addPart(r.readMedium(tokens)) })
}
