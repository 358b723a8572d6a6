package ociapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// refusal implements the SDK's interface of errors of the service.
type refusal struct {
	status               int
	code, message, reqID string
}

func (r refusal) Error() string           { return "the SDK's long text, with hints" }
func (r refusal) GetHTTPStatusCode() int  { return r.status }
func (r refusal) GetMessage() string      { return r.message }
func (r refusal) GetCode() string         { return r.code }
func (r refusal) GetOpcRequestID() string { return r.reqID }

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func TestClasses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status int
		code   string
		want   Class
	}{
		{400, "InvalidParameter", Refused}, {400, "LimitExceeded", LimitExceeded}, {400, "QuotaExceeded", LimitExceeded},
		{401, "NotAuthenticated", Unauthenticated}, {403, "NotAuthorized", Refused}, {404, "NotAuthorizedOrNotFound", NotFound},
		{409, "IncorrectState", Busy}, {409, "Conflict", Busy}, {409, "LockConflict", Busy}, {409, "InvalidatedRetryToken", TokenUsed},
		{409, "NotAuthorizedOrResourceAlreadyExists", Exists}, {412, "NoEtagMatch", Stale}, {429, "TooManyRequests", Throttled},
		{500, "InternalServerError", Failing}, {501, "MethodNotImplemented", Refused}, {502, "", Failing},
		{503, "ServiceUnavailable", Failing}, {200, "", Failing},
	}
	for _, tt := range tests {
		err := fmt.Errorf("wrapped: %w",
			classifyError("UpdateBackendSet", nil, fmt.Errorf("more: %w", refusal{status: tt.status, code: tt.code}), now))
		assert.Equal(t, tt.want, AsError(err).Class, "%d %s", tt.status, tt.code)
	}
	assert.Equal(t, Unreachable, AsError(errors.New("any")).Class)
}

func TestErrorsAreFitForConditions(t *testing.T) {
	t.Parallel()
	response := &http.Response{Header: http.Header{"Retry-After": {"7"}, "Date": {now.Add(-6 * time.Minute).Format(http.TimeFormat)}}}
	e := classifyError("GetLoadBalancer", response,
		refusal{status: 401, code: "NotAuthenticated", message: "line\nbreak " + strings.Repeat("x", 1000), reqID: "R1"}, now)
	assert.Equal(t, 7*time.Second, e.RetryAfter)
	assert.Equal(t, 6*time.Minute, e.Skew)
	assert.Less(t, len(e.Error()), 600)
	assert.NotContains(t, e.Error(), "\n")
	assert.NotContains(t, e.Error(), "hints")
	assert.Contains(t, e.Error(), "GetLoadBalancer: 401 NotAuthenticated: line break xxx")
	assert.Contains(t, e.Error(), "(opc-request-id R1)")

	e = classifyError("GetLoadBalancer", nil,
		&url.Error{Op: "Get", URL: "https://iaas.example.com/20170115/loadBalancers/a", Err: errors.New("connection reset")}, now)
	assert.Equal(t, "GetLoadBalancer: connection reset", e.Error())
	assert.Equal(t, Unreachable, e.Class)
	assert.Equal(t, "NoAnswer", e.codeLabel())

	e = classifyError("GetLoadBalancer", &http.Response{StatusCode: 502}, errors.New("body is HTML"), now)
	assert.Equal(t, Failing, e.Class)
	assert.Equal(t, "502", e.codeLabel())
	assert.Equal(t, "Other", classifyError("x", nil, refusal{status: 400, code: "<script>"}, now).codeLabel())
	assert.Equal(t, "Other", classifyError("x", nil, refusal{status: 400, code: strings.Repeat("a", 65)}, now).codeLabel())
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "-5": 0, "99999999": maxRetryAfter, "x": 0, now.Add(time.Minute).Format(http.TimeFormat): time.Minute,
		now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		assert.Equal(t, want, parseRetryAfter(text, now), text)
	}
}
