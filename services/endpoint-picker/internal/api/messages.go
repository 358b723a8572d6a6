package api

import (
	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
)

// maxNesting is the maximum depth of contents in contents. Anthropic's API has three levels: a message, the result of a tool,
// a text or an image in it. Deeper contents are read as text, because a deep recursion would take a large stack.
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

// readMessages reads a conversation: a text, or a list of messages.
func (r *Request) readMessages() {
	r.discardPrompt()
	r.readContents(maxNesting)
}

// readContents reads a conversation, or the contents of a message: a text, or a list of texts and objects.
func (r *Request) readContents(nesting int) {
	r.eachElement(func() {
		if nesting > 0 && r.scanner.Next() == jsonscan.Object {
			r.readMessage(nesting)
		} else {
			r.addText()
		}
	})
}

// addText adds the next value as a text.
func (r *Request) addText() Part {
	p := r.readText()
	r.main.add(p)
	return p
}

// readMessage reads a message, or one of several contents of a message. Most keys can reach the model, depending on its chat
// template: name, tool_calls, reasoning, arguments, output.
func (r *Request) readMessage(nesting int) {
	from, answer, source := len(r.main.parts), false, Part{Kind: Media, Tokens: imageTokens}
	r.eachMember(func(key []byte) {
		switch string(key) {
		case "role":
			answer = r.isText(r.addText(), "assistant")
		case "content":
			r.readContents(nesting - 1)
		case "type":
			if r.isText(r.addText(), "document") {
				source.Tokens = fileTokens
			}
		case "source": // of an image or a document in Anthropic's API
			r.main.add(r.readSource(source))
		case "cache_control": // servers ignore it, and clients move it from message to message
			r.scanner.Value()
		default:
			r.readPart(key)
		}
	})
	if answer && nesting == maxNesting { // contents are no turns
		r.Turns.answered(from, len(r.main.parts))
	}
}

// isText reports whether a part is this text.
func (r *Request) isText(p Part, text string) bool { return string(r.text(p.Span)) == text }

// readPart reads a medium or a text.
func (r *Request) readPart(key []byte) {
	if tokens, media := mediaKeys[string(key)]; media {
		r.main.add(r.readMedium(tokens))
	} else {
		r.addText()
	}
}

// readMedium reads a medium. A null counts as no medium.
func (r *Request) readMedium(tokens uint32) Part {
	if r.scanner.Next() == jsonscan.Null {
		r.scanner.Value()
		return Part{}
	}
	return Part{Span: r.scanner.Value(), Kind: Media, Tokens: tokens}
}

// readSource reads a source: data, an address, or the text of a document.
func (r *Request) readSource(p Part) Part {
	r.scanner.Next()
	p.Span.From = r.scanner.At()
	r.eachMember(func(key []byte) {
		if span, _ := r.readString(); string(key) == "type" && string(r.text(span)) == "text" {
			p.Kind, p.Tokens = Text, 0
		}
	})
	p.Span.To = r.scanner.At()
	return p
}
