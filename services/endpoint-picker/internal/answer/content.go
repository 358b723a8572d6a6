package answer

import (
	"bytes"

	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
	"fairlead.dev/services/endpoint-picker/internal/scan/protoscan"
)

// maxEvent is the maximum size of a line of an event that is read, in bytes. A longer line has content.
const maxEvent = 16 << 10

// ContentReader finds the parts of a body that carry content: text, reasoning, calls of tools, or whatever else the model produced. Comments and
// pings that keep a connection open, events that announce an answer (response.created, a delta with only a role) and empty deltas carry none,
// nor do errors. The zero value is ready.
//
// Sources: the streaming formats of OpenAI's Chat Completions, Completions and Responses, of Anthropic's Messages, of SGLang's /generate, of
// vLLM's gRPC service, and server-sent events of the WHATWG. A body that is no stream of events is content from its first byte.
type ContentReader struct {
	Form   Form // that of the usage
	Events bool // the body is a stream of events that can be read

	line     []byte // begun, not complete: of the events, or the body itself
	long     bool   // the line is longer than maxEvent
	failed   bool   // the event is named error
	standard bool   // an event has a format whose streams say that they are complete
	finished bool   // it said so
	begun    bool   // there was content
	any      bool   // there was an event, or a comment
	last     byte   // of a body without events, beside blanks; 0 while it is empty
	errors   int
	frames   frames
	found    int
	scan     jsonscan.Scanner
}

// Errors returns the number of events so far that report an error.
func (r *ContentReader) Errors() int { return r.errors }

// Began reports whether there was any event or comment. An event that reports an error counts, too.
func (r *ContentReader) Began() bool { return r.any }

// Whole reports whether the body, which has ended, is an answer: it has content, or is a complete stream without any; it reports no error;
// and it does not stop in the middle, as far as its format shows.
func (r *ContentReader) Whole() bool {
	switch {
	case r.Events && r.Form != FormVLLM:
		return r.errors == 0 && (r.finished || !r.standard && r.begun)
	case r.last == 0: // it is empty
		return false
	case r.Form == FormVLLM, r.line[0] != '{':
		return true
	case !r.long:
		r.data(r.line)
	}
	return r.errors == 0 && r.last == '}'
}

// Read processes the next piece of the body. It returns the number of events with content that end in the piece. In a body that is no stream
// of events, each piece is one.
func (r *ContentReader) Read(piece []byte) int {
	r.found = 0
	if r.Form == FormVLLM {
		r.last = piece[len(piece)-1] | 1
		r.frames.read(piece, r.message)
		return r.found
	}
	if !r.Events {
		r.body(piece)
		return 1
	}
	for {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			r.keep(piece)
			return r.found
		}
		r.complete(piece[:end])
		piece = piece[end+1:]
	}
}

// count counts an event with content.
func (r *ContentReader) count() { r.found, r.begun = r.found+1, true }

// body reads a piece of a body without events.
func (r *ContentReader) body(piece []byte) {
	if text := bytes.TrimRight(piece, jsonscan.Blanks); len(text) > 0 {
		r.last = text[len(text)-1]
	}
	if len(r.line) == 0 {
		piece = bytes.TrimLeft(piece, jsonscan.Blanks)
	}
	if len(r.line) == 0 && len(piece) > maxEvent {
		r.line = append(r.line, piece[0])
	}
	r.keep(piece)
}

// keep stores the beginning of a line.
func (r *ContentReader) keep(piece []byte) {
	if r.long = r.long || len(r.line)+len(piece) > maxEvent; !r.long {
		r.line = append(r.line, piece...)
	}
}

// complete reads the end of a line.
func (r *ContentReader) complete(end []byte) {
	line := end
	if len(r.line) > 0 {
		r.line = append(r.line, end...)
		line = r.line
	}
	if r.long {
		r.any = true
		r.count()
	} else {
		r.field(bytes.TrimSuffix(line, []byte("\r")))
	}
	r.line, r.long = r.line[:0], false
}

// field reads a line of an event.
func (r *ContentReader) field(line []byte) {
	if len(line) == 0 { // the end of the event
		r.failed = false
		return
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimSpace(value)
	switch string(name) {
	case "":
		r.any = true
	case "event":
		r.failed = string(value) == "error"
	case "data":
		r.any = true
		switch {
		case len(value) == 0:
		case string(value) == "[DONE]":
			r.finished = true
		case r.failed:
			r.errors++
		default:
			r.data(value)
		}
	}
}

// data reads the data of an event.
func (r *ContentReader) data(text []byte) {
	s := &r.scan
	s.Reset(text)
	if s.Next() != jsonscan.Object {
		r.count()
		return
	}
	var e event
	e.read(s)
	r.standard, r.finished = r.standard || e.known, r.finished || e.ends()
	switch {
	case e.failed, string(e.typ) == "response.failed":
		r.errors++
	case s.Err() != nil, e.content(): // what cannot be read is not judged
		r.count()
	}
}

// event is what an event's object has.
type event struct {
	typ     []byte // of Anthropic's Messages and of the Responses API
	known   bool   // it has one of the members below, or a type
	filled  bool   // one of them carries content
	failed  bool   // it reports an error
	ended   bool   // it has the reason of the end
	calling bool   // it begins the call of a tool
}

func (e *event) read(s *jsonscan.Scanner) {
	s.Open()
	for key, ok := s.Key(); ok; key, ok = s.Key() {
		switch string(key) {
		case "type":
			e.typ = bytes.Trim(s.Text(s.Value()), `"`)
			e.known = true
		case "choices":
			e.known = true
			e.choices(s)
		case "error":
			e.failed = filled(s) || e.failed
		case "delta": // of a block, or text
			e.known = true
			e.part(s)
		case "content_block":
			e.known = true
			e.part(s)
		case "text", "output_ids", "token_ids": // SGLang's own
			e.known = true
			e.filled = filled(s) || e.filled
		default:
			s.Value()
		}
	}
}

// choices reads the choices of OpenAI's APIs.
func (e *event) choices(s *jsonscan.Scanner) {
	if s.Next() != jsonscan.Array {
		s.Value()
		return
	}
	for s.Open(); s.More(); {
		if s.Next() != jsonscan.Object {
			s.Value()
			continue
		}
		s.Open()
		for key, ok := s.Key(); ok; key, ok = s.Key() {
			switch string(key) {
			case "delta", "message":
				e.part(s)
			case "text", "token_ids":
				e.filled = filled(s) || e.filled
			case "finish_reason":
				e.ended = filled(s) || e.ended
			default:
				s.Value()
			}
		}
	}
}

// part reads a delta, a message or a block: any member but its role, type, index and identifier is content, if it is not empty.
func (e *event) part(s *jsonscan.Scanner) {
	if s.Next() != jsonscan.Object {
		e.filled = filled(s) || e.filled
		return
	}
	s.Open()
	for key, ok := s.Key(); ok; key, ok = s.Key() {
		switch string(key) {
		case "type":
			e.calling = string(s.Text(s.Value())) == `"tool_use"` || e.calling
		case "role", "index", "id", "stop_reason", "stop_sequence":
			s.Value()
		default:
			e.filled = filled(s) || e.filled
		}
	}
}

// ends reports whether the event says that the stream is complete.
func (e *event) ends() bool {
	switch string(e.typ) {
	case "message_stop", "response.completed", "response.incomplete":
		return true
	}
	return e.ended
}

// content reports whether the event carries content.
func (e *event) content() bool {
	switch {
	case !e.known: // of an API that is not known
		return true
	case bytes.HasPrefix(e.typ, []byte("response.")):
		return e.filled && bytes.HasSuffix(e.typ, []byte(".delta"))
	}
	switch string(e.typ) {
	case "ping", "message_start", "message_delta", "message_stop", "content_block_stop":
		return false
	}
	return e.filled || e.calling
}

// filled reads a value. It reports whether it is anything but null, "", [] and {}.
func filled(s *jsonscan.Scanner) bool {
	text := s.Text(s.Value())
	if len(text) < 2 {
		return len(text) > 0
	}
	switch text[0] {
	case 'n':
		return false
	case '"':
		return len(text) > 2
	case '[', '{':
		return len(bytes.Trim(text[1:len(text)-1], jsonscan.Blanks)) > 0
	}
	return true
}

// vllmTokens is the field of GenerateStreamChunk and GenerateComplete with the packed identifiers of tokens.
const vllmTokens = 1<<3 | protoscan.Bytes

// message reads a message of vLLM's gRPC service.
func (r *ContentReader) message(b []byte) {
	for f := protoscan.Read(b); f.Next(); {
		switch f.Tag {
		case vllmEmbedPrompt:
			r.count()
		case vllmChunk, vllmComplete:
			for inner := protoscan.Read(f.Bytes); inner.Next(); {
				if inner.Tag == vllmTokens && len(inner.Bytes) > 0 {
					r.count()
					break
				}
			}
		}
	}
}
