package api

import (
	"bytes"
	"mime"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
)

const (
	// maxFormBytes is the part of a form that is searched for the model. Clients write small fields before files; those of OpenAI's API for
	// speech, with a prompt of 224 tokens, take about 2 KiB.
	maxFormBytes = 64 << 10
	// maxFormFields is the maximum number of fields before the model. OpenAI's API for speech has a dozen.
	maxFormFields = 64
)

// boundaryOf returns what separates the fields of a form, nothing if a content type is not that of a form.
func boundaryOf(contentType string) string {
	const form = "multipart/form-data"
	if len(contentType) < len(form) || !strings.EqualFold(contentType[:len(form)], form) {
		return ""
	}
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return params["boundary"]
}

// readForm reads the model in a form (RFC 7578), if it is before the first file. Of several models the last counts.
func (r *Request) readForm(boundary string) error {
	text := r.body[:min(len(r.body), maxFormBytes)]
	delimiter := []byte("\r\n--" + boundary)
	rest, found := bytes.CutPrefix(text, delimiter[len("\r\n"):])
	if !found { // a preamble
		_, rest, found = bytes.Cut(text, delimiter)
	}
	for n := 0; found && n < maxFormFields; n++ {
		head, tail, whole := bytes.Cut(bytes.TrimLeft(rest, " \t"), []byte("\r\n\r\n"))
		if !whole || !bytes.HasPrefix(head, []byte("\r\n")) { // the last delimiter
			break
		}
		var value []byte
		from := len(text) - len(tail)
		value, rest, found = bytes.Cut(tail, delimiter)
		name, file := fieldOf(string(head))
		if file {
			break
		}
		if name == "model" && found && endsField(rest) {
			r.ModelSpan, r.ModelPlain = jsonscan.Span{From: from, To: from + len(value)}, true
		}
	}
	return r.decodeModel()
}

// endsField reports whether a delimiter is one, by the text behind it, and not the beginning of a longer line.
func endsField(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t")
	return bytes.HasPrefix(rest, []byte("\r\n")) || bytes.HasPrefix(rest, []byte("--"))
}

// fieldOf returns the name of a field from its headers, and whether it is a file.
func fieldOf(head string) (name string, file bool) {
	for line := range strings.SplitSeq(head, "\r\n") {
		key, value, _ := strings.Cut(line, ":")
		if !strings.EqualFold(key, "Content-Disposition") {
			continue
		}
		kind, params, err := mime.ParseMediaType(value)
		if err != nil || kind != "form-data" {
			return "", false
		}
		_, file = params["filename"]
		return params["name"], file
	}
	return "", false
}
