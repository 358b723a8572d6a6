package decisionapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Answer is the answer to a pick.
type Answer struct {
	ID            string      `json:"id"`
	Endpoints     []Endpoint  `json:"endpoints"`             // best first
	Model         string      `json:"model,omitempty"`       // to request from the server, if it is another one
	SetHeaders    api.Headers `json:"set_headers,omitempty"` // of the request
	RemoveHeaders []string    `json:"remove_headers,omitempty"`
	OutcomeURL    string      `json:"outcome_url"`
	Expires       float64     `json:"expires_seconds"`
}

// Endpoint is a candidate of a pick.
type Endpoint struct {
	Address string  `json:"address"` // ip:port
	Pod     string  `json:"pod"`     // namespace/name
	Score   float64 `json:"score"`
	Wait    float64 `json:"wait_seconds"`  // estimated, to the first token
	Cached  int     `json:"cached_tokens"` // of the prompt, estimated
}

// A Problem says why a call was refused.
type Problem struct {
	request.Refusal

	Field string // of the call, if one is wrong
}

// newProblem returns a problem of a field, or of the whole call.
func newProblem(status int, field, text string) *Problem {
	return &Problem{Refusal: request.Refusal{Code: status, Text: text}, Field: field}
}

// fieldProblem refuses a call because of a field.
func fieldProblem(field, format string, args ...any) *Problem {
	return newProblem(http.StatusBadRequest, field, fmt.Sprintf(format, args...))
}

// limitProblem refuses a call because of a limit of the decision API.
func limitProblem(text string) *Problem {
	p := newProblem(http.StatusTooManyRequests, "", text)
	p.RetryAfter = time.Second
	return p
}

// toProblem converts the refusal of a request.
func toProblem(r *request.Refusal) *Problem { return &Problem{Refusal: *r} }

// errorObject is the error of an answer: that of OpenAI's API, with two fields more.
type errorObject struct {
	request.Error

	Field  string `json:"field,omitempty"`
	Reason string `json:"reason,omitempty"` // of a refused request, for its client
}

// sendTo writes the problem as an answer.
func (p *Problem) sendTo(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(p.RetryAfter.Seconds())))
	}
	_ = writeJSON(w, p.Code, struct {
		Error errorObject `json:"error"`
	}{errorObject{p.FormatError(request.OpenAI), p.Field, p.Reason}}) // an error means that the client has gone
}

// writeJSON writes an answer, and waits until the connection has it.
func writeJSON(w http.ResponseWriter, status int, answer any) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err) // unreachable: all numbers are finite
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

func endpointsOf(ranking []request.Score) []Endpoint {
	list := make([]Endpoint, len(ranking))
	for i, s := range ranking {
		list[i] = Endpoint{
			Address: s.Endpoint.Address(), Pod: s.Endpoint.Server().Name, Score: finiteOrZero(s.Total), Wait: finiteOrZero(s.Wait),
			Cached: s.Matched,
		}
	}
	return list
}

// finiteOrZero returns 0 for a number that JSON does not have.
func finiteOrZero(x float64) float64 {
	if x-x != 0 {
		return 0
	}
	return x
}
