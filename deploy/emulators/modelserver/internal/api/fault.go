package api

import (
	"fmt"
	"net/http"
	"time"

	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
)

// The types of the contents of answers.
const (
	contentJSON   = "application/json"
	contentEvents = "text/event-stream; charset=utf-8"
	contentPage   = "text/html; charset=utf-8"
)

// Bodies of faults. The streams of errors have the forms of SGLang 0.5, OpenAI's Chat Completions and Anthropic's Messages.
const (
	errorSGLang    = `{"error":{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","param":null,"code":503}}`
	errorOpenAI    = `{"error":{"message":"The server had an error while processing your request.","type":"server_error","param":null,"code":null}}`
	errorAnthropic = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	loginPage      = "<!doctype html><html><body>Log in</body></html>"
)

// answerFault answers a request with a fault, after its delay. It returns false if there is none, or if the answer has to begin before it.
func (s *Server) answerFault(w http.ResponseWriter, r *http.Request, f faults.Fault, stream bool) bool {
	if f.Name == "" {
		return false
	}
	s.pause(r, f.Delay)
	if status := f.Status(); status != 0 {
		writeError(w, &requestError{status, http.StatusText(status), "", "Injected fault"})
		return true
	}
	switch f.Name {
	case faults.ErrorSGLang:
		writeFaultError(w, stream, errorSGLang, "data: %s\n\ndata: [DONE]\n\n")
	case faults.ErrorOpenAI:
		writeFaultError(w, stream, errorOpenAI, "data: %s\n\n")
	case faults.ErrorAnthropic:
		writeFaultError(w, stream, errorAnthropic, "event: error\ndata: %s\n\n")
	case faults.EmptyBody:
		writeBody(w, http.StatusOK, contentJSON, "")
	case faults.EmptyStream:
		writeBody(w, http.StatusOK, contentEvents, "")
	case faults.Comments:
		writeBody(w, http.StatusOK, contentEvents, comment+comment)
	case faults.Login:
		w.Header().Set("Location", "/login")
		writeBody(w, http.StatusFound, contentPage, loginPage)
	case faults.Page:
		writeBody(w, http.StatusOK, contentPage, loginPage)
	case faults.Hang:
		s.hang(r)
	case faults.Silence:
		writeBody(w, http.StatusOK, contentEvents, "")
		_ = http.NewResponseController(w).Flush()
		s.hang(r)
	default:
		return false
	}
	return true
}

// writeFaultError writes an error under status 200: as an object, or in the form of a stream.
func writeFaultError(w http.ResponseWriter, stream bool, text, events string) {
	if !stream {
		writeBody(w, http.StatusOK, contentJSON, text)
		return
	}
	writeBody(w, http.StatusOK, contentEvents, fmt.Sprintf(events, text))
}

// pause waits until a time is over, or the request is.
func (s *Server) pause(r *http.Request, d time.Duration) {
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-s.released:
	}
}

// hang does not answer a request until the client disconnects or ReleaseHung is called, then closes the connection.
func (s *Server) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.released:
	}
	panic(http.ErrAbortHandler)
}
