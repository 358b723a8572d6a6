package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
)

// requestError is an error that goes to the client as vLLM would word it.
type requestError struct {
	status  int
	kind    string
	param   string // empty: none
	message string
}

func (e *requestError) Error() string { return e.message }

// badRequest is a value that the server cannot work with.
func badRequest(param, format string, args ...any) *requestError {
	return &requestError{http.StatusBadRequest, "BadRequestError", param, fmt.Sprintf(format, args...)}
}

// invalidBody is a body that is not a request at all; FastAPI refuses those before vLLM sees them.
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

// plainStatus is an error about the HTTP request, not its content.
func plainStatus(status int) *requestError {
	return &requestError{status, http.StatusText(status), "", http.StatusText(status)}
}

// faultStatus is the answer of a server that was told to fail.
func faultStatus(status int) *requestError {
	return &requestError{status, "InternalServerError", "", "Injected fault"}
}

// decodeError turns a failure of encoding/json into what FastAPI says.
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

// writeDetail answers a request for which there is no route, as FastAPI does without asking vLLM.
func writeDetail(w http.ResponseWriter, status int) {
	writeJSON(w, status, map[string]string{"detail": http.StatusText(status)})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"answer cannot be encoded"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may be gone
}
