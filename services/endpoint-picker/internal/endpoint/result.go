package endpoint

import "net/http"

// A Result is how the attempt of a request at a server ended.
type Result uint8

// The results.
const (
	ResultAnswered    Result = iota // the whole answer came
	ResultRedirect                  // 3xx
	ResultClientError               // 4xx
	ResultServerError               // 5xx
	ResultIncomplete                // an error, nothing, or the beginning of an answer, with a good status
	ResultNone                      // no response: no connection, or the server closed it, or was silent
	results
)

// String returns the result as a value of a metric's label.
func (r Result) String() string {
	return [results]string{"answered", "3xx", "4xx", "5xx", "incomplete", "none"}[r]
}

// Results returns all results.
func Results() []Result {
	return []Result{ResultAnswered, ResultRedirect, ResultClientError, ResultServerError, ResultIncomplete, ResultNone}
}

// ResultOfStatus returns the result of a response that is no answer, by its status; 0 if there was none.
func ResultOfStatus(status int) Result {
	switch {
	case status == 0:
		return ResultNone
	case status < http.StatusMultipleChoices:
		return ResultIncomplete
	case status < http.StatusBadRequest:
		return ResultRedirect
	case status < http.StatusInternalServerError:
		return ResultClientError
	}
	return ResultServerError
}

// CountResult counts an attempt at the endpoint.
func (e *Endpoint) CountResult(r Result) { e.results[r].Add(1) }
