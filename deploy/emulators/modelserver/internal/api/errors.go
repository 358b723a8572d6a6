package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
)

// requestError is an error that the server sends to the client in vLLM's form.
type requestError struct {
	status  int
	kind    string
	param   string // empty: no parameter
	message string
}

func (e *requestError) Error() string { return e.message }

// badRequest returns the error for an invalid value.
func badRequest(param, format string, args ...any) *requestError {
	return &requestError{http.StatusBadRequest, "BadRequestError", param, fmt.Sprintf(format, args...)}
}

// invalidBody returns the error for a body that is not a valid request. FastAPI refuses such a body before vLLM handles it.
func invalidBody(problem, location, message string) *requestError {
	text := fmt.Sprintf("[{'type': '%s', 'loc': (%s), 'msg': '%s'}]", problem, location, message)
	return &requestError{http.StatusBadRequest, http.StatusText(http.StatusBadRequest), "", text}
}

func missingField(name string) *requestError {
	return invalidBody("missing", fmt.Sprintf("'body', '%s'", name), "Field required")
}

func modelNotFound(name string) *requestError {
	return &requestError{http.StatusNotFound, "NotFoundError", "model", fmt.Sprintf("The model `%s` does not exist.", name)}
}

// plainStatus returns an error about the HTTP request, not about its content.
func plainStatus(status int) *requestError {
	return &requestError{status, http.StatusText(status), "", http.StatusText(status)}
}

// decodeError converts an error of encoding/json to an error of FastAPI.
func decodeError(err error) *requestError {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return plainStatus(http.StatusRequestEntityTooLarge)
	case errors.As(err, &kind):
		name := typeName(kind.Type.Kind())
		return invalidBody(name+"_type", fmt.Sprintf("'body', '%s'", kind.Field), "Input should be a valid "+name)
	case errors.As(err, &syntax):
		return invalidBody("json_invalid", fmt.Sprintf("'body', %d", syntax.Offset), "JSON decode error")
	default:
		return invalidBody("json_invalid", "'body', 0", "JSON decode error")
	}
}

func typeName(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "list"
	case reflect.Struct, reflect.Map:
		return "dictionary"
	default:
		return "integer"
	}
}

func writeError(w http.ResponseWriter, err error) {
	var refused *requestError
	if !errors.As(err, &refused) {
		refused = &requestError{http.StatusInternalServerError, "InternalServerError", "", err.Error()}
	}
	info := errorInfo{Message: refused.message, Type: refused.kind, Code: refused.status}
	if refused.param != "" {
		info.Param = &refused.param
	}
	writeJSON(w, refused.status, errorResponse{info})
}

// writeDetail answers a request without a route like FastAPI, which does not call vLLM for it.
func writeDetail(w http.ResponseWriter, status int) {
	writeJSON(w, status, map[string]string{"detail": http.StatusText(status)})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"cannot encode the answer"}}`)
	}
	writeBody(w, status, contentJSON, string(text))
}

func writeBody(w http.ResponseWriter, status int, contentType, text string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the client may have disconnected
}
