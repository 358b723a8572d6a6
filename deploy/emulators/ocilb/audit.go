package ocilb

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Call is a request that the emulator answered, or refused to answer.
type Call struct {
	At          time.Time `json:"at"`
	Operation   string    `json:"operation"` // such as UpdateBackendSet; empty for an unknown path
	Method      string    `json:"method"`
	Path        string    `json:"path"`
	KeyID       string    `json:"keyId,omitempty"`
	IfMatch     string    `json:"ifMatch,omitempty"`
	Token       string    `json:"retryToken,omitempty"`
	BodyHash    string    `json:"bodyHash,omitempty"`
	Status      int       `json:"status"`          // 0: the connection was closed without an answer
	Code        string    `json:"code,omitempty"`  // of an error
	Fault       string    `json:"fault,omitempty"` // that was injected
	Etag        string    `json:"etag,omitempty"`
	WorkRequest string    `json:"workRequest,omitempty"`
}

// Write reports whether the call asks for a change.
func (c *Call) Write() bool { return c.Method != http.MethodGet }

// maxCalls limits the audit log. Later calls are counted only.
const maxCalls = 200_000

// audit records calls.
type audit struct {
	mu    sync.Mutex
	calls []Call
	lost  int
}

func (a *audit) add(c *Call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.calls) == maxCalls {
		a.lost++
		return
	}
	a.calls = append(a.calls, *c)
}

// Calls returns the calls of some operations, or of all, in the order of their answers.
func (e *Emulator) Calls(operations ...string) []Call {
	e.audit.mu.Lock()
	defer e.audit.mu.Unlock()
	var calls []Call
	for i := range e.audit.calls {
		if c := &e.audit.calls[i]; len(operations) == 0 || slices.Contains(operations, c.Operation) {
			calls = append(calls, *c)
		}
	}
	return calls
}

// Writes returns the number of accepted mutations since a time.
func (e *Emulator) Writes(since time.Time) int {
	n := 0
	for _, c := range e.Calls() {
		if c.Write() && c.WorkRequest != "" && !c.At.Before(since) {
			n++
		}
	}
	return n
}

// ForgetCalls empties the audit log.
func (e *Emulator) ForgetCalls() {
	e.audit.mu.Lock()
	defer e.audit.mu.Unlock()
	e.audit.calls, e.audit.lost = nil, 0
}

func hashOf(body []byte) string {
	if len(body) == 0 {
		return ""
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}
