package api

import (
	"context"
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

// A faultAnswer is a whole answer that is a fault.
type faultAnswer struct {
	status      int
	contentType string
	body        string
	object      string // in place of the body, as JSON, if the client has not asked for a stream
}

var faultAnswers = map[string]faultAnswer{
	faults.ErrorSGLang:    {http.StatusOK, contentEvents, "data: " + errorSGLang + "\n\ndata: [DONE]\n\n", errorSGLang},
	faults.ErrorOpenAI:    {http.StatusOK, contentEvents, "data: " + errorOpenAI + "\n\n", errorOpenAI},
	faults.ErrorAnthropic: {http.StatusOK, contentEvents, "event: error\ndata: " + errorAnthropic + "\n\n", errorAnthropic},
	faults.EmptyBody:      {http.StatusOK, contentJSON, "", ""},
	faults.EmptyStream:    {http.StatusOK, contentEvents, "", ""},
	faults.Comments:       {http.StatusOK, contentEvents, comment + comment, ""},
	faults.Login:          {http.StatusFound, contentPage, loginPage, ""},
	faults.Page:           {http.StatusOK, contentPage, loginPage, ""},
}

// answerFault answers a request with its fault, after the delay. It returns false if the request has no fault,
// or a fault that comes after the begin of the answer.
func (s *Server) answerFault(w http.ResponseWriter, r *http.Request, g *generation) bool {
	f := g.verdict.Fault
	if f.Name == "" {
		return false
	}
	s.pause(r, f.Delay)
	if f.Cuts() {
		return false
	}
	switch f.Name {
	case faults.Hang:
		s.hang(r)
	case faults.Silence:
		writeBody(w, http.StatusOK, contentEvents, "")
		_ = http.NewResponseController(w).Flush()
		s.hang(r)
	}
	if status := f.Status(); status != 0 {
		writeError(w, &requestError{status, http.StatusText(status), "", "Injected fault"})
		return true
	}
	a := faultAnswers[f.Name]
	if a.object != "" && !g.options.Stream {
		a.contentType, a.body = contentJSON, a.object
	}
	if f.Name == faults.Login {
		w.Header().Set("Location", "/login")
	}
	writeBody(w, a.status, a.contentType, a.body)
	return true
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
	s.stall(r.Context())
	panic(http.ErrAbortHandler)
}

// stall waits until a request is over, or the server closes.
func (s *Server) stall(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.released:
	}
}
