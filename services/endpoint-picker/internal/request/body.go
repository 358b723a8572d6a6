package request

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// An ErrorFormat is the form of a refusal's body.
type ErrorFormat uint8

// The forms. OpenAI's is that of all APIs without another one, as vLLM and SGLang have it, too.
const (
	OpenAI    ErrorFormat = iota // {"error": {"message", "type", "code"}}
	Anthropic                    // {"type": "error", "error": {"type", "message"}}
	PlainText
)

// anthropicPath is the path of Anthropic's API, which others may follow (/count_tokens).
const anthropicPath = "/v1/messages"

// ErrorFormatOf returns the form in which clients of a path expect errors.
func ErrorFormatOf(path string) ErrorFormat {
	path, _, _ = strings.Cut(path, "?")
	if strings.HasSuffix(path, anthropicPath) || strings.Contains(path, anthropicPath+"/") {
		return Anthropic
	}
	return OpenAI
}

// AcceptsJSON reports whether an Accept header (RFC 9110, 12.5.1) allows JSON. Clients that ask for a stream of events alone do: the
// APIs report their errors in JSON to them, too.
func AcceptsJSON(accept string) bool {
	if strings.TrimSpace(accept) == "" {
		return true
	}
	rank, allowed := 0, false // the most specific range counts
	for element := range strings.SplitSeq(accept, ",") {
		name, parameters, _ := strings.Cut(element, ";")
		if k := rangeRanks[strings.ToLower(strings.TrimSpace(name))]; k > rank {
			rank, allowed = k, !isExcluded(parameters)
		}
	}
	return allowed
}

// rangeRanks says how closely media ranges name JSON; others do not.
var rangeRanks = map[string]int{"*/*": 1, "application/*": 2, "text/event-stream": 2, "application/json": 3}

// isExcluded reports whether the parameters of a media range have the weight 0.
func isExcluded(parameters string) bool {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if strings.EqualFold(name, "q") {
			q, err := strconv.ParseFloat(value, 64)
			return err == nil && q == 0
		}
	}
	return false
}

// errorNamesByStatus are the names of errors: in text those of the llm-d router, in JSON those of the APIs.
var errorNamesByStatus = map[int]struct{ text, openAI, anthropic string }{
	http.StatusBadRequest:            {"BadRequest", "invalid_request_error", "invalid_request_error"},
	http.StatusNotFound:              {"NotFound", "invalid_request_error", "not_found_error"},
	http.StatusMethodNotAllowed:      {"MethodNotAllowed", "invalid_request_error", "invalid_request_error"},
	http.StatusRequestTimeout:        {"RequestTimeout", "timeout_error", "timeout_error"},
	http.StatusRequestEntityTooLarge: {"PayloadTooLarge", "invalid_request_error", "request_too_large"},
	http.StatusUnsupportedMediaType:  {"UnsupportedMediaType", "invalid_request_error", "invalid_request_error"},
	http.StatusTooManyRequests:       {"ResourceExhausted", "rate_limit_error", "rate_limit_error"},
	http.StatusNotImplemented:        {"NotImplemented", "server_error", "api_error"},
	http.StatusBadGateway:            {"BadGateway", "server_error", "api_error"},
	http.StatusServiceUnavailable:    {"ServiceUnavailable", "server_error", "overloaded_error"},
	http.StatusGatewayTimeout:        {"GatewayTimeout", "server_error", "timeout_error"},
}

// An Error is the error object of a JSON body.
type Error struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Code    string `json:"code,omitempty"` // Reason, or the name of the status; Anthropic's API has none
}

// FormatError returns the error object in one of the JSON forms.
func (r *Refusal) FormatError(f ErrorFormat) Error {
	k := errorNamesByStatus[r.Code]
	if f == Anthropic {
		return Error{Type: k.anthropic, Message: r.Message()}
	}
	code := r.Reason
	if code == "" {
		code = strings.ReplaceAll(strings.ToLower(http.StatusText(r.Code)), " ", "_")
	}
	return Error{Type: k.openAI, Message: r.Message(), Code: code}
}

// EncodeBody returns the body for the client, and its content type.
func (r *Refusal) EncodeBody(f ErrorFormat) (body []byte, contentType string) {
	if f == PlainText {
		return []byte("inference error: " + errorNamesByStatus[r.Code].text + " - " + r.Message()), "text/plain; charset=utf-8"
	}
	document := struct {
		Type  string `json:"type,omitempty"`
		Error Error  `json:"error"`
	}{Error: r.FormatError(f)}
	if f == Anthropic {
		document.Type = "error"
	}
	body, _ = json.Marshal(document) // it has only strings
	return body, "application/json"
}
