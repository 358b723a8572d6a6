package request

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

// Reasons for dropped requests, in a header for clients.
const (
	ReasonNoEndpoints = "rejected-no-endpoints"
	ReasonSaturated   = "rejected-saturated"
)

// A Refusal is an HTTP response instead of a model server's. EncodeResponse encodes it for its client.
type Refusal struct {
	Code       int
	Reason     string        // why the request was dropped; may be empty
	Text       string        // what is wrong, and what to do; without the RetryAfter
	RetryAfter time.Duration // whole seconds; zero if a retry may not help

	Cause error // of a refused pick; nil if the request was refused before it
}

// BadRequest refuses an invalid request.
func BadRequest(err error) *Refusal {
	return &Refusal{Code: http.StatusBadRequest, Text: err.Error(), Cause: err}
}

// UnsupportedFormat refuses a body in a format that the picker would have to read.
func UnsupportedFormat(err error) *Refusal {
	return &Refusal{Code: http.StatusUnsupportedMediaType, Text: err.Error(), Cause: err}
}

// TooLarge refuses a body that exceeds the limit in bytes.
func TooLarge(limit int) *Refusal {
	return &Refusal{
		Code: http.StatusRequestEntityTooLarge,
		Text: fmt.Sprintf("request body is over %d bytes: send a shorter one", limit),
	}
}

// Unavailable refuses a request because no endpoint can take it now.
func Unavailable(err error) *Refusal {
	return &Refusal{Code: http.StatusServiceUnavailable, Reason: ReasonNoEndpoints, Text: err.Error(), RetryAfter: time.Second, Cause: err}
}

// Exhausted refuses a request because a limit is reached.
func Exhausted(err error) *Refusal {
	return &Refusal{Code: http.StatusTooManyRequests, Reason: ReasonSaturated, Text: err.Error(), RetryAfter: time.Second, Cause: err}
}

// TimedOut refuses a request that took too long to arrive.
func TimedOut() *Refusal {
	return &Refusal{Code: http.StatusRequestTimeout, Text: "the request took too long to come: send it again"}
}

// NoAnswer is the response, with a status of 500 or more, to a request that no model server has answered.
func NoAnswer(code int, err error) *Refusal {
	return &Refusal{Code: code, Text: err.Error(), Cause: err}
}

// EncodeResponse returns the headers and the body of the response.
func (r *Refusal) EncodeResponse(f ErrorFormat) (api.Headers, []byte) {
	body, contentType := r.EncodeBody(f)
	headers := api.Headers{{Name: "content-type", Value: contentType}}
	if r.Reason != "" {
		headers = append(headers, api.Header{Name: HeaderDropped, Value: r.Reason})
	}
	if r.RetryAfter > 0 {
		headers = append(headers, api.Header{Name: "retry-after", Value: strconv.Itoa(int(r.RetryAfter / time.Second))})
	}
	return headers, body
}

// Message returns what the client reads: what is wrong, and what to do.
func (r *Refusal) Message() string {
	if r.RetryAfter > 0 {
		return fmt.Sprintf("%s; try again in %d s", r.Text, int(r.RetryAfter/time.Second))
	}
	return r.Text
}
