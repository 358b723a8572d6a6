package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"fairlead.dev/services/endpoint-picker/internal/answer"
)

// harmless reports whether the request may run on several servers: it generates text, and stores nothing.
func (a *attempt) harmless() bool { return a.exchange.Inference && a.exchange.ResponseID == nil }

// declined reports whether the response is an error without any content, so that another server may answer a harmless request. It reads the
// beginning of other responses, which relay sends.
func (a *attempt) declined() bool {
	if !a.harmless() {
		return false
	}
	switch status := a.response.StatusCode; {
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		return true
	case status < http.StatusMultipleChoices:
		return a.beginsBadly()
	default:
		return status < http.StatusBadRequest && !a.exchange.LooseSlashes() // a login page, which no inference API has
	}
}

// beginsBadly reports whether the body ends before any content, is a page of HTML, or begins with an error. What comes before the first content
// of a stream is kept until then, but for comments and pings, with which a server keeps the connection of its client; of another body, what
// fits into a piece.
func (a *attempt) beginsBadly() bool {
	response := a.describe()
	switch {
	case response.Page:
		return true
	case response.Encoded:
		return false
	}
	buffer, _ := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(buffer)
	reader, n := answer.Reader{Form: a.exchange.UsageForm, Strict: a.exchange.Strict(), Events: response.Events, Bytes: response.Bytes}, 0
	defer func() { a.begun = bytes.Clone(buffer[:n]) }()
	for n < len(buffer) {
		read, err := a.receive(buffer[n:])
		if read > 0 {
			reader.Read(buffer[n : n+read])
			n += read
		}
		switch {
		case reader.Broken():
			return true
		case reader.Events && reader.HasOutput():
			return false
		case errors.Is(err, io.EOF):
			return !reader.Whole() && !reader.Unknown()
		case err != nil:
			return !a.gone()
		}
	}
	return false
}
