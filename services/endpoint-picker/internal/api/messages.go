package api

import (
	"github.com/cespare/xxhash/v2"

	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
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
func (r *Request) readMessages() {
	r.discardPrompt()
	r.eachElement(func() {
		if r.scanner.Next() == jsonscan.Object {
			r.readMessage()
		} else {
			r.main.add(r.readText())
		}
	})
}

// readInput reads a conversation of the responses API: a list of messages, or the text of a user's message.
func (r *Request) readInput() {
	if r.scanner.Next() != jsonscan.String {
		r.readMessages()
		return
	}
	r.discardPrompt()
	r.main.add(Part{Hash: roleUser, Size: uint32(len("user")), Kind: Value})
	r.main.add(r.readText())
}

// readSystem reads a system prompt: a text, or a list of blocks.
func (r *Request) readSystem() {
	r.system.restart()
	r.readContents(contents{to: &r.system, nesting: maxNesting - 1, system: true})
}

// readMessage reads a message. Its parts are in an order that does not depend on that of its keys: the role, the contents, and all else as
// one part. Most keys can reach the model, depending on its chat template: name, tool_calls, reasoning, arguments, output.
func (r *Request) readMessage() {
	from, place, answer := len(r.main.parts), r.main.reserve(), false
	c := contents{to: &r.main, nesting: maxNesting - 1, system: true} // until the role is known
	var o object
	r.eachMember(func(key []byte) {
		if string(key) != "role" {
			r.readMember(key, c, &o)
			return
		}
		role := r.readPart()
		r.main.fill(place, role)
		answer = role.Hash == roleAssistant
		c.system = role.Hash == roleSystem || role.Hash == roleDeveloper
	})
	o.addTo(c.to)
	if answer {
		r.Turns.answered(from, len(r.main.parts))
	}
}

// contents describe where the contents of a message belong.
type contents struct {
	to      *collected
	nesting int  // levels below
	system  bool // of a system prompt
}

// readContents reads the contents of a message: a text, or a list of texts and objects. One text is the same as a list of it.
func (r *Request) readContents(c contents) {
	if r.scanner.Next() == jsonscan.String {
		p := r.readText()
		if c.system {
			p = r.withoutAttribution(p)
		}
		c.to.add(p)
		return
	}
	r.eachElement(func() {
		if c.nesting > 0 && r.scanner.Next() == jsonscan.Object {
			r.readContent(c)
		} else {
			r.addBlock(c)
		}
	})
}

// readContent reads one of several contents of a message.
func (r *Request) readContent(c contents) {
	c.nesting--
	var o object
	r.eachMember(func(key []byte) { r.readMember(key, c, &o) })
	o.addTo(c.to)
}

// addBlock adds the next value as one of several texts.
func (r *Request) addBlock(c contents) {
	p := r.readText()
	if c.system {
		p = r.withoutBlock(p)
	}
	c.to.add(p)
}

// An object is what a message or a content has beside its role, its texts and its media.
type object struct {
	members

	source   Part // of an image or a document in Anthropic's API
	document bool
}

// readMember reads the value of a key of a message or a content. Their type is no part of the prompt: other keys differ, too.
func (r *Request) readMember(key []byte, c contents, o *object) {
	switch string(key) {
	case "content":
		r.readContents(c)
	case "text":
		r.addBlock(c)
	case "type":
		o.document = r.readPart().Hash == typeDocument
	case "source":
		o.source = r.readSource()
	case keyCacheControl:
		r.scanner.Value()
	default:
		if tokens, media := mediaKeys[string(key)]; media {
			c.to.add(r.readMedium(tokens))
			return
		}
		name := xxhash.Sum64(key)
		if p := r.readPart(); p.Size > 0 {
			o.members.add(name, value{p.Hash, int(p.Size)})
		}
	}
}

// addTo adds what the object has to a prompt.
func (o *object) addTo(to *collected) {
	if o.source.Kind == Media && o.document {
		o.source.Size = fileTokens
	}
	to.add(o.source)
	to.add(o.part())
}

// Types of contents and of sources, as hashes of values.
var (
	typeDocument = hashString("document")
	typeText     = hashString("text")
)

// readMedium reads a medium. A null counts as no medium.
func (r *Request) readMedium(tokens uint32) Part {
	if r.scanner.Next() == jsonscan.Null {
		r.scanner.Value()
		return Part{}
	}
	from := r.scanner.At()
	v := r.readValue(maxValueDepth)
	return Part{Hash: v.hash, From: uint32(from), To: uint32(r.scanner.At()), Size: tokens, Kind: Media}
}

// readSource reads a source: data, an address, or the text of a document.
func (r *Request) readSource() Part {
	r.scanner.Next()
	p := Part{From: uint32(r.scanner.At()), Size: imageTokens, Kind: Media}
	var m members
	r.eachMember(func(key []byte) {
		name, typed := xxhash.Sum64(key), string(key) == "type"
		v := r.readValue(maxValueDepth)
		if typed && v.hash == typeText {
			p.Kind = Value
		}
		m.add(name, v)
	})
	p.Hash, p.To = m.part().Hash, uint32(r.scanner.At())
	if p.Kind == Value {
		p.Size = uint32(m.size)
	}
	return p
}
