package answer

import (
	"bytes"

	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
)

const (
	keyID = `"id"`
	// prefixID begins the identifiers of responses, in OpenAI's API and all servers that have it.
	prefixID = `"resp_`
	// maxID is the maximum length of an identifier, in bytes, with its prefix. OpenAI's have 53, vLLM's and SGLang's 37.
	maxID = 128
	// maxBeforeID is the part of a body that is searched, in bytes. The identifier comes first in a response, and in its first event; of sorted
	// keys a few short ones come before.
	maxBeforeID = 4 << 10
)

// IDReader finds the identifier of a response of OpenAI's responses API, in an object or in the first event of a stream. As for usage, an
// unescaped "id" before a colon is always a key.
type IDReader struct {
	Found func(id []byte) // is called once, if there is one

	head []byte // of the body, until it is searched
	done bool
}

// Read processes the next piece of the body.
func (r *IDReader) Read(piece []byte) {
	if r.done {
		return
	}
	r.head = append(r.head, piece[:min(len(piece), maxBeforeID-len(r.head))]...)
	if id := findID(r.head); id != nil {
		r.Found(id)
		r.done = true
	}
	if r.done = r.done || len(r.head) == maxBeforeID; r.done {
		r.head = nil
	}
}

// findID returns the first identifier of a response in a text, nil if there is none, or not all of it.
func findID(text []byte) []byte {
	for {
		_, rest, found := bytes.Cut(text, []byte(keyID))
		if !found {
			return nil
		}
		text = rest
		value, found := bytes.CutPrefix(bytes.TrimLeft(rest, jsonscan.Blanks), []byte(":"))
		if value = bytes.TrimLeft(value, jsonscan.Blanks); !found || !bytes.HasPrefix(value, []byte(prefixID)) {
			continue
		}
		if id, _, found := bytes.Cut(value[1:min(len(value), maxID+2)], []byte(`"`)); found {
			return id
		}
	}
}
