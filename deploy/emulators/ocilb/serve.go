package ocilb

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/body"
	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

const (
	base    = "/20170115"
	maxBody = 4 << 20
	maxPage = 1000
)

// Headers of the API.
const (
	headerEtag        = "Etag"
	headerIfMatch     = "If-Match"
	headerNextPage    = "Opc-Next-Page"
	headerRequestID   = "Opc-Request-Id"
	headerRetryToken  = "Opc-Retry-Token" //nolint:gosec // not a credential
	headerWorkRequest = "Opc-Work-Request-Id"
)

// request is a request that is being answered.
type request struct {
	*http.Request

	body []byte
}

// answer is what an operation returns: an object and the ETag, or a work request.
type answer struct {
	object      any
	etag        string
	workRequest string
}

// operation serves a kind of requests.
type operation func(r *request) (answer, *lbapi.Error)

// routes returns the handler of all paths.
func (e *Emulator) routes() http.Handler {
	mux := http.NewServeMux()
	operations := e.reads()
	maps.Copy(operations, e.mutations())
	maps.Copy(operations, e.balancerMutations())
	paths := map[string]bool{}
	for pattern, o := range operations {
		mux.Handle(pattern, e.serve(o.name, o.serve))
		_, path, _ := strings.Cut(pattern, " ")
		paths[path] = true
	}
	for path := range paths {
		mux.Handle(path, e.serve("", func(r *request) (answer, *lbapi.Error) {
			return answer{}, lbapi.Errorf(http.StatusMethodNotAllowed, lbapi.CodeMethodNotAllowed, "Method %.20s is not allowed", r.Method)
		}))
	}
	mux.Handle("/_emu/", e.admin())
	mux.Handle("/", e.serve("", func(r *request) (answer, *lbapi.Error) { return answer{}, lbapi.NotFound("path", r.URL.Path) }))
	return mux
}

// named is an operation with its name in the SDK.
type named struct {
	name  string
	serve operation
}

// serve answers requests of an operation, unless they have a fault or a wrong signature.
func (e *Emulator) serve(name string, serve operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := &Call{
			At: time.Now(), Operation: name, Method: r.Method, Path: r.URL.Path, IfMatch: r.Header.Get(headerIfMatch),
			Token: r.Header.Get(headerRetryToken),
		}
		defer func() { e.audit.add(call) }()
		id := r.Header.Get(headerRequestID)
		if id == "" {
			id = "emulator/" + strconv.FormatInt(call.At.UnixNano(), 16)
		}
		w.Header().Set(headerRequestID, id)
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			e.refuse(w, call, lbapi.Errorf(http.StatusBadRequest, lbapi.CodeCannotParseRequest, "The body cannot be read"))
			return
		}
		call.BodyHash = hashOf(text)
		fault := e.faults.next(name)
		if fault != nil {
			call.Fault = fault.Kind
			if e.before(w, r, call, fault) {
				return
			}
		}
		if e.verifier != nil {
			if err := e.verifier.Verify(r, text); err != nil {
				e.refuse(w, call, lbapi.Errorf(http.StatusUnauthorized, lbapi.CodeNotAuthenticated, "The required information to complete authentication was not provided or was incorrect: %s", err))
				return
			}
		}
		a, refusal := serve(&request{Request: r, body: text})
		if fault != nil && e.after(w, r, call, fault, a) {
			return
		}
		if refusal != nil {
			e.refuse(w, call, refusal)
			return
		}
		e.answer(w, call, a)
	})
}

// before applies a fault that keeps a request from having an effect, and reports whether the request is done.
func (e *Emulator) before(w http.ResponseWriter, r *http.Request, call *Call, f *Fault) (done bool) {
	switch f.Kind {
	case FaultStatus:
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		e.refuse(w, call, lbapi.Errorf(f.Status, f.Code, "injected fault"))
		return true
	case FaultReset:
		reset(w)
		return true
	case FaultHang:
		e.hang(r)
		reset(w)
		return true
	case FaultDelay:
		select {
		case <-time.After(time.Duration(f.Delay)):
		case <-r.Context().Done():
		case <-e.ending.Done():
		}
	}
	return false
}

// after applies a fault to the answer of a request that had its effect, and reports whether the request is done.
func (e *Emulator) after(w http.ResponseWriter, r *http.Request, call *Call, f *Fault, a answer) (done bool) {
	switch f.Kind {
	case FaultLostHang:
		e.hang(r)
		fallthrough
	case FaultLost:
		call.WorkRequest = a.workRequest
		reset(w)
		return true
	case FaultMalformed:
		call.Status, call.WorkRequest = http.StatusOK, a.workRequest
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id": "ocid1.`)
		return true
	}
	return false
}

// hang waits until the client gives up.
func (e *Emulator) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-e.ending.Done():
	}
}

// reset closes the connection of a request without an answer; with a TCP reset if it is TCP.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var tcp *net.TCPConn
	if t, ok := conn.(*net.TCPConn); ok {
		tcp = t
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func (e *Emulator) refuse(w http.ResponseWriter, call *Call, err *lbapi.Error) {
	call.Status, call.Code = err.Status, err.Code
	write(w, err.Status, err)
}

func (e *Emulator) answer(w http.ResponseWriter, call *Call, a answer) {
	call.Status, call.Etag, call.WorkRequest = http.StatusOK, a.etag, a.workRequest
	if a.etag != "" {
		w.Header().Set(headerEtag, a.etag)
	}
	if a.workRequest != "" {
		call.Status = http.StatusNoContent
		w.Header().Set(headerWorkRequest, a.workRequest)
		w.WriteHeader(call.Status)
		return
	}
	object := a.object
	if p, ok := object.(page); ok {
		if p.next != "" {
			w.Header().Set(headerNextPage, p.next)
		}
		object = p.items
	}
	write(w, call.Status, object)
}

func write(w http.ResponseWriter, status int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object)
}

// page is a page of a list.
type page struct {
	items any
	next  string
}

// paged returns the page of a list that a request asks for.
func paged[T any](r *request, all []T) (page, *lbapi.Error) {
	limit, from := 100, 0
	q := r.URL.Query()
	for name, to := range map[string]*int{"limit": &limit, "page": &from} {
		if text := q.Get(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return page{}, lbapi.Errorf(http.StatusBadRequest, lbapi.CodeInvalidParameter, "Invalid value '%.60s' of %s", text, name)
			}
			*to = n
		}
	}
	if limit < 1 || limit > maxPage {
		return page{}, lbapi.Errorf(http.StatusBadRequest, lbapi.CodeInvalidParameter, "Invalid limit %d", limit)
	}
	from = min(from, len(all))
	to := min(from+limit, len(all))
	p := page{items: append([]T{}, all[from:to]...)}
	if to < len(all) {
		p.next = strconv.Itoa(to)
	}
	return p, nil
}

// decode reads the body of a request.
func decode(r *request, to any) *lbapi.Error {
	err := body.Decode(r.body, to)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	var null *body.NullError
	switch {
	case errors.As(err, &wrong):
		return lbapi.Errorf(http.StatusBadRequest, lbapi.CodeInvalidParameter, "Invalid value of '%s'", wrong.Field)
	case errors.As(err, &null):
		return lbapi.Errorf(http.StatusBadRequest, lbapi.CodeInvalidParameter, "Invalid value: %s", null)
	}
	return lbapi.Errorf(http.StatusBadRequest, lbapi.CodeCannotParseRequest, "Incorrectly formatted request")
}
