package api

import (
	"bytes"
	"net/http"
	"strconv"
)

// An event is what the object of an event has, or that of a whole body. A text that ends in the middle is read as far as it goes.
type event struct {
	typ     []byte // of Anthropic's Messages and of the Responses API
	name    eventName
	members bool // it has any
	known   bool // it has one of the members below, or a type
	answer  bool // one of them is what a whole answer has
	lists   bool // a member that carries no text is a list, and not of errors
	filled  bool // one of them carries content
	failed  bool // it reports an error
	refused bool // the error is the client's
	hasEnd  bool // it has the reason of the end
	calling bool // it begins the call of a tool

	text Span // between the quotes of the last text that is content; empty if the event has no content
}

func (e *event) readMembers(s *Scanner) {
	s.EachMember(func(key []byte) {
		e.members = true
		e.readMember(key, s)
	})
}

// readMember reads a member of the object.
func (e *event) readMember(key []byte, s *Scanner) {
	switch string(key) {
	case "type":
		e.typ, e.known = readText(s), true
		e.name = readEventName(e.typ)
		e.failed = e.failed || e.name == errorEvent
	case "object":
		e.failed = string(readText(s)) == "error" || e.failed // of vLLM until 0.9
	case "error":
		e.readError(s)
	case "meta_info":
		e.known = true
		e.readMetaInfo(s)
	case "item":
		e.readItem(s)
	default:
		e.readCarrier(key, s)
	}
}

// readOther reads a member that some APIs have.
func (e *event) readOther(key []byte, s *Scanner) {
	switch string(key) {
	case "stop": // of llama.cpp's own format
		e.hasEnd = string(readText(s)) == "true" || e.hasEnd
	case "code", "error_type": // of vLLM until 0.9, and of TGI
		e.readCause(key, s)
	case "output":
		s.SkipValue()
		e.answer = true
	case "data", "embedding", "results":
		e.lists = e.lists || s.NextKind() == Array
		_, is := readFilled(s)
		e.answer = e.answer || is
	case "detail", "errors":
		s.SkipValue()
	default:
		e.lists = e.lists || s.NextKind() == Array
		s.SkipValue()
	}
}

// readCarrier reads a member that may carry content.
func (e *event) readCarrier(key []byte, s *Scanner) {
	known := e.known
	e.known = true
	switch string(key) {
	case "choices":
		e.readChoices(s)
	case "delta", "content_block", "token": // a part, or text
		e.readPart(s)
	case "text", "output_ids", "token_ids", "text_output", "generated_text": // of SGLang, Triton and TGI
		e.answer = true
		e.readContent(s)
	case "content": // of a whole message, and of llama.cpp
		e.answer = true
		e.readParts(s)
	default:
		e.known = known
		e.readOther(key, s)
	}
}

// readText reads a value. It returns the text between the quotes of a string.
func readText(s *Scanner) []byte { return bytes.Trim(s.TextOf(s.SkipValue()), `"`) }

// readChoices reads the choices of OpenAI's APIs.
func (e *event) readChoices(s *Scanner) {
	if s.NextKind() != Array {
		s.SkipValue()
		return
	}
	for s.EnterValue(); s.NextElement(); {
		e.answer = true
		s.EachMember(func(key []byte) {
			switch string(key) {
			case "delta", "message":
				e.readPart(s)
			case "text", "token_ids":
				e.readContent(s)
			case "finish_reason":
				e.readFinish(s)
			default:
				s.SkipValue()
			}
		})
	}
}

// readFinish reads the reason of the end.
func (e *event) readFinish(s *Scanner) {
	reason := readText(s)
	switch string(reason) {
	case "", "null":
	case "error", "abort":
		e.failed = true
	default:
		e.hasEnd = true
	}
}

// readMetaInfo reads what SGLang says of an answer: {"finish_reason": {"type": "abort"}} is an error.
func (e *event) readMetaInfo(s *Scanner) {
	s.EachMember(func(key []byte) {
		if string(key) != "finish_reason" || s.NextKind() != Object {
			s.SkipValue()
			return
		}
		s.EachMember(func(key []byte) {
			if string(key) == "type" {
				e.readFinish(s)
			} else {
				e.readCause(key, s)
			}
		})
	})
}

// readError reads an error: an object, or a text. A number or a Boolean says that there was none, or what another member explains.
func (e *event) readError(s *Scanner) {
	switch s.NextKind() {
	case Object:
		s.EachMember(func(key []byte) {
			e.failed = true
			e.readCause(key, s)
		})
	case String, Array:
		_, is := readFilled(s)
		e.failed = e.failed || is
	default:
		value := string(readText(s))
		e.failed = e.failed || value != "" && value != "null" && value != "false" && value != "0"
	}
}

// readCause reads a member of an error. Some servers begin a stream before they read its request, so that a status cannot say that it is
// wrong.
func (e *event) readCause(key []byte, s *Scanner) {
	value := readText(s)
	switch string(key) {
	case "code", "status_code", "http_status_code":
		status, err := strconv.Atoi(string(value))
		e.refused = e.refused || err == nil && status/100 == 4 && status != http.StatusTooManyRequests
	case "type":
		e.refused = e.refused || string(value) == "invalid_request_error"
	case "error_type":
		e.refused = e.refused || string(value) == "validation"
	}
}

// readItem reads an item of the Responses API that has begun.
func (e *event) readItem(s *Scanner) {
	s.EachMember(func(key []byte) {
		if value := readText(s); string(key) == "type" && bytes.HasSuffix(value, []byte("_call")) {
			e.calling = true
		}
	})
}

// readPart reads a delta, a message or a block: any member but its role, type, name, index and identifier is content, if it is not empty.
func (e *event) readPart(s *Scanner) {
	if s.NextKind() != Object {
		e.readContent(s)
		return
	}
	s.EachMember(func(key []byte) {
		switch string(key) {
		case "type":
			e.calling = string(readText(s)) == "tool_use" || e.calling
		case "content":
			e.readParts(s)
		case "role", "name", "index", "id", "special", "logprob", "stop_reason", "stop_sequence":
			s.SkipValue()
		default:
			e.readContent(s)
		}
	})
}

// readParts reads content: a text, or a list of parts.
func (e *event) readParts(s *Scanner) {
	if s.NextKind() != Array {
		e.readContent(s)
		return
	}
	for s.EnterValue(); s.NextElement(); {
		if s.NextKind() != Object {
			e.readContent(s)
			continue
		}
		s.EachMember(func(key []byte) {
			if string(key) == "type" {
				s.SkipValue()
			} else {
				e.readContent(s)
			}
		})
	}
}

// isLast reports whether the event says that the stream is complete.
func (e *event) isLast() bool { return e.hasEnd || e.name == lastEvent }

// hasContent reports whether the event carries content.
func (e *event) hasContent() bool {
	switch string(e.typ) {
	case "response.output_item.added":
		return e.calling
	case "ping", "message_start", "message_delta", "message_stop", "content_block_stop":
		return false
	}
	if bytes.HasPrefix(e.typ, []byte("response.")) {
		return e.filled && bytes.HasSuffix(e.typ, []byte(".delta"))
	}
	return e.filled || e.calling
}

// readContent reads a value, which is content if it is filled.
func (e *event) readContent(s *Scanner) {
	kind := s.NextKind()
	value, is := readFilled(s)
	e.filled = e.filled || is
	if is && kind == String && s.Err() == nil {
		e.text = Span{From: value.From + 1, To: value.To - 1}
	}
}

// readFilled reads a value. It reports whether it is anything but null, "", [] and {}.
func readFilled(s *Scanner) (value Span, is bool) {
	kind := s.NextKind()
	value = s.SkipValue()
	text := s.TextOf(value)
	switch {
	case kind == Invalid, kind == Null:
		return value, false
	case s.Err() != nil: // it ends in the middle
		return value, true
	case kind == String, kind == Array, kind == Object:
		return value, len(bytes.Trim(text[1:len(text)-1], jsonBlanks)) > 0 || kind == String && len(text) > len(`""`)
	}
	return value, true
}
