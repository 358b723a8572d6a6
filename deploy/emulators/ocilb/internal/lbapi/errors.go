package lbapi

import (
	"fmt"
	"net/http"
)

// Error is an error of the service.
type Error struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error formats the error.
func (e *Error) Error() string { return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message) }

// Codes of errors.
const (
	CodeInvalidParameter    = "InvalidParameter"
	CodeMissingParameter    = "MissingParameter"
	CodeCannotParseRequest  = "CannotParseRequest"
	CodeLimitExceeded       = "LimitExceeded"
	CodeNotAuthenticated    = "NotAuthenticated"
	CodeMethodNotAllowed    = "MethodNotAllowed"
	CodeNotFound            = "NotAuthorizedOrNotFound"
	CodeExists              = "NotAuthorizedOrResourceAlreadyExists"
	CodeConflict            = "Conflict"
	CodeIncorrectState      = "IncorrectState"
	CodeInvalidatedToken    = "InvalidatedRetryToken"
	CodeNoEtagMatch         = "NoEtagMatch"
	CodeTooManyRequests     = "TooManyRequests"
	CodeInternalServerError = "InternalServerError"
	CodeServiceUnavailable  = "ServiceUnavailable"
	CodeNotImplemented      = "MethodNotImplemented"
)

// Errorf returns an Error.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *Error {
	return Errorf(http.StatusBadRequest, CodeInvalidParameter, format, args...)
}

func missing(field string) *Error {
	return Errorf(http.StatusBadRequest, CodeMissingParameter, "The required field '%s' is missing", field)
}

// NotFound returns the error for an object that does not exist, or that the caller may not see.
func NotFound(kind, name string) *Error {
	return Errorf(http.StatusNotFound, CodeNotFound, "Authorization failed or requested resource not found: %s '%s'", kind, name)
}

// Exists returns the error for an object that exists already.
func Exists(kind, name string) *Error {
	return Errorf(http.StatusConflict, CodeExists, "Authorization failed or resource already exists: %s '%s'", kind, name)
}
