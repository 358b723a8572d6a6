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
	id       id
	event    string
	status   int    // of the response, 0 if it is not given
	endpoint string // that served; empty: the picked one
	first    float64
	hasFirst bool
	usage    request.Usage
}

// outcomeFields are the names of the fields of a report, for messages.
var outcomeFields = []string{
	"id", "event", "status", "endpoint", "first_token_seconds", "prompt_tokens", "completion_tokens", "cached_tokens",
}

// readOutcome reads a report.
func readOutcome(text []byte) (*outcome, *Problem) {
	o, identified := &outcome{}, false
	problem := readObject(text, outcomeFields, func(r *fieldReader, name string) bool {
		switch name {
		case "id":
			o.id, identified = parseID(r.readString(name, maxName))
		case "event":
			o.event = r.readText(name, maxEvent)
		case "status":
			if o.status = r.readInteger(name, mostStatus); r.problem == nil && o.status < leastStatus {
				r.setProblem(fieldProblem(name, "it is not a number from %d to %d", leastStatus, mostStatus))
			}
		case "endpoint":
			o.endpoint = r.readText(name, maxEndpoint)
		case "first_token_seconds":
			o.first, o.hasFirst = r.readSeconds(name), true
		default:
			return o.readTokens(r, name)
		}
		return true
	})
	switch {
	case problem != nil:
		return nil, problem
	case !identified:
		return nil, fieldProblem("id", "it is not the id of a pick: 32 hexadecimal digits")
	}
	return o, o.checkComplete()
}

// readTokens reads a field with a number of tokens. It returns false for others.
func (o *outcome) readTokens(r *fieldReader, name string) bool {
	u := &o.usage
	switch name {
	case "prompt_tokens":
		u.Prompt = r.readInteger(name, maxTokens)
	case "completion_tokens":
		u.Output = r.readInteger(name, maxTokens)
	case "cached_tokens":
		u.Cached, u.CachedKnown = r.readInteger(name, maxTokens), true
	default:
		return false
	}
	u.Known = true
	return true
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
