package decisionapi

import (
	"encoding/hex"
	"net/http"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Events of outcomes.
const (
	EventFirstToken = "first_token"
	EventCompleted  = "completed"
	EventFailed     = "failed"
	EventAborted    = "aborted"
)

// Results of reports and picks that are no events of a client.
const (
	resultExpired = "expired" // a pick without an outcome
	resultUnknown = "unknown" // an outcome without a pick
	resultGone    = "gone"    // a pick whose client did not take the answer
	resultStopped = "stopped" // a pick that was open at the exit of the process
)

// Results are the values of a metric's label.
func Results() []string {
	return []string{EventFirstToken, EventCompleted, EventFailed, EventAborted, resultExpired, resultUnknown, resultGone, resultStopped}
}

const (
	// maxOutcome is the maximum size of a report, in bytes. The longest valid one has 300.
	maxOutcome  = 4 << 10
	maxEvent    = 16
	maxEndpoint = 64 // the longest ip:port with a zone has 62
	leastStatus = 100
	mostStatus  = 599
)

// id identifies a pick.
type id [16]byte

func (i id) String() string { return hex.EncodeToString(i[:]) }

// parseID reads an id. It reports whether the text is one.
func parseID(text []byte) (i id, ok bool) {
	if len(text) != hex.EncodedLen(len(i)) {
		return i, false
	}
	_, err := hex.Decode(i[:], text)
	return i, err == nil
}

// outcome is a report about a pick.
type outcome struct {
	id         id
	identified bool // it has an id
	event      string
	status     int    // of the response, 0 if it is not given
	endpoint   string // that served; empty: the picked one
	first      float64
	hasFirst   bool
	usage      request.Usage
}

var outcomeFields = []field[outcome]{
	{"id", func(r *fieldReader, path string, o *outcome) {
		o.id, o.identified = parseID(r.readString(path, maxName))
	}},
	{"event", func(r *fieldReader, path string, o *outcome) { o.event = r.readText(path, maxEvent) }},
	{"status", readStatus},
	{"endpoint", func(r *fieldReader, path string, o *outcome) { o.endpoint = r.readText(path, maxEndpoint) }},
	{"first_token_seconds", func(r *fieldReader, path string, o *outcome) { o.first, o.hasFirst = r.readSeconds(path), true }},
	{"prompt_tokens", func(r *fieldReader, path string, o *outcome) {
		o.usage.Prompt, o.usage.Known = r.readInteger(path, maxTokens), true
	}},
	{"completion_tokens", func(r *fieldReader, path string, o *outcome) {
		o.usage.Output, o.usage.Known = r.readInteger(path, maxTokens), true
	}},
	{"cached_tokens", func(r *fieldReader, path string, o *outcome) {
		o.usage.Cached, o.usage.CachedKnown, o.usage.Known = r.readInteger(path, maxTokens), true, true
	}},
}

func readStatus(r *fieldReader, path string, o *outcome) {
	if o.status = r.readInteger(path, mostStatus); r.problem == nil && o.status < leastStatus {
		r.setProblem(fieldProblem(path, "it is not a number from %d to %d", leastStatus, mostStatus))
	}
}

// readOutcome reads a report.
func readOutcome(text []byte) (*outcome, *Problem) {
	o := &outcome{}
	if problem := readObject(text, outcomeFields, o); problem != nil {
		return nil, problem
	}
	if !o.identified {
		return nil, fieldProblem("id", "it is not the id of a pick: 32 hexadecimal digits")
	}
	return o, o.checkComplete()
}

// checkComplete checks a whole report, and completes it.
func (o *outcome) checkComplete() *Problem {
	switch o.event {
	case EventFirstToken, EventCompleted:
		if o.status == 0 {
			o.status = http.StatusOK
		}
	case EventFailed:
		if o.status == 0 {
			o.status = http.StatusServiceUnavailable
		}
		if o.status < http.StatusBadRequest {
			return fieldProblem("status", "%d is not the status of a failure", o.status)
		}
	case EventAborted:
	default:
		return fieldProblem("event", "it is not one of %s, %s, %s, %s", EventFirstToken, EventCompleted, EventFailed, EventAborted)
	}
	if o.usage.Cached > o.usage.Prompt && o.usage.Prompt > 0 {
		return fieldProblem("cached_tokens", "they are more than prompt_tokens")
	}
	return nil
}
