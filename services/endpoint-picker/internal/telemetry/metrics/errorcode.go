package metrics

import (
	"net/http"
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Indexes of errorCodes for requests that the picker did not refuse.
const (
	noError = iota - 1
	unknownError
	modelServerError
)

// errorCodes are the reasons why requests failed, with the llm-d router's names. Those of refusals have statuses.
var errorCodes = [...]struct {
	name     string
	statuses []int
}{
	unknownError:     {name: "Unknown"},
	modelServerError: {name: "ModelServerError"},
	{"BadRequest", []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType}},
	{"Unauthorized", []int{http.StatusUnauthorized}},
	{"Forbidden", []int{http.StatusForbidden}},
	{"NotFound", []int{http.StatusNotFound}},
	{"PreconditionFailed", []int{http.StatusPreconditionFailed}},
	{"ResourceExhausted", []int{http.StatusTooManyRequests}},
	{"Internal", []int{http.StatusInternalServerError}},
	{"ServiceUnavailable", []int{http.StatusServiceUnavailable}},
}

// errorOf returns the index of the reason why a request failed, or noError.
func errorOf(r *request.Record) int {
	switch {
	case r.Outcome == request.Failed:
		return unknownError
	case r.Status < http.StatusBadRequest:
		return noError
	case r.Outcome != request.Refused:
		return modelServerError
	}
	for code := range errorCodes {
		if slices.Contains(errorCodes[code].statuses, r.Status) {
			return code
		}
	}
	return unknownError
}
