package ociapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/oracle/oci-go-sdk/v65/common"

	"fairlead.dev/pkg/conditions"
)

// Class is what a caller does about an error.
type Class int

// Classes of errors.
const (
	// Unreachable: no answer, or one that cannot be read. A write may have had its effect.
	Unreachable Class = iota
	// Failing: the service has a problem (5xx).
	Failing
	// Busy: another work request is in progress, or an administrator has locked the load balancer (409).
	Busy
	// Stale: the load balancer has changed since it was read (412).
	Stale
	// TokenUsed: the retry token belongs to another request (409).
	TokenUsed
	// Exists: the object of a write exists already (409): often an earlier attempt had its effect.
	Exists
	// Throttled: too many requests (429).
	Throttled
	// Unauthenticated: the credentials are wrong, or the clock is (401).
	Unauthenticated
	// NotFound: the object does not exist, or the credentials do not permit the request (404).
	NotFound
	// LimitExceeded: a limit of the service (400).
	LimitExceeded
	// Refused: the request is invalid (other 4xx, and 501).
	Refused
	// Deferred: a request of low priority was not sent, because others come first. RetryAfter is when it may be.
	Deferred
)

// Error is an error of a request.
type Error struct {
	Class     Class
	Operation string
	Status    int    // 0 without an answer
	Code      string // of the service
	Message   string
	RequestID string
	// RetryAfter is the time that the service asks to wait, 0 if it does not.
	RetryAfter time.Duration
	// Skew is how far the clock is ahead of the service's, if the answer says so.
	Skew time.Duration

	cause error
}

// Error formats the error.
func (e *Error) Error() string {
	if e.Status == 0 {
		return e.Operation + ": " + e.Message
	}
	text := fmt.Sprintf("%s: %d %s: %s", e.Operation, e.Status, e.Code, e.Message)
	if e.RequestID != "" {
		text += " (opc-request-id " + e.RequestID + ")"
	}
	return text
}

// Unwrap returns the error of the SDK.
func (e *Error) Unwrap() error { return e.cause }

// codeLabel returns the code of an error for metrics.
func (e *Error) codeLabel() string {
	if e.Status == 0 {
		return "NoAnswer"
	}
	return cmp.Or(e.Code, strconv.Itoa(e.Status))
}

// AsError returns an error of the client. Others are those of a service that was not reached.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Class: Unreachable, Message: err.Error()}
}

// Codes of the service.
const (
	codeTokenUsed = "InvalidatedRetryToken"
	codeExists    = "NotAuthorizedOrResourceAlreadyExists"
	codeLimit     = "LimitExceeded"
	codeQuota     = "QuotaExceeded"
)

// classifyError returns the error of a request.
func classifyError(operation string, response *http.Response, err error, now time.Time) *Error {
	e := &Error{Operation: operation, cause: err}
	var refusal common.ServiceError
	if !errors.As(err, &refusal) {
		e.Message = cleanText(withoutURL(err).Error())
		if response != nil && response.StatusCode >= http.StatusMultipleChoices {
			e.Status, e.Code, e.Class = response.StatusCode, "", classOf(response.StatusCode, "")
		}
		return e
	}
	e.Status, e.Code = refusal.GetHTTPStatusCode(), boundCode(refusal.GetCode())
	e.Message, e.RequestID = cleanText(refusal.GetMessage()), cleanText(refusal.GetOpcRequestID())
	e.Class = classOf(e.Status, e.Code)
	if response != nil {
		e.RetryAfter = parseRetryAfter(response.Header.Get("Retry-After"), now)
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			e.Skew = now.Sub(date)
		}
	}
	return e
}

// classes are the classes of codes and of statuses; a code comes first.
var (
	classesOfCodes = map[string]Class{
		codeTokenUsed: TokenUsed, codeExists: Exists, codeLimit: LimitExceeded, codeQuota: LimitExceeded,
	}
	classesOfStatuses = map[int]Class{
		http.StatusUnauthorized: Unauthenticated, http.StatusNotFound: NotFound, http.StatusConflict: Busy,
		http.StatusPreconditionFailed: Stale, http.StatusTooManyRequests: Throttled, http.StatusNotImplemented: Refused,
	}
)

func classOf(status int, code string) Class {
	if class, found := classesOfCodes[code]; found {
		return class
	}
	if class, found := classesOfStatuses[status]; found {
		return class
	}
	if status < http.StatusBadRequest || status >= http.StatusInternalServerError {
		return Failing
	}
	return Refused
}

// boundCode bounds the codes in metrics and conditions.
func boundCode(code string) string {
	const maxCode = 64
	if len(code) > maxCode || strings.ContainsFunc(code, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsLetter(r) }) {
		return "Other"
	}
	return code
}

// maxText bounds texts of the service in conditions.
const maxText = 400

// cleanText makes a text of the service fit for one line of a log and for conditions.
func cleanText(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(conditions.TruncateMessage(text, maxText))
}

// withoutURL leaves out the URL and the method, which the operation says.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// maxRetryAfter bounds what a service can ask for.
const maxRetryAfter = 5 * time.Minute

// parseRetryAfter parses the header: seconds, or a date.
func parseRetryAfter(text string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.Atoi(text); err == nil {
		wait = time.Duration(min(max(seconds, 0), int(maxRetryAfter/time.Second))) * time.Second
	} else if date, err := http.ParseTime(text); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
