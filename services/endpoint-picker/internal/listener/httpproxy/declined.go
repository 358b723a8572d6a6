package httpproxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

// isHarmless reports whether the request may run on several servers: it generates text, and stores nothing.
func (a *attempt) isHarmless() bool {
	return a.requestContext.Inference && a.requestContext.ResponseID == nil
}

// isDeclined reports whether the response is an error without any content, so that another server may answer a harmless request. It reads
// the beginning of other responses, which relay sends.
func (a *attempt) isDeclined() bool {
	if !a.isHarmless() {
		return false
	}
	switch status := a.response.StatusCode; {
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		return true
	case status < http.StatusMultipleChoices:
		return a.beginsBadly()
	default:
		return status < http.StatusBadRequest && !a.requestContext.LooseSlashes() // a login page, which no inference API has
	}
}

// beginsBadly reports whether the body ends before any content, is a page of HTML, or begins with an error. What comes before the first
// content of a stream is kept until then, but for comments and pings, with which a server keeps the connection of its client; of another
// body, what fits into a piece.
func (a *attempt) beginsBadly() bool {
	response := a.describeResponse()
	switch {
	case response.HTML:
		return true
	case response.Encoded:
		return false
	}
	buffer, _ := pieceBuffers.Get().(*[pieceSize]byte)
	defer pieceBuffers.Put(buffer)
	reader, n := api.AnswerReader{Format: a.requestContext.UsageFormat, Strict: a.requestContext.HasKnownFormat(), Events: response.Events,
		Bytes: response.Bytes}, 0
	defer func() { a.bodyStart = bytes.Clone(buffer[:n]) }()
	for n < len(buffer) {
		read, err := a.receivePiece(buffer[n:])
		if read > 0 {
			reader.ReadPiece(buffer[n : n+read])
			n += read
		}
		switch {
		case reader.IsBroken():
			return true
		case reader.Events && reader.HasOutput():
			return false
		case errors.Is(err, io.EOF):
			return !reader.IsComplete() && !reader.IsUnknownFormat()
		case err != nil:
			return !a.isClientGone()
		}
	}
	return false
}
