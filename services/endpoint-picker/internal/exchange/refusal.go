package exchange

import (
	"fmt"
	"net/http"
	"time"
)

// Reasons for which a request was dropped, as clients are told in a header.
const (
	ReasonNoEndpoints = "rejected-no-endpoints"
	ReasonSaturated   = "rejected-saturated"
)

// A Refusal is an HTTP response that takes the place of a model server's.
type Refusal struct {
	Code       int
	Reason     string        // why the request was dropped; may be empty
	Text       string        // of its body
	RetryAfter time.Duration // whole seconds; zero if it is not known whether that helps
}

// BadRequest refuses what cannot be understood.
func BadRequest(text string) *Refusal {
	return &Refusal{Code: http.StatusBadRequest, Text: "inference error: BadRequest - " + text}
}

// TooLarge refuses a body of more bytes than the limit.
func TooLarge(limit int) *Refusal {
	return &Refusal{
		Code: http.StatusRequestEntityTooLarge,
		Text: fmt.Sprintf("inference error: PayloadTooLarge - request body is over %d bytes", limit),
	}
}

// Unavailable refuses what nothing can take now.
func Unavailable(err error) *Refusal {
	return &Refusal{
		Code:       http.StatusServiceUnavailable,
		Reason:     ReasonNoEndpoints,
		Text:       "inference error: ServiceUnavailable - " + err.Error(),
		RetryAfter: time.Second,
	}
}

// Exhausted refuses what there is no room for.
func Exhausted(err error) *Refusal {
	return &Refusal{
		Code:       http.StatusTooManyRequests,
		Reason:     ReasonSaturated,
		Text:       "inference error: ResourceExhausted - " + err.Error(),
		RetryAfter: time.Second,
	}
}

// TimedOut refuses a body that took too long to come.
func TimedOut() *Refusal {
	return &Refusal{Code: http.StatusRequestTimeout, Text: "inference error: RequestTimeout - the request body took too long to come"}
}
