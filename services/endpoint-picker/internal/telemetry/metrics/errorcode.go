package metrics

import (
	"net/http"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// errorCode is the reason why a request failed, with the llm-d router's names.
type errorCode int

const (
	noError errorCode = iota
	badRequest
	unauthorized
	forbidden
	notFound
	preconditionFailed
	resourceExhausted
	internalError
	serviceUnavailable
	modelServerError
	unknownError
	errorCodes // number of codes
)

func (c errorCode) String() string {
	return [errorCodes]string{
		"", "BadRequest", "Unauthorized", "Forbidden", "NotFound", "PreconditionFailed", "ResourceExhausted", "Internal",
		"ServiceUnavailable", "ModelServerError", "Unknown",
	}[c]
}

// errorOf returns the reason why a request failed, or noError.
func errorOf(r *request.Record) errorCode {
	switch {
	case r.Outcome == request.Failed:
		return unknownError
	case r.Status < http.StatusBadRequest:
		return noError
	case r.Outcome != request.Refused:
		return modelServerError
	}
	switch r.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return badRequest
	case http.StatusUnauthorized:
		return unauthorized
	case http.StatusForbidden:
		return forbidden
	case http.StatusNotFound:
		return notFound
	case http.StatusPreconditionFailed:
		return preconditionFailed
	case http.StatusTooManyRequests:
		return resourceExhausted
	case http.StatusInternalServerError:
		return internalError
	case http.StatusServiceUnavailable:
		return serviceUnavailable
	}
	return unknownError
}
