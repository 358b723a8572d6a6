package request

import (
	"net/http"
	"strconv"
	"strings"
)

// A HealthSignal is what the response to a request says about the health of its model server.
type HealthSignal uint8

// The health signals.
const (
	NoSignal HealthSignal = iota // nothing
	Begun                        // it began to answer; the signal of the whole response follows. Only pools send it
	Answered                     // it answered the whole request
	// the client, or the server, made an error: statuses 300 to 499, 501, and responses that ended early for an unknown reason
	Doubtful
	Steered // Doubtful, from a server that the client may have chosen. Only pools send it
	// the client has gone before any answer, and perhaps before it sent the request: nothing of the server, but its cache lacks the prompt
	Aborted
	Silent // the client has gone, which says something of the server if it had waited for content for long
	Faulty // the server failed: it did not answer, answered with an error, or not to the end

	HealthSignalCount // their number
)

// signalOfStatus returns the health signal of the status of a response, NoSignal if it depends on the body.
func (rc *Context) signalOfStatus(status int) HealthSignal {
	switch {
	case status < http.StatusOK, status == http.StatusNotImplemented && !rc.Generates:
		return NoSignal
	case status == http.StatusNotImplemented:
		return Doubtful
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		return Faulty
	case status < http.StatusMultipleChoices:
		if rc.hidden {
			return Answered
		}
		return NoSignal
	case !rc.Generates:
		return NoSignal
	case status < http.StatusBadRequest && rc.Inference && !rc.LooseSlashes(): // a login page, which no inference API has
		return Faulty
	}
	return Doubtful
}

// LooseSlashes reports whether the path of the request has slashes without meaning: servers redirect to the path without them.
func (rc *Context) LooseSlashes() bool {
	path, _, _ := strings.Cut(rc.Path, "?")
	return strings.HasSuffix(path, "/") || strings.Contains(path, "//")
}

// isServerRefusal reports whether the server answered with something other than what the request asks for.
func (rc *Context) isServerRefusal() bool {
	return rc.Status >= http.StatusMultipleChoices || rc.wrongBody
}

// signalOfBody returns the health signal of the body of a response, which has ended.
func (rc *Context) signalOfBody() HealthSignal {
	switch {
	case rc.Status < http.StatusOK, rc.Status >= http.StatusMultipleChoices:
		return NoSignal // its status said all
	case rc.Input.Blind || !rc.Generates || rc.Status != http.StatusOK && !rc.Inference,
		!rc.htmlBody && !rc.unacceptedEncoding && rc.reader.IsComplete():
		return Answered
	}
	rc.wrongBody = true
	if rc.Inference && !rc.unacceptedEncoding && (rc.htmlBody || !rc.reader.IsUnknownFormat()) {
		return Faulty
	}
	return Doubtful
}

// describeFailure says what was wrong with a response, or with the lack of one, for logs.
func (rc *Context) describeFailure() string {
	switch {
	case rc.unanswered:
		return describeStatus(0)
	case rc.Status == 0, rc.Status >= http.StatusMultipleChoices:
		return describeStatus(rc.Status)
	case rc.htmlBody:
		return "a page of HTML"
	case rc.unacceptedEncoding:
		return "compressed, which the request did not accept"
	case rc.reader.ErrorCount() > 0:
		return describeStatus(rc.Status)
	case rc.FirstContent.IsZero():
		return "no content"
	}
	return "ended early"
}

// describeStatus says what was wrong with a response that was no answer from its beginning, by its status; 0 if there was none.
func describeStatus(status int) string {
	switch {
	case status == 0:
		return "no answer"
	case status < http.StatusMultipleChoices:
		return "error in the body"
	}
	return "status " + strconv.Itoa(status)
}

// OnClientGone records that the client has gone, as far as the carrier knows. Carriers that do not see the content of answers do not call
// it.
func (rc *Context) OnClientGone() {
	if rc.Inference && (rc.stage == placed || rc.stage == responding) {
		rc.ReportHealth(Silent)
	}
}

// ReportHealth records what the response says about the health of the model server. The first one counts. Carriers call it when a response
// ends early.
func (rc *Context) ReportHealth(v HealthSignal) {
	if v == NoSignal || rc.signaled || rc.responseObserver == nil {
		return
	}
	rc.signaled = true
	h := HealthReport{Signal: v, Status: rc.Status, Failure: rc.describeFailure(), Refused: rc.isServerRefusal()}
	if rc.unanswered {
		h.Status = 0
	}
	rc.busyUntil = rc.responseObserver.ObserveHealth(h)
}
