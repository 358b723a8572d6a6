package request

import (
	"bytes"
	"strconv"

	"fairlead.dev/services/endpoint-picker/internal/jsonscan"
)

// readJSON reads the body of any API that takes a JSON object: fields with the same name have the same meaning in all of
// them. The model server refuses values of the wrong type.
func (r *Request) readJSON() error {
	s := &r.scanner
	s.Reset(r.Body)
	defer s.Reset(nil) // the body belongs to the caller and must not be kept
	if kind := s.Next(); s.Err() == nil && kind != jsonscan.Object {
		return errNotObject
	}
	s.Open()
	for key, ok := s.Key(); ok; key, ok = s.Key() {
		r.field(key)
	}
	if err := s.End(); err != nil {
		return err //nolint:wrapcheck // it says all
	}
	r.join()
	return nil
}

// join assembles the prompt.
func (r *Request) join() {
	r.Prompt = r.main
	if len(r.head) > 0 {
		if r.Turns.History > 0 {
			r.Turns.Opening += len(r.head)
			r.Turns.Asked += len(r.head)
			r.Turns.History += len(r.head)
		}
		r.head = append(r.head, r.main...)
		r.Prompt = r.head
	}
}

// field reads one field of the body. The last of duplicate fields counts, as usual.
func (r *Request) field(key []byte) {
	switch string(key) {
	case "model":
		r.Model = r.text()
	case "cache_salt", "extra_key":
		r.CacheSalt = r.text()
	case "stream":
		r.Stream = string(r.Text(r.scanner.Value())) == "true"
	case "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens":
		r.MaxTokens = r.count()
	case "sampling_params": // in vLLM's and SGLang's own APIs
		r.members(func(key []byte) {
			switch string(key) {
			case "max_tokens", "max_new_tokens":
				r.MaxTokens = r.count()
			default:
				r.scanner.Value()
			}
		})
	case "tools", "system", "instructions":
		r.head = r.part(r.head)
	case "messages", "input":
		r.main, r.Turns = r.main[:0], Turns{}
		r.messages()
	case "prompt", "text", "token_ids", "input_ids":
		r.main, r.Others, r.Turns = r.main[:0], 0, Turns{}
		r.prompts()
	default:
		r.scanner.Value()
	}
}

// text reads a string. Other values count as missing.
func (r *Request) text() jsonscan.Span {
	if r.scanner.Next() != jsonscan.String {
		r.scanner.Value()
		return jsonscan.Span{}
	}
	span, _ := r.scanner.String()
	return span
}

// count reads a number of tokens, 0 if it is not a number.
func (r *Request) count() int {
	n, err := strconv.Atoi(string(r.Text(r.scanner.Value())))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// members iterates over the next value if it is an object, and skips it if not. f must read or skip each value.
func (r *Request) members(f func(key []byte)) {
	if r.scanner.Next() != jsonscan.Object {
		r.scanner.Value()
		return
	}
	r.scanner.Open()
	for key, ok := r.scanner.Key(); ok; key, ok = r.scanner.Key() {
		f(key)
	}
}

// part appends the next value as one part.
func (r *Request) part(parts []Part) []Part {
	if r.scanner.Next() == jsonscan.String {
		span, _ := r.scanner.String()
		return append(parts, Part{Span: span})
	}
	return append(parts, Part{Span: r.scanner.Value()})
}

// messages reads a conversation: a text, a list of messages, or a list of their contents.
func (r *Request) messages() {
	if r.scanner.Next() != jsonscan.Array {
		r.main = r.part(r.main)
		return
	}
	r.scanner.Open()
	for r.scanner.More() {
		if r.scanner.Next() == jsonscan.Object {
			r.message()
		} else {
			r.main = r.part(r.main)
		}
	}
}

// message reads a message, or one of several contents of a message: its text, and other parts of the prompt.
func (r *Request) message() {
	from, answer := len(r.main), false
	r.scanner.Open()
	for key, ok := r.scanner.Key(); ok; key, ok = r.scanner.Key() {
		switch string(key) {
		case "role":
			r.main = r.part(r.main)
			answer = string(r.Text(r.main[len(r.main)-1].Span)) == "assistant"
		case "content":
			r.messages() // a text, or a list of contents
		case "image_url", "input_image", "image", "source", "input_audio", "audio_url", "video_url", "file", "image_embeds":
			r.main = append(r.main, Part{Span: r.scanner.Value(), Media: true})
		default: // text, tool_calls, ...
			r.main = r.part(r.main)
		}
	}
	if answer {
		r.Turns.answered(from, len(r.main))
	}
}

// prompts reads a prompt of the completions API: a text, token ids, or a list of either.
func (r *Request) prompts() {
	if r.scanner.Next() != jsonscan.Array {
		r.main = r.part(r.main)
		return
	}
	from := r.scanner.At()
	r.scanner.Open()
	ids := false // the list contains token ids, so it is one prompt
	for first := true; r.scanner.More(); first = false {
		kind := r.scanner.Next()
		if first {
			ids = kind == jsonscan.Number
		}
		switch {
		case ids:
			r.scanner.Value()
		case !first:
			other := r.scanner.Value()
			r.Others += other.To - other.From
		case kind == jsonscan.Array:
			r.main = append(r.main, r.ids(r.scanner.Value()))
		default:
			r.main = r.part(r.main)
		}
	}
	if ids {
		r.main = append(r.main, r.ids(jsonscan.Span{From: from, To: r.scanner.At()}))
	}
}

// ids returns the part for a list of token ids.
func (r *Request) ids(list jsonscan.Span) Part {
	return Part{Span: list, IDs: bytes.Count(r.Text(list), []byte{','}) + 1}
}
