// Package api provides the HTTP server of the model server: OpenAI's API like vLLM's, probes, the metrics page, and an admin
// endpoint for fault injection.
//
// Every answer names its server in the headers x-served-by and x-served-endpoint. A stream has each token once, which the server
// sends after the step of the token, and ends in [DONE]; usage counts these tokens. If a client accepts trailers, the server sends
// a digest in a trailer. If a client disconnects, the server aborts the request in the engine.
package api

import (
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/metrics"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
)

// Headers of every answer.
const (
	HeaderServedBy       = "x-served-by"       // pod name
	HeaderServedEndpoint = "x-served-endpoint" // ip:port
)

// Params are the parameters of New.
type Params struct {
	PodName          string
	PodIP            string   // empty: the address of each connection
	Models           []string // the name of the model, then its other names
	Adapters         []string
	Seed             uint64
	Output           tokens.Lengths
	AllowFaultHeader bool
	Version          string // of vLLM
	Tokenizer        tokens.Tokenizer
	Habits           Habits

	Spec   engine.Spec
	Driver *engine.Driver
	Page   *metrics.Page
	Faults *faults.Register
	Log    *zap.Logger
}

// The states of a server, in their order.
const (
	stateLoading int32 = iota
	stateServing
	stateDraining
)

// Server answers HTTP requests. Its first state is that of a server whose model is loading.
type Server struct {
	Params
	started time.Time
	mux     *http.ServeMux
	methods map[string][]string // of each path

	state    atomic.Int32
	released chan struct{} // closed by ReleaseHung
	release  sync.Once
	frozen   atomic.Pointer[[]byte] // the metrics page while it is stale
	loop     eventLoop
}

// New returns a Server.
func New(p Params) *Server {
	s := &Server{
		Params: p, started: time.Now(), mux: http.NewServeMux(), methods: make(map[string][]string), released: make(chan struct{}),
		loop: newEventLoop(),
	}
	s.route("POST", "/v1/chat/completions", s.observed(digested(s.chatCompletions)))
	s.route("POST", "/v1/completions", s.observed(digested(s.completions)))
	s.route("POST", "/v1/responses", s.observed(digested(s.responses)))
	s.route("GET", "/v1/models", s.observed(digested(s.listModels)))
	s.route("POST", "/tokenize", s.observed(digested(s.tokenize)))
	s.route("GET", "/health", s.health)
	s.route("GET", "/ping", s.health)
	s.route("POST", "/ping", s.health)
	if p.Habits.ReadyPath {
		s.route("GET", "/ready", s.ready)
	}
	s.route("GET", "/version", s.version)
	s.route("GET", "/metrics", s.metrics)
	s.route("GET", "/admin/faults", s.getFaults)
	s.route("POST", "/admin/faults", s.postFaults)
	s.route("DELETE", "/admin/faults", s.deleteFaults)
	s.mux.HandleFunc("/", s.noRoute)
	return s
}

// Loaded makes the server answer requests.
func (s *Server) Loaded() { s.state.CompareAndSwap(stateLoading, stateServing) }

// Drain makes the server not ready, and makes it close connections after their next answer. The server still answers requests.
func (s *Server) Drain() { s.state.Store(stateDraining) }

// ReleaseHung closes the connections of current and later hanging requests.
func (s *Server) ReleaseHung() { s.release.Do(func() { close(s.released) }) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set(HeaderServedBy, s.PodName)
	h.Set(HeaderServedEndpoint, s.endpoint(r))
	switch s.state.Load() {
	case stateDraining:
		h.Set("Connection", "close") // with HTTP/2 a graceful GOAWAY
	case stateLoading:
		if !answersWhileLoading(r.URL.Path) {
			writeError(w, plainStatus(http.StatusServiceUnavailable))
			return
		}
	}
	s.loop.pass()
	s.mux.ServeHTTP(w, r)
}

func answersWhileLoading(path string) bool {
	return path == "/health" || path == "/ping" || path == "/ready" || path == "/version" || strings.HasPrefix(path, "/admin/")
}

// endpoint returns the address at which this request reached the server.
func (s *Server) endpoint(r *http.Request) string {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return s.PodIP
	}
	host, port, err := net.SplitHostPort(local.String())
	if err != nil {
		return local.String()
	}
	if s.PodIP != "" {
		host = s.PodIP
	}
	return net.JoinHostPort(host, port)
}

func (s *Server) route(method, path string, h http.HandlerFunc) {
	s.methods[path] = append(s.methods[path], method)
	s.mux.HandleFunc(method+" "+path, h)
}

// noRoute answers requests without a route.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	if methods := s.methods[r.URL.Path]; methods != nil {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		writeDetail(w, http.StatusMethodNotAllowed)
		return
	}
	writeDetail(w, http.StatusNotFound)
}

// observed counts requests to a route in the HTTP families of the metrics page. vLLM does not count probes and requests for the
// page.
func (s *Server) observed(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			s.Page.ObserveHTTP(metrics.HTTPRequest{
				Handler: r.URL.Path, Method: r.Method, Status: recorder.status, Duration: time.Since(start),
				RequestBytes: r.ContentLength, ResponseBytes: recorder.declared,
			})
		}()
		h(recorder, r)
	}
}

// statusRecorder records the status and the size of an answer.
type statusRecorder struct {
	http.ResponseWriter
	status   int
	declared int64
}

// WriteHeader implements http.ResponseWriter.
func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *statusRecorder) Write(b []byte) (int, error) {
	if r.Header().Get("Content-Type") == contentJSON {
		r.declared += int64(len(b))
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func isJSON(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == contentJSON
}
