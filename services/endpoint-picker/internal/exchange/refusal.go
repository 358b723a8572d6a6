package exchange

import (
	"fmt"
	"net/http"
	"time"
)

// Reasons for dropped requests, in a header for clients.
const (
	ReasonNoEndpoints = "rejected-no-endpoints"
	ReasonSaturated   = "rejected-saturated"
)

// A Refusal is an HTTP response instead of a model server's.
type Refusal struct {
	Code       int
	Reason     string        // why the request was dropped; may be empty
	Text       string        // of its body
	RetryAfter time.Duration // whole seconds; zero if a retry may not help

	Cause error // of a refused pick; nil if the request was refused before it
}

// BadRequest refuses an invalid request.
func BadRequest(err error) *Refusal {
	return &Refusal{Code: http.StatusBadRequest, Text: "inference error: BadRequest - " + err.Error(), Cause: err}
}

// Unsupported refuses a body in a format that the picker would have to read.
func Unsupported(err error) *Refusal {
	return &Refusal{Code: http.StatusUnsupportedMediaType, Text: "inference error: UnsupportedMediaType - " + err.Error(), Cause: err}
}

// TooLarge refuses a body that exceeds the limit in bytes.
func TooLarge(limit int) *Refusal {
	return &Refusal{
		Code: http.StatusRequestEntityTooLarge,
		Text: fmt.Sprintf("inference error: PayloadTooLarge - request body is over %d bytes", limit),
	}
}

// Unavailable refuses a request because no endpoint can take it now.
func Unavailable(err error) *Refusal {
	return &Refusal{
		Code:       http.StatusServiceUnavailable,
		Reason:     ReasonNoEndpoints,
		Text:       "inference error: ServiceUnavailable - " + err.Error(),
		RetryAfter: time.Second,
		Cause:      err,
	}
}

// Exhausted refuses a request because a limit is reached.
func Exhausted(err error) *Refusal {
	return &Refusal{
		Code:       http.StatusTooManyRequests,
		Reason:     ReasonSaturated,
		Text:       "inference error: ResourceExhausted - " + err.Error(),
		RetryAfter: time.Second,
		Cause:      err,
	}
}

// TimedOut refuses a request that took too long to arrive.
func TimedOut() *Refusal {
	return &Refusal{Code: http.StatusRequestTimeout, Text: "inference error: RequestTimeout - the request took too long to come"}
}
