package httpproxy

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"

	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// pieceSize is the size of a read from a model server: events of a stream have less than 1 KiB.
const pieceSize = 8 << 10

const (
	// maxTrailers is the maximum number of trailers of a response. gRPC has 3.
	maxTrailers = 64
	// maxHeaderMemory is the maximum memory of a response's headers, and again of its trailers, in bytes: 900 short fields, or
	// maxResponseHeader of usual ones.
	maxHeaderMemory = 2 * maxResponseHeader
	// headerCopies is how often a response's headers are in memory while it is relayed: as they came, as they are sent, and net/http's copy
	// of these, which share their texts (BenchmarkMemory: 185 kB for 890 fields, 1.4 times).
	headerCopies = 2
)

// Errors of responses that cannot be relayed.
var (
	errStatus   = errors.New("the status of the model server's response is below 100")
	errHeaders  = errors.New("the model server's response has too many headers")
	errTrailers = fmt.Errorf("the model server's response has more than %d trailers", maxTrailers)
)

// pieceBuffers are the buffers of responses.
var pieceBuffers = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// relayResponse sends the response to the client, piece by piece, as it comes. It returns false if the response is not complete, and
// the client must see that.
func (a *attempt) relayResponse() (complete bool) {
	defer a.endAttempt()
	a.freeBody() // nothing is repeated anymore
	a.sendHeaders()
	pass := a.sendPieces
	if a.response.StatusCode == http.StatusSwitchingProtocols {
		pass = a.runTunnel
	}
	err := pass()
	if err == nil && len(a.response.Trailer) > maxTrailers {
		err = errTrailers
		a.requestContext.ReportHealth(request.Faulty)
	}
	if err != nil {
		a.server.counters.countResult(err)
		return false
	}
	a.server.counters.countResult(nil)
	a.sendTrailers()
	a.requestContext.OnResponseEnd()
	return true
}

// checkHeaders returns the reason why a response cannot be relayed. Otherwise its headers count for the client.
func (a *attempt) checkHeaders() error {
	r := a.response
	size := limits.HeadersSize(r.Header)
	switch {
	case r.StatusCode < http.StatusContinue: // net/http reads it, but does not send it
		return errStatus
	case size > maxHeaderMemory:
		return errHeaders
	case len(r.Trailer) > maxTrailers:
		return errTrailers
	}
	a.countHeld(headerCopies * int64(size))
	return nil
}

// describeResponse returns what the headers of the response say.
func (a *attempt) describeResponse() *request.ResponseHeaders {
	h := a.response.Header
	encoded := isEncoded(h)
	r := &request.ResponseHeaders{
		Status: a.response.StatusCode, Served: a.to.address, Encoded: encoded, UnacceptedEncoding: encoded && a.requestContext.Inference,
		// see outgoingHeaders
	}
	r.SetContentType(h.Get(headerContentType))
	return r
}

// sendHeaders sends the headers of the response.
func (a *attempt) sendHeaders() {
	rc, from, h := &a.requestContext, a.response, a.writer.Header()
	rc.OnResponseHeaders(a.describeResponse())
	removeHopByHop(from.Header)
	maps.Copy(h, from.Header)
	if from.StatusCode == http.StatusSwitchingProtocols {
		setWebSocket(h)
	}
	if len(from.Header[headerContentType]) == 0 {
		h[headerContentType] = nil // or else net/http guesses one
	}
	for _, header := range rc.Reply {
		h.Set(header.Name, header.Value)
	}
	if rc.Restore != nil {
		h.Del(headerContentLength) // the length changes
	}
	for name := range from.Trailer {
		h.Add(headerTrailer, name)
	}
	a.announced = maps.Clone(from.Trailer) // reading the body adds those that were not
	a.prepareWrite()
	a.writer.WriteHeader(from.StatusCode)
	if from.ContentLength < 0 {
		_ = a.control.Flush() // a stream: its first piece may take long
	}
}

// isEncoded reports whether a body is compressed.
func isEncoded(h http.Header) bool {
	encoding := h.Get(headerContentEncoding)
	return encoding != "" && encoding != encodingNone
}

// sendPieces sends the body of the response.
func (a *attempt) sendPieces() error {
	rc, from := &a.requestContext, a.response
	buffer, _ := pieceBuffers.Get().(*[pieceSize]byte)
	defer pieceBuffers.Put(buffer)
	left := from.ContentLength
	for {
		n, err := a.readPiece(buffer[:])
		if n > 0 {
			piece := buffer[:n]
			rc.OnResponseChunk(piece)
			if rc.Restore != nil {
				piece = rc.Restore.Append(nil, piece)
			}
			left -= int64(n)
			if writeErr := a.writePiece(piece, left != 0); writeErr != nil {
				return errGone
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if rc.Restore != nil && a.writePiece(rc.Restore.Flush(nil), false) != nil {
				return errGone
			}
			return nil
		case err != nil:
			return a.interruptionCause(err)
		}
	}
}

// readPiece reads a piece of the body.
func (a *attempt) readPiece(buffer []byte) (int, error) {
	if len(a.bodyStart) > 0 {
		n := copy(buffer, a.bodyStart)
		a.bodyStart = a.bodyStart[n:]
		return n, nil
	}
	return a.receivePiece(buffer)
}

// receivePiece reads a piece of the body from the server, which may not be silent for too long; that the client reads slowly is no silence.
func (a *attempt) receivePiece(buffer []byte) (int, error) {
	if a.silence != nil {
		a.silence.Reset(a.server.params.Options.IdleTimeout)
		defer a.silence.Stop()
	}
	return a.response.Body.Read(buffer)
}

// writePiece sends a piece to the client, at once if it is not the last one.
func (a *attempt) writePiece(piece []byte, more bool) error { //nolint:revive // it is a fact, not a mode
	if len(piece) == 0 {
		return nil
	}
	a.prepareWrite()
	if _, err := a.writer.Write(piece); err != nil {
		return err
	}
	if more {
		return a.control.Flush()
	}
	return nil
}

// interruptionCause returns the reason why a response ended early.
func (a *attempt) interruptionCause(err error) error {
	switch {
	case a.isClientGone():
		return errGone
	case a.request.Context().Err() != nil:
		err = errSilent
	}
	a.requestContext.ReportHealth(request.Faulty)
	return err
}

// sendTrailers sends the trailers of the response, also those that were not announced.
func (a *attempt) sendTrailers() {
	h := a.writer.Header()
	for name, values := range a.response.Trailer {
		if _, ok := a.announced[name]; !ok {
			name = http.TrailerPrefix + name
		}
		h[name] = append(h[name], values...)
	}
}
