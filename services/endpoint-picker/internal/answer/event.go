package answer

import (
	"bytes"
	"net/http"
	"strconv"

	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
)

// Types of events of Anthropic's Messages and of the Responses API.
const (
	typeError      = "error"
	typePing       = "ping"
	typeStop       = "message_stop"
	typeCompleted  = "response.completed"
	typeIncomplete = "response.incomplete"
	typeFailed     = "response.failed"
	typeItem       = "response.output_item.added"

	prefixResponse = "response."
	suffixDelta    = ".delta"
)

// An event is what the object of an event has, or that of a whole body. A text that ends in the middle is read as far as it goes.
type event struct {
	typ     []byte // of Anthropic's Messages and of the Responses API
	members bool   // it has any
	known   bool   // it has one of the members below, or a type
	answer  bool   // one of them is what a whole answer has
	lists   bool   // a member that carries no text is a list, and not of errors
	filled  bool   // one of them carries content
	failed  bool   // it reports an error
	refused bool   // the error is the client's
	ended   bool   // it has the reason of the end
	calling bool   // it begins the call of a tool

	text jsonscan.Span // between the quotes of the last text that is content; empty: there is none
}

func (e *event) read(s *jsonscan.Scanner) {
	s.EachMember(func(key []byte) {
		e.members = true
		e.member(key, s)
	})
}

// member reads a member of the object.
func (e *event) member(key []byte, s *jsonscan.Scanner) {
	switch string(key) {
	case "type":
		e.typ, e.known = text(s), true
		e.failed = e.failed || readEventName(e.typ) == errorEvent
	case "object":
		e.failed = string(text(s)) == "error" || e.failed // of vLLM until 0.9
	case "error":
		e.error(s)
	case "meta_info":
		e.known = true
		e.metaInfo(s)
	case "item":
		e.item(s)
	default:
		e.carrier(key, s)
	}
}

// other reads a member that some APIs have.
func (e *event) other(key []byte, s *jsonscan.Scanner) {
	switch string(key) {
	case "stop": // of llama.cpp's own format
		e.ended = string(text(s)) == "true" || e.ended
	case "code", "error_type": // of vLLM until 0.9, and of TGI
		e.cause(key, s)
	case "output":
		s.Value()
		e.answer = true
	case "data", "embedding", "results":
		e.lists = e.lists || s.Next() == jsonscan.Array
		_, is := filled(s)
		e.answer = e.answer || is
	case "detail", "errors":
		s.Value()
	default:
		e.lists = e.lists || s.Next() == jsonscan.Array
		s.Value()
	}
}

// carrier reads a member that may carry content.
func (e *event) carrier(key []byte, s *jsonscan.Scanner) {
	known := e.known
	e.known = true
	switch string(key) {
	case "choices":
		e.choices(s)
	case "delta", "content_block", "token": // a part, or text
		e.part(s)
	case "text", "output_ids", "token_ids", "text_output", "generated_text": // of SGLang, Triton and TGI
		e.answer = true
		e.fill(s)
	case "content": // of a whole message, and of llama.cpp
		e.answer = true
		e.parts(s)
	default:
		e.known = known
		e.other(key, s)
	}
}

// text reads a value. It returns the text between the quotes of a string.
func text(s *jsonscan.Scanner) []byte { return bytes.Trim(s.Text(s.Value()), `"`) }

// choices reads the choices of OpenAI's APIs.
func (e *event) choices(s *jsonscan.Scanner) {
	if s.Next() != jsonscan.Array {
		s.Value()
		return
	}
	for s.Open(); s.More(); {
		e.answer = true
		s.EachMember(func(key []byte) {
			switch string(key) {
			case "delta", "message":
				e.part(s)
			case "text", "token_ids":
				e.fill(s)
			case "finish_reason":
				e.finish(s)
			default:
				s.Value()
			}
		})
	}
}

// finish reads the reason of the end.
func (e *event) finish(s *jsonscan.Scanner) {
	reason := text(s)
	switch string(reason) {
	case "", "null":
	case "error", "abort":
		e.failed = true
	default:
		e.ended = true
	}
}

// metaInfo reads what SGLang says of an answer: {"finish_reason": {"type": "abort"}} is an error.
func (e *event) metaInfo(s *jsonscan.Scanner) {
	s.EachMember(func(key []byte) {
		if string(key) != "finish_reason" || s.Next() != jsonscan.Object {
			s.Value()
			return
		}
		s.EachMember(func(key []byte) {
			if string(key) == "type" {
				e.finish(s)
			} else {
				e.cause(key, s)
			}
		})
	})
}

// error reads an error: an object, or a text. A number or a Boolean says that there was none, or what another member explains.
func (e *event) error(s *jsonscan.Scanner) {
	switch s.Next() {
	case jsonscan.Object:
		s.EachMember(func(key []byte) {
			e.failed = true
			e.cause(key, s)
		})
	case jsonscan.String, jsonscan.Array:
		_, is := filled(s)
		e.failed = e.failed || is
	default:
		value := string(text(s))
		e.failed = e.failed || value != "" && value != "null" && value != "false" && value != "0"
	}
}

// cause reads a member of an error. Some servers begin a stream before they read its request, so that a status cannot say that it is wrong.
func (e *event) cause(key []byte, s *jsonscan.Scanner) {
	value := text(s)
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

// item reads an item of the Responses API that has begun.
func (e *event) item(s *jsonscan.Scanner) {
	s.EachMember(func(key []byte) {
		if value := text(s); string(key) == "type" && bytes.HasSuffix(value, []byte("_call")) {
			e.calling = true
		}
	})
}

// part reads a delta, a message or a block: any member but its role, type, name, index and identifier is content, if it is not empty.
func (e *event) part(s *jsonscan.Scanner) {
	if s.Next() != jsonscan.Object {
		e.fill(s)
		return
	}
	s.EachMember(func(key []byte) {
		switch string(key) {
		case "type":
			e.calling = string(text(s)) == "tool_use" || e.calling
		case "content":
			e.parts(s)
		case "role", "name", "index", "id", "special", "logprob", "stop_reason", "stop_sequence":
			s.Value()
		default:
			e.fill(s)
		}
	})
}

// parts reads content: a text, or a list of parts.
func (e *event) parts(s *jsonscan.Scanner) {
	if s.Next() != jsonscan.Array {
		e.fill(s)
		return
	}
	for s.Open(); s.More(); {
		switch s.Next() {
		case jsonscan.Object:
			s.EachMember(func(key []byte) {
				if string(key) == "type" {
					s.Value()
				} else {
					e.fill(s)
				}
			})
		default:
			e.fill(s)
		}
	}
}

// ends reports whether the event says that the stream is complete.
func (e *event) ends() bool {
	return e.ended || e.is(typeStop) || e.is(typeCompleted) || e.is(typeIncomplete)
}

func (e *event) is(typ string) bool { return string(e.typ) == typ }

// content reports whether the event carries content.
func (e *event) content() bool {
	switch {
	case e.is(typeItem):
		return e.calling
	case bytes.HasPrefix(e.typ, []byte(prefixResponse)):
		return e.filled && bytes.HasSuffix(e.typ, []byte(suffixDelta))
	}
	switch string(e.typ) {
	case typePing, "message_start", "message_delta", typeStop, "content_block_stop":
		return false
	}
	return e.filled || e.calling
}

// fill reads a value, which is content if it is filled.
func (e *event) fill(s *jsonscan.Scanner) {
	kind := s.Next()
	value, is := filled(s)
	e.filled = e.filled || is
	if is && kind == jsonscan.String && s.Err() == nil {
		e.text = jsonscan.Span{From: value.From + 1, To: value.To - 1}
	}
}

// filled reads a value. It reports whether it is anything but null, "", [] and {}.
func filled(s *jsonscan.Scanner) (value jsonscan.Span, is bool) {
	kind := s.Next()
	value = s.Value()
	text := s.Text(value)
	switch {
	case kind == jsonscan.Invalid, kind == jsonscan.Null:
		return value, false
	case s.Err() != nil: // it ends in the middle
		return value, true
	case kind == jsonscan.String, kind == jsonscan.Array, kind == jsonscan.Object:
		return value, len(bytes.Trim(text[1:len(text)-1], jsonscan.Blanks)) > 0 || kind == jsonscan.String && len(text) > len(`""`)
	}
	return value, true
}
