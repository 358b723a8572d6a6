package exchange

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
	Doubtful                     // the client, or the server, made an error: statuses 300 to 499, 501, and responses that ended early for an unknown reason
	Steered                      // Doubtful, from a server that the client may have chosen. Only pools send it
	Aborted                      // the client has gone before any answer, and perhaps before it sent the request: nothing of the server, but its cache lacks the prompt
	Silent                       // the client has gone, which says something of the server if it had waited for content for long
	Faulty                       // the server failed: it did not answer, answered with an error, or not to the end

	HealthSignalCount // their number
)

// signalOfStatus returns the health signal of the status of a response, NoSignal if it depends on the body.
func (x *RequestContext) signalOfStatus(status int) HealthSignal {
	switch {
	case status < http.StatusOK, status == http.StatusNotImplemented && !x.Generates:
		return NoSignal
	case status == http.StatusNotImplemented:
		return Doubtful
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		return Faulty
	case status < http.StatusMultipleChoices:
		if x.hidden {
			return Answered
		}
		return NoSignal
	case !x.Generates:
		return NoSignal
	case status < http.StatusBadRequest && x.Inference && !x.LooseSlashes(): // a login page, which no inference API has
		return Faulty
	}
	return Doubtful
}

// LooseSlashes reports whether the path of the request has slashes without meaning: servers redirect to the path without them.
func (x *RequestContext) LooseSlashes() bool {
	path, _, _ := strings.Cut(x.Path, "?")
	return strings.HasSuffix(path, "/") || strings.Contains(path, "//")
}

// IsServerRefusal reports whether the server answered with something else than what the request asks for.
func (x *RequestContext) IsServerRefusal() bool {
	return x.Status >= http.StatusMultipleChoices || x.wrongBody
}

// signalOfBody returns the health signal of the body of a response, which has ended.
func (x *RequestContext) signalOfBody() HealthSignal {
	switch {
	case x.Status < http.StatusOK, x.Status >= http.StatusMultipleChoices:
		return NoSignal // its status said all
	case x.Blind || !x.Generates || x.Status != http.StatusOK && !x.Inference, !x.htmlBody && !x.unacceptedEncoding && x.reader.IsComplete():
		return Answered
	}
	x.wrongBody = true
	if x.Inference && !x.unacceptedEncoding && (x.htmlBody || !x.reader.IsUnknownFormat()) {
		return Faulty
	}
	return Doubtful
}

// DescribeFailure says what was wrong with a response that was judged, or with the lack of one, for logs.
func (x *RequestContext) DescribeFailure() string {
	switch {
	case x.unanswered:
		return describeStatus(0)
	case x.Status == 0, x.Status >= http.StatusMultipleChoices:
		return describeStatus(x.Status)
	case x.htmlBody:
		return "a page of HTML"
	case x.unacceptedEncoding:
		return "compressed, which the request did not accept"
	case x.reader.ErrorCount() > 0:
		return describeStatus(x.Status)
	case x.FirstContent.IsZero():
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

// OnClientGone records that the client has gone, as far as the carrier knows. Carriers that do not see the content of answers do not call it.
func (x *RequestContext) OnClientGone() {
	if x.Inference && (x.stage == placed || x.stage == responding) {
		x.ReportHealth(Silent)
	}
}

// ReportHealth records what the response says about the health of the model server. The first one counts. Carriers call it when a response ends early.
func (x *RequestContext) ReportHealth(v HealthSignal) {
	if v == NoSignal || x.signaled || x.responseObserver == nil {
		return
	}
	x.signaled = true
	x.busyUntil = x.responseObserver.OnHealthSignal(v)
}
