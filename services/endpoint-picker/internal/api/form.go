package api

import (
	"bytes"
	"errors"
	"mime"
	"strings"
)

const (
	// maxFormParts is the maximum number of fields and files of a form, as in Starlette, with which vLLM and SGLang read forms. OpenAI's
	// APIs have some dozens. A form of as many takes a millisecond.
	maxFormParts = 1000
	// maxPartHead is the maximum size of the headers of a field, in bytes. Those of clients have about 100.
	maxPartHead = 8 << 10
	// maxBoundary is the maximum length of a boundary, in bytes (RFC 2046, 5.1.1).
	maxBoundary = 70

	newLine = "\r\n"
)

// errForm means that a form is not as RFC 7578 says, or beyond the limits.
var errForm = errors.New("it is not a form that can be read")

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

// A formReader reads a body in fields and files (RFC 7578).
type formReader struct {
	text      []byte
	at        int    // behind the last delimiter
	delimiter []byte // a new line, and two dashes before the boundary
}

// readForm reads the model in a form. Of several models the last counts. Files are skipped wherever they are.
func (r *Request) readForm(boundary string) error {
	if len(boundary) > maxBoundary {
		return errForm
	}
	f := formReader{text: r.body, delimiter: []byte(newLine + "--" + boundary)}
	if first := f.delimiter[len(newLine):]; bytes.HasPrefix(f.text, first) && f.isDelimiter(len(first)) {
		f.at = len(first)
	} else if _, err := f.readValue(); err != nil { // a preamble
		return err
	}
	for n := 0; ; n++ {
		if bytes.HasPrefix(f.text[f.at:], []byte("--")) {
			return r.decodeModel()
		}
		if n == maxFormParts {
			return errForm
		}
		head, err := f.readHead()
		if err != nil {
			return err
		}
		value, err := f.readValue()
		if err != nil {
			return err
		}
		if name, file := fieldOf(head); name == "model" && !file {
			r.ModelSpan, r.ModelPlain = value, true
		}
	}
}

// readHead reads the headers of a field.
func (f *formReader) readHead() (string, error) {
	rest := bytes.TrimLeft(f.text[f.at:], " \t")
	f.at = len(f.text) - len(rest)
	n := bytes.Index(rest[:min(len(rest), maxPartHead)], []byte(newLine+newLine))
	if n < 0 || !bytes.HasPrefix(rest, []byte(newLine)) || bytes.HasPrefix(rest, f.delimiter) {
		return "", errForm
	}
	f.at += n + len(newLine) // the new line may begin a delimiter
	return string(rest[:n]), nil
}

// readValue returns what is before the next delimiter.
func (f *formReader) readValue() (Span, error) {
	from := f.at
	for {
		n := bytes.Index(f.text[f.at:], f.delimiter)
		if n < 0 {
			return Span{}, errForm
		}
		to := f.at + n
		if f.at = to + len(f.delimiter); f.isDelimiter(f.at) {
			from = min(from+len(newLine), to)
			return Span{From: from, To: to}, nil
		}
	}
}

// isDelimiter reports whether a delimiter that ends at a position is one, and not the beginning of a longer line.
func (f *formReader) isDelimiter(at int) bool {
	rest := f.text[at:]
	return bytes.HasPrefix(rest, []byte("--")) || len(rest) > 0 && strings.IndexByte(" \t\r\n", rest[0]) >= 0
}

// fieldOf returns the name of a field from its headers, and whether it is a file.
func fieldOf(head string) (name string, file bool) {
	for line := range strings.SplitSeq(head, newLine) {
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
