package api

import (
	"github.com/cespare/xxhash/v2"
)

// maxNesting is the maximum depth of contents in contents. Anthropic's API has three levels: a message, the result of a tool,
// a text or an image in it. Deeper contents are read as one value, because a deep recursion would take a large stack.
const maxNesting = 4

// mediaKeys are the keys of media in the messages of all APIs. Their values are addresses, data, or objects with either.
var mediaKeys = map[string]uint32{
	"image_url":    imageTokens,
	"image":        imageTokens,
	"image_embeds": imageTokens,
	"input_audio":  audioTokens,
	"audio_url":    audioTokens,
	"audio_embeds": audioTokens,
	"video_url":    videoTokens,
	"video":        videoTokens,
	"file":         fileTokens,
	"file_data":    fileTokens,
	"file_url":     fileTokens,
}

// Roles of messages, as hashes of values.
var (
	roleAssistant = hashString("assistant")
	roleUser      = hashString("user")
	roleSystem    = hashString("system")
	roleDeveloper = hashString("developer") // the newer name of system
)

// readMessages reads a conversation: a list of messages.
func (r *Request) readMessages() { r.readConversation(chatMessages) }

// messageKind is the kind of the messages of a conversation.
type messageKind uint8

const (
	chatMessages  messageKind = iota
	responseItems             // of the responses API
)

// readConversation reads a list of messages.
func (r *Request) readConversation(k messageKind) {
	r.discardPrompt()
	r.eachElement(func() {
		if r.scanner.NextKind() == Object {
			r.readMessage(k)
		} else {
			r.main.addPart(r.readText())
		}
	})
}

// readInput reads a conversation of the responses API: a list of messages, or the text of a user's message.
func (r *Request) readInput() {
	if r.scanner.NextKind() != String {
		r.readConversation(responseItems)
		return
	}
	r.discardPrompt()
	r.main.addPart(Part{Hash: roleUser, Size: uint32(len("user")), Kind: Value})
	r.main.addPart(r.readText())
}

// readSystem reads a system prompt: a text, or a list of blocks.
func (r *Request) readSystem() {
	r.system.clearParts()
	r.readContents(contents{to: &r.system, nesting: maxNesting - 1, system: true})
}

// readMessage reads a message. Its parts are in an order that does not depend on that of its keys: the role, the contents, and all else as
// one part. Most keys can reach the model, depending on its chat template: name, tool_calls, reasoning, arguments, output. Of several roles
// and contents the last counts.
func (r *Request) readMessage(k messageKind) {
	from, place, answer := len(r.main.parts), r.main.reservePlace(), false
	c := contents{to: &r.main, nesting: maxNesting - 1, system: true, kind: k} // until the role is known
	var o contentObject
	var role Part
	var content section
	r.scanner.EachMember(func(key []byte) {
		switch string(key) {
		case "role":
			r.main.subtractSize(sizeOf(role))
			role = r.readPart(plain)
			r.main.fillPlace(place, role)
			answer = role.Hash == roleAssistant
			c.system = role.Hash == roleSystem || role.Hash == roleDeveloper
		case "content":
			r.main.removeSection(content)
			content = r.main.beginSection()
			r.readContents(c)
			r.main.endSection(&content)
		default:
			r.readMember(key, c, &o)
		}
	})
	o.addTo(c.to)
	if answer {
		r.Turns.addAnswer(from, len(r.main.parts))
	}
}

// contents describe where the contents of a message belong.
type contents struct {
	to      *partList
	nesting int  // levels below
	system  bool // of a system prompt
	kind    messageKind
}

// readContents reads the contents of a message: a text, or a list of texts and objects. One text is the same as a list of it.
func (r *Request) readContents(c contents) {
	if r.scanner.NextKind() == String {
		p := r.readText()
		if c.system {
			p = r.withoutAttribution(p)
		}
		c.to.addPart(p)
		return
	}
	r.eachElement(func() {
		if c.nesting > 0 && r.scanner.NextKind() == Object {
			r.readContent(c)
		} else {
			r.addBlock(c)
		}
	})
}

// readContent reads one of several contents of a message.
func (r *Request) readContent(c contents) {
	c.nesting--
	var o contentObject
	r.scanner.EachMember(func(key []byte) { r.readMember(key, c, &o) })
	o.addTo(c.to)
}

// addBlock adds the next value as one of several texts.
func (r *Request) addBlock(c contents) {
	p := r.readText()
	if c.system {
		p = r.withoutBlock(p)
	}
	c.to.addPart(p)
}

// A contentObject is what a message or a content has beside its role, its texts and its media.
type contentObject struct {
	memberHash

	source   Part // of an image or a document in Anthropic's API
	document bool
}

// readMember reads the value of a key of a message or a content. Their type is no part of the prompt: other keys differ, too.
func (r *Request) readMember(key []byte, c contents, o *contentObject) {
	switch string(key) {
	case "content":
		r.readContents(c)
	case "text":
		r.addBlock(c)
	case "type":
		o.document = r.readPart(plain).Hash == typeDocument
	case "source":
		o.source = r.readSource()
	case keyCacheControl:
		r.scanner.SkipValue()
	case "tool_calls", "function_call":
		o.addValue(xxhash.Sum64(key), r.readPart(call))
	case keyArguments: // of an item of the responses API
		o.addValue(xxhash.Sum64(key), r.readItemArguments())
	case "detail":
		o.addValue(xxhash.Sum64(key), r.readDetail())
	default:
		if tokens, media := mediaKeys[string(key)]; media {
			c.to.addPart(r.readMedium(tokens))
		} else if c.kind == responseItems && isItemKey(key) {
			r.scanner.SkipValue()
		} else {
			o.addValue(xxhash.Sum64(key), r.readPart(plain))
		}
	}
}

// readItemArguments reads the arguments of an item that is a call.
func (r *Request) readItemArguments() Part {
	if r.scanner.NextKind() != String {
		return r.readPart(exact)
	}
	from := r.scanner.Offset()
	return r.valuePart(r.readArguments(), Object, from)
}

// isItemKey reports whether a key of an item of the responses API, or of its contents, is of the API alone: servers put it into answers,
// and ignore it in requests.
func isItemKey(key []byte) bool {
	switch string(key) {
	case "id", "status", "annotations", "logprobs":
		return true
	}
	return false
}

// addValue adds a member that is not empty, by the hash of its key.
func (o *contentObject) addValue(key uint64, p Part) {
	if p.Size > 0 {
		o.memberHash.addMember(key, value{p.Hash, int(p.Size)})
	}
}

// readDetail reads how closely to look at an image. That servers decide it, is the default.
func (r *Request) readDetail() Part {
	p := r.readPart(plain)
	if p.Hash == detailAuto {
		return Part{}
	}
	return p
}

// addTo adds what the object has to a prompt.
func (o *contentObject) addTo(to *partList) {
	if o.source.Kind == Media && o.document {
		o.source.Size = fileTokens
	}
	to.addPart(o.source)
	to.addPart(o.toPart())
}

// Types of contents and of sources, as hashes of values.
var (
	typeDocument = hashString("document")
	typeText     = hashString("text")
	detailAuto   = hashString("auto")
)

// keyURL is the hash of the key of an address.
var keyURL = xxhash.Sum64String("url")

// readMedium reads a medium. A null counts as no medium, and an address is the same as an object with nothing else.
func (r *Request) readMedium(tokens uint32) Part {
	kind := r.scanner.NextKind()
	if kind == Null {
		r.scanner.SkipValue()
		return Part{}
	}
	from := r.scanner.Offset()
	var hash uint64
	switch kind {
	case String, Object:
		hash = r.readAddress(kind)
	default:
		hash = r.readValue(maxValueDepth, plain).hash
	}
	return Part{Hash: hash, From: uint32(from), To: uint32(r.scanner.Offset()), Size: tokens, Kind: Media}
}

// readAddress returns the hash of an object with the address of a medium, or of an address alone.
func (r *Request) readAddress(kind ValueKind) uint64 {
	var m memberHash
	if kind == String {
		m.addMember(keyURL, r.readValue(maxValueDepth, plain))
		return m.toPart().Hash
	}
	r.scanner.EachMember(func(key []byte) {
		if string(key) == keyCacheControl || r.scanner.NextKind() == Null {
			r.scanner.SkipValue()
			return
		}
		name, detail := xxhash.Sum64(key), string(key) == "detail"
		if v := r.readValue(maxValueDepth, plain); !detail || v.hash != detailAuto {
			m.addMember(name, v)
		}
	})
	return m.toPart().Hash
}

// readSource reads a source: data, an address, or the text of a document.
func (r *Request) readSource() Part {
	r.scanner.NextKind()
	p := Part{From: uint32(r.scanner.Offset()), Size: imageTokens, Kind: Media}
	var m memberHash
	r.scanner.EachMember(func(key []byte) {
		if r.scanner.NextKind() == Null {
			r.scanner.SkipValue()
			return
		}
		name, typed := xxhash.Sum64(key), string(key) == "type"
		v := r.readValue(maxValueDepth, plain)
		if typed && v.hash == typeText {
			p.Kind = Value
		}
		m.addMember(name, v)
	})
	p.Hash, p.To = m.toPart().Hash, uint32(r.scanner.Offset())
	if p.Kind == Value {
		p.Size = uint32(m.size)
	}
	return p
}
