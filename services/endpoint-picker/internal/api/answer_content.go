package api

import (
	"bytes"
	"slices"
)

// maxEvent is the maximum size of a line of an event, or of a body without events, that is read, in bytes. Of longer ones the beginning
// is read.
const maxEvent = 16 << 10

// AnswerReader reads the body of a response: which parts of it carry content, whether it is an answer, and its usage. Content is text,
// reasoning, calls of tools, or whatever else the model produced. Comments and pings that keep a connection open, events that announce an
// answer (response.created, a delta with only a role) and empty deltas carry none, nor do errors. The zero value is ready.
//
// Sources of content: the streaming formats of OpenAI's Chat Completions, Completions and Responses, of Anthropic's Messages, of SGLang's
// /generate, of Triton, TGI and llama.cpp, of vLLM's gRPC service, and server-sent events of the WHATWG.
type AnswerReader struct {
	Format AnswerFormat
	Events bool // the body is a stream of events that can be read
	Strict bool // the answers of the API are known: what they do not have is no content
	Bytes  bool // the body is no text

	line          []byte // begun, not complete: of the events, or the body itself
	long          bool   // the line is longer than maxEvent
	name          eventName
	known         bool // an event has a format whose streams say that they are complete
	unknown       bool // an event has another one
	finished      bool // an event said that the stream is complete
	done          bool // there was the event [DONE]
	hasContent    bool // there was content
	comments      bool // there was a comment or a ping
	last          byte // of a body without events, beside blanks
	head          head // of such a body
	parsed        int  // bytes of the line that the head was read from
	errors        int
	refused       bool // an error says that the request is wrong
	contentEvents int  // events with content in the last piece
	frames        frameReader
	template      eventTemplate
	usage         usageReader
	scan          Scanner
}

// A head is what the beginning of a body without events says.
type head struct {
	members, answer, lists, failed, refused bool // of an event

	valid bool // it is a whole object, or several
}

// eventName is what the name of an event says, or the type in its object.
type eventName uint8

const (
	otherEvent eventName = iota
	errorEvent
	lastEvent
	pingEvent
)

// eventNames are the names of events that say something, in Anthropic's Messages and the Responses API.
var eventNames = []struct {
	text []byte
	name eventName
}{
	{[]byte("error"), errorEvent},
	{[]byte("response.failed"), errorEvent},
	{[]byte("message_stop"), lastEvent},
	{[]byte("response.completed"), lastEvent},
	{[]byte("response.incomplete"), lastEvent},
	{[]byte("ping"), pingEvent},
}

func readEventName(value []byte) eventName {
	for _, n := range eventNames {
		if bytes.EqualFold(value, n.text) {
			return n.name
		}
	}
	return otherEvent
}

// ErrorCount returns the number of events so far that report an error of the server.
func (r *AnswerReader) ErrorCount() int { return r.errors }

// HasOutput reports whether there was anything that a client waits for: content, or a comment or a ping that keeps its connection open.
func (r *AnswerReader) HasOutput() bool { return r.hasContent || r.comments }

// IsComplete reports whether the body, which has ended, is an answer: it has content, or is a complete stream without any; it reports no
// error; and it does not stop in the middle, as far as its format shows.
func (r *AnswerReader) IsComplete() bool {
	switch {
	case r.Format == FormatVLLM:
		return r.last != 0
	case r.Bytes && !r.Strict:
		return len(r.line) > 0
	case r.Events:
		return r.errors == 0 && !r.refused && (r.finished || r.mayBeComplete())
	}
	return len(r.line) > 0 && r.isAnswer() && !r.IsBroken() && !r.head.refused
}

// mayBeComplete reports whether a stream that did not say why it ends may be complete.
func (r *AnswerReader) mayBeComplete() bool {
	if r.Strict {
		return r.done && r.hasContent
	}
	return r.done || r.hasContent && !r.known
}

// IsBroken reports whether a body can be no answer, whatever follows: it reports an error, or is a page. It reads the beginning of a body
// anew when that has doubled, because a server may send one byte at a time.
func (r *AnswerReader) IsBroken() bool {
	switch {
	case r.errors > 0:
		return true
	case r.Events, r.Format == FormatVLLM, len(r.line) == 0, r.Bytes && !r.Strict:
		return false
	case r.line[0] != '{':
		return (r.Strict || r.Format == FormatLists) && r.line[0] == '<'
	case len(r.line) >= 2*r.parsed:
		r.readObject()
	}
	return r.head.failed
}

// IsUnknownFormat reports whether a body, which has ended, is neither an answer nor an error of the server: it has an API of its own, or
// the request is wrong.
func (r *AnswerReader) IsUnknownFormat() bool {
	switch {
	case r.IsComplete(), r.IsBroken():
		return false
	case r.Events:
		return r.refused || r.unknown && !r.known
	case len(r.line) == 0, r.line[0] == '<':
		return false
	case r.line[0] == '{':
		h := r.readObject()
		// A body that is longer than what is read, and begins like an answer of a known API, stops in the middle: the server failed.
		return h.members && (h.valid || r.long && !h.answer)
	}
	return string(r.line) != "[]"
}

// resetScanner scans a text, which Python wrote.
func (r *AnswerReader) resetScanner(text []byte) *Scanner {
	r.scan.NonFinite = true
	r.scan.Reset(text)
	return &r.scan
}

// readObject reads the beginning of a body, once.
func (r *AnswerReader) readObject() head {
	if r.parsed == len(r.line) {
		return r.head
	}
	var e event
	s := r.resetScanner(r.line)
	e.readMembers(s)
	valid := s.Err() == nil && (s.CheckEnd() == nil || isObject(r.line[s.Offset():]))
	r.head = head{members: e.members, answer: e.answer, lists: e.lists, failed: e.failed && !e.refused, refused: e.failed && e.refused,
		valid: valid}
	r.parsed = len(r.line)
	return r.head
}

// isAnswer reports whether a body, which has ended and reports no error, is an answer.
func (r *AnswerReader) isAnswer() bool {
	switch r.line[0] {
	case '{':
		return r.last == '}' && (r.long || r.objectAnswers())
	case '[':
		if r.long || !r.Strict {
			return len(r.line) > len("[]")
		}
		e := r.firstElement()
		return e.answer && !e.failed
	}
	return !r.Strict && r.Format != FormatLists
}

// objectAnswers reports whether a body that is an object is an answer.
func (r *AnswerReader) objectAnswers() bool {
	switch h := r.readObject(); {
	case !h.members, h.failed:
		return false
	case r.Strict:
		return h.answer && h.valid
	default:
		return h.lists || r.Format != FormatLists
	}
}

// firstElement reads the first element of a body that is a list.
func (r *AnswerReader) firstElement() *event {
	var e event
	s := r.resetScanner(r.line)
	if s.EnterValue(); s.NextElement() {
		e.readMembers(s)
	}
	return &e
}

// ReadPiece processes the next piece of the body. It returns the number of events with content that end in the piece. In a body that is no
// stream of events, each piece is one.
func (r *AnswerReader) ReadPiece(piece []byte) int {
	r.contentEvents = 0
	if r.Format == FormatVLLM {
		r.last = 1 // the body is not empty
		r.frames.readPiece(piece, r.readMessage)
		return r.contentEvents
	}
	r.usage.readPiece(piece, keys[r.Format])
	if !r.Events && len(r.line) == 0 {
		r.Events = beginsEvent(piece)
	}
	if !r.Events {
		r.readBody(piece)
		return 1
	}
	for {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			r.storeLine(piece)
			return r.contentEvents
		}
		r.endLine(piece[:end])
		piece = piece[end+1:]
	}
}

// beginsEvent reports whether a body begins like a stream of events, which some servers send with another content type.
func beginsEvent(body []byte) bool {
	return slices.ContainsFunc([]string{"data:", "event:", ":", "id:", "retry:"}, func(field string) bool {
		return bytes.HasPrefix(body, []byte(field))
	})
}

// countContent counts an event with content.
func (r *AnswerReader) countContent() { r.contentEvents, r.hasContent = r.contentEvents+1, true }

// readBody reads a piece of a body without events.
func (r *AnswerReader) readBody(piece []byte) {
	if text := bytes.TrimRight(piece, jsonBlanks); len(text) > 0 {
		r.last = text[len(text)-1]
	}
	if len(r.line) == 0 {
		piece = bytes.TrimLeft(piece, jsonBlanks)
	}
	r.storeLine(piece)
}

// storeLine stores the beginning of a line.
func (r *AnswerReader) storeLine(piece []byte) {
	room := maxEvent - len(r.line)
	r.long = r.long || len(piece) > room
	r.line = append(r.line, piece[:min(len(piece), room)]...)
}

// endLine reads the end of a line.
func (r *AnswerReader) endLine(end []byte) {
	line := end
	if len(r.line) > 0 || len(end) > maxEvent {
		r.storeLine(end)
		line = r.line
	}
	if !r.long {
		line = bytes.TrimSuffix(line, []byte("\r"))
	}
	r.readField(line)
	r.line, r.long = r.line[:0], false
}

// readField reads a line of an event.
func (r *AnswerReader) readField(line []byte) {
	if len(line) == 0 { // the end of the event
		r.name = otherEvent
		return
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimSpace(value)
	switch string(name) {
	case "":
		r.comments = true
	case "event":
		r.name = readEventName(value)
		r.finished, r.comments = r.finished || r.name == lastEvent, r.comments || r.name == pingEvent
	case "data":
		switch {
		case len(value) == 0, r.name == pingEvent:
		case string(value) == "[DONE]":
			r.done = true
		case r.name == errorEvent:
			r.readErrorEvent(value)
		default:
			r.readData(value)
		}
	}
}

// readErrorEvent reads the data of an error event.
func (r *AnswerReader) readErrorEvent(text []byte) {
	var e event
	e.readMembers(r.resetScanner(text))
	r.countError(&e)
}

// countError counts an error.
func (r *AnswerReader) countError(e *event) {
	if e.refused {
		r.refused = true
	} else {
		r.errors++
	}
}

// readData reads the data of an event.
func (r *AnswerReader) readData(text []byte) {
	if r.template.matchesEvent(text, &r.scan) {
		r.countContent()
		return
	}
	s := r.resetScanner(text)
	if s.NextKind() != Object {
		r.unknown = true
		if !r.Strict && string(text) != "null" {
			r.countContent()
		}
		return
	}
	var e event
	e.readMembers(s)
	r.known, r.finished = r.known || e.known, r.finished || e.isLast()
	r.unknown, r.comments = r.unknown || !e.known, r.comments || e.name == pingEvent
	if e.failed {
		r.countError(&e)
	} else if e.hasContent() || r.mayHaveUnread(&e) {
		r.countContent()
		r.template.storeEvent(text, e.text)
	}
}

// mayHaveUnread reports whether the object of an event may carry content where it was not read: what follows the part that is kept, what is
// no JSON, and members that no API has that is known.
func (r *AnswerReader) mayHaveUnread(e *event) bool {
	if e.known {
		return !r.Strict && r.scan.Err() != nil
	}
	return r.long || !r.Strict && (e.members || r.scan.Err() != nil)
}
