package api

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
)

// MaxModel is the maximum length of a model's name, in bytes. Names are kept in records, log lines, labels of metrics and headers, so a
// client must not choose their size. The longest real names are paths of local files.
const MaxModel = 1024

var (
	errNotObject = errors.New("it is not an object")
	errLongModel = fmt.Errorf("the name of the model is longer than %d bytes", MaxModel)
)

// fields are the top-level fields of a JSON object that an API reads, with the methods that read or skip their values. The
// last of duplicate fields counts, as usual. The model server refuses values of the wrong type; they count as missing here.
type fields map[string]func(*Request)

// usualFields are the fields of all APIs. A name means the same in each of them, except for input.
var usualFields = fields{
	"model":                (*Request).readModel,
	"stream":               (*Request).readStream,
	"cache_salt":           (*Request).readCacheSalt, // vLLM, SGLang
	"extra_key":            (*Request).readCacheSalt, // SGLang
	"tools":                (*Request).readTools,
	"system":               (*Request).readSystem,
	"instructions":         (*Request).readSystem,
	"messages":             (*Request).readMessages,
	"input":                (*Request).readInput,
	"prompt":               (*Request).readPrompts,
	"text":                 (*Request).readPrompts,
	"token_ids":            (*Request).readPrompts,
	"input_ids":            (*Request).readPrompts,
	"image_data":           readMedia(imageTokens),
	"audio_data":           readMedia(audioTokens),
	"video_data":           readMedia(videoTokens),
	"features":             (*Request).readFeatures,
	"previous_response_id": (*Request).readPrevious,
}

// fieldsOf returns the usual fields with these names.
func fieldsOf(names ...string) fields {
	some := fields{}
	for _, name := range names {
		some[name] = usualFields[name]
	}
	return some
}

// readJSON reads a JSON object.
func (r *Request) readJSON() error {
	s := &r.scanner
	s.SkipBOM()
	if kind := s.NextKind(); s.Err() == nil && kind != Object {
		s.SkipValue()
		return cmp.Or(s.CheckEnd(), errNotObject)
	}
	s.EnterValue()
	for key, ok := s.NextKey(); ok; key, ok = s.NextKey() {
		if read, known := r.API.fields[string(key)]; known {
			read(r)
		} else {
			s.SkipValue()
		}
	}
	if err := s.CheckEnd(); err != nil {
		return err
	}
	return r.decodeModel()
}

// decodeModel sets the name of the model, without escapes.
func (r *Request) decodeModel() error {
	raw := r.bodyText(r.ModelSpan)
	if len(raw) > MaxEscape*MaxModel {
		return errLongModel
	}
	if r.modelEscaped {
		raw = Unescape(nil, raw)
	}
	if len(raw) > MaxModel {
		return errLongModel
	}
	r.Model = string(raw)
	return nil
}

func (r *Request) bodyText(span Span) []byte { return r.body[span.From:span.To] }

// readString reads a string. Other values count as missing.
func (r *Request) readString() (span Span, escaped bool) {
	if r.scanner.NextKind() != String {
		r.scanner.SkipValue()
		return Span{}, false
	}
	return r.scanner.ReadString()
}

// readHash reads the hash of a string, 0 for an empty one and for other values.
func (r *Request) readHash() uint64 {
	span, _ := r.readString()
	if span.From == span.To {
		return 0
	}
	return r.hashText(span, r.scanner.Surplus())
}

func (r *Request) readModel()     { r.ModelSpan, r.modelEscaped = r.readString() }
func (r *Request) readStream()    { r.Stream = string(r.bodyText(r.scanner.SkipValue())) == "true" }
func (r *Request) readCacheSalt() { r.Salt = r.readHash() }

// readTools reads a list of tools.
func (r *Request) readTools() {
	r.tools.clearParts()
	r.eachElement(func() { r.tools.addPart(r.readPart(tool)) })
}

// eachElement calls f for each element of the next value if it is a list, and once if it is another value. f must read or skip
// the element.
func (r *Request) eachElement(f func()) {
	if r.scanner.NextKind() != Array {
		f()
		return
	}
	r.scanner.EnterValue()
	for r.scanner.NextElement() {
		f()
	}
}

// readPrompts reads the prompts of a completion: a text, token ids, or a list of either. An object is not a prompt.
func (r *Request) readPrompts() {
	if r.scanner.NextKind() == Object {
		r.scanner.SkipValue()
		return
	}
	r.discardPrompt()
	if r.atIDs() {
		r.main.addPart(r.readPrompt())
		return
	}
	first := true
	r.eachElement(func() {
		p := r.readPrompt()
		if first {
			r.main.addPart(p)
		} else {
			r.otherPrompts.addSize(sizeOf(p))
		}
		first = false
	})
}

// readPrompt reads one prompt.
func (r *Request) readPrompt() Part {
	if !r.atIDs() {
		return r.readText()
	}
	span := r.scanner.SkipValue()
	n := bytes.Count(r.bodyText(span), []byte{','}) + 1
	return Part{From: uint32(span.From), To: uint32(span.To), Size: uint32(n), Kind: IDs}
}

// atIDs reports whether the next value is a list of numbers, by its first element.
func (r *Request) atIDs() bool {
	if r.scanner.NextKind() != Array {
		return false
	}
	inside := bytes.TrimLeft(r.body[r.scanner.Offset()+1:], jsonBlanks)
	return len(inside) > 0 && '0' <= inside[0] && inside[0] <= '9'
}
