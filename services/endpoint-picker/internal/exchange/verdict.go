package exchange

import (
	"net/http"
	"strconv"
	"strings"
)

// A Verdict is what the response to a request says about its model server.
type Verdict uint8

// The verdicts.
const (
	Unjudged Verdict = iota // nothing
	Begun                   // it began to answer; the verdict on the whole response follows. Pools make it; carriers do not use it
	Answered                // it answered the whole request
	Doubtful                // the client, or the server, made an error: statuses 300 to 499, 501, and responses that ended early for an unknown reason
	Steered                 // Doubtful, from a server that the client may have chosen. Pools make it, too
	Aborted                 // the client has gone before any answer, and perhaps before it sent the request: nothing of the server, but its cache lacks the prompt
	Silent                  // the client has gone, which says something of the server if it had waited for content for long
	Faulty                  // the server failed: it did not answer, answered with an error, or not to the end

	Verdicts // their number
)

// verdictOf returns the verdict on the status of a response, Unjudged if it depends on the body.
func (x *Exchange) verdictOf(status int) Verdict {
	switch {
	case status < http.StatusOK, status == http.StatusNotImplemented && !x.Generates:
		return Unjudged
	case status == http.StatusNotImplemented:
		return Doubtful
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		return Faulty
	case status < http.StatusMultipleChoices:
		if x.hidden {
			return Answered
		}
		return Unjudged
	case !x.Generates:
		return Unjudged
	case status < http.StatusBadRequest && x.Inference && !x.LooseSlashes(): // a login page, which no inference API has
		return Faulty
	}
	return Doubtful
}

// LooseSlashes reports whether the path of the request has slashes without meaning: servers redirect to the path without them.
func (x *Exchange) LooseSlashes() bool {
	path, _, _ := strings.Cut(x.Path, "?")
	return strings.HasSuffix(path, "/") || strings.Contains(path, "//")
}

// Refused reports whether the server answered with something else than what the request asks for.
func (x *Exchange) Refused() bool { return x.Status >= http.StatusMultipleChoices || x.wrongBody }

// verdictOfBody returns the verdict on the body of a response, which has ended.
func (x *Exchange) verdictOfBody() Verdict {
	switch {
	case x.Status < http.StatusOK, x.Status >= http.StatusMultipleChoices:
		return Unjudged // its status said all
	case x.Blind || !x.Generates || x.Status != http.StatusOK && !x.Inference, !x.page && !x.unasked && x.reader.Whole():
		return Answered
	}
	x.wrongBody = true
	if x.Inference && !x.unasked && (x.page || !x.reader.Unknown()) {
		return Faulty
	}
	return Doubtful
}

// Failure says what was wrong with a response that was judged, or with the lack of one, for logs.
func (x *Exchange) Failure() string {
	switch {
	case x.unanswered:
		return failureOf(0)
	case x.Status == 0, x.Status >= http.StatusMultipleChoices:
		return failureOf(x.Status)
	case x.page:
		return "a page of HTML"
	case x.unasked:
		return "compressed, which the request did not accept"
	case x.reader.Errors() > 0:
		return failureOf(x.Status)
	case x.First.IsZero():
		return "no content"
	}
	return "ended early"
}

// failureOf says what was wrong with a response that was no answer from its beginning, by its status; 0 if there was none.
func failureOf(status int) string {
	switch {
	case status == 0:
		return "no answer"
	case status < http.StatusMultipleChoices:
		return "error in the body"
	}
	return "status " + strconv.Itoa(status)
}

// Left records that the client has gone, as far as the carrier knows. Carriers that do not see the content of answers do not call it.
func (x *Exchange) Left() {
	if x.Inference && (x.stage == placed || x.stage == responding) {
		x.Judge(Silent)
	}
}

// Judge records the verdict on the response of the model server. The first one counts. Carriers call it when a response ends early.
func (x *Exchange) Judge(v Verdict) {
	if v == Unjudged || x.judged || x.follower == nil {
		return
	}
	x.judged = true
	x.busy = x.follower.Judged(v)
}
