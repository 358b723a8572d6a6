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
	switch status := a.response.StatusCode; status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusOK:
		return a.beginsBadly()
	default:
		return status >= http.StatusMultipleChoices && status < http.StatusBadRequest // a login page, which no inference API has
	}
}

// beginsBadly reports whether the body ends before any content, is a page of HTML, or begins with an error. A body that is no stream of events
// is read if it is small, and its size is known.
func (a *attempt) beginsBadly() bool {
	response, size := a.describe(), a.response.ContentLength
	switch {
	case response.Page:
		return true
	case response.Encoded, !response.Events && (size < 0 || size > pieceSize):
		return false
	}
	buffer, _ := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(buffer)
	reader, n := answer.ContentReader{Form: a.exchange.UsageForm, Events: response.Events}, 0
	defer func() { a.begun = bytes.Clone(buffer[:n]) }()
	for n < len(buffer) {
		read, err := a.receive(buffer[n:])
		reader.Read(buffer[n : n+read])
		n += read
		switch {
		case reader.Errors() > 0:
			return true
		case response.Events && reader.Began():
			return false
		case errors.Is(err, io.EOF):
			return !reader.Whole()
		case err != nil:
			return !a.gone()
		}
	}
	return false
}
