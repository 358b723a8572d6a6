package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/edge-cache/internal/wire"
)

// StatusError is an answer of the API server that is not a success.
type StatusError struct {
	Status     metav1.Status
	RetryAfter time.Duration // that the API server asks for; 0 if it does not
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("API server: %d %s: %s", e.Status.Code, e.Status.Reason, e.Status.Message)
}

// ReadStatus returns the error in an answer.
func ReadStatus(response *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	status, err := decodeStatus(raw)
	if err != nil || status.Code == 0 {
		status = metav1.Status{Message: strings.ToValidUTF8(string(raw[:min(len(raw), 200)]), "?")}
	}
	status.Code = int32(response.StatusCode)
	if status.Reason == "" {
		status.Reason = metav1.StatusReason(strings.ReplaceAll(http.StatusText(response.StatusCode), " ", ""))
	}
	return &StatusError{Status: status, RetryAfter: parseRetryAfter(response.Header.Get("Retry-After"))}
}

// RetryAfter returns the pause that the API server asks for.
func RetryAfter(err error) time.Duration {
	var status *StatusError
	if !errors.As(err, &status) {
		return 0
	}
	return status.RetryAfter
}

// parseRetryAfter returns the pause in a header, at most maxRetryAfter. API servers give seconds, never a date.
func parseRetryAfter(text string) time.Duration {
	seconds, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

func decodeStatus(raw []byte) (metav1.Status, error) {
	var status metav1.Status
	if _, kind, content, err := wire.DecodeEnvelope(raw); err == nil {
		if kind != "Status" {
			return status, errors.New("not a Status")
		}
		return status, status.Unmarshal(content)
	}
	return status, json.Unmarshal(raw, &status)
}

// rights counts the answers in a row that are about rights.
type rights struct {
	forbidden int
	unknown   time.Time // of the first 401
}

// countRefusal counts an answer, and reports whether objects may no longer be served: the API server means it.
func (r *rights) countRefusal(code int32, now time.Time) bool {
	switch code {
	case http.StatusForbidden:
		r.forbidden++
		return r.forbidden >= deniedAfter
	case http.StatusUnauthorized:
		if r.unknown.IsZero() {
			r.unknown = now
		}
		return now.Sub(r.unknown) >= unknownAfter
	}
	return false
}
