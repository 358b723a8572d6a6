// Package echo is a server whose answers say what reached it: a test that sends a request through a gateway reads there what
// the gateway made of it. Query parameters, which gateways pass on, choose the status, when the answer begins, and whether it
// is a stream of server-sent events.
package echo

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// NameHeader is in every answer.
const NameHeader = "X-Served-By"

// Answer is what an answer says in JSON.
type Answer struct {
	Name     string      `json:"name"`
	Protocol string      `json:"protocol"` // HTTP/1.1 or HTTP/2.0
	Method   string      `json:"method"`
	Host     string      `json:"host"`
	Path     string      `json:"path"`  // as it was sent, not unescaped
	Query    string      `json:"query"` // likewise
	Headers  http.Header `json:"headers"`
	Body     Body        `json:"body"`
}

// Body is what is left of a request's body.
type Body struct {
	Bytes  int64   `json:"bytes"`
	SHA256 string  `json:"sha256"`
	Took   float64 `json:"took"` // seconds from the end of the header to the end of the body
}

// Event is what an event of a stream says in JSON.
type Event struct {
	Name  string `json:"name"`
	Index int    `json:"index"` // from 1
}

// Server answers any method on any path.
type Server struct{ name string }

// New returns a server that goes by a name.
func New(name string) *Server { return &Server{name: name} }

// ServeHTTP reads the whole request, waits if it is to, and answers.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(NameHeader, s.name)
	p, err := parse(r.URL.RawQuery)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !wait(r, p.hold) {
		return
	}
	body, err := read(r.Body)
	if err != nil {
		http.Error(w, fmt.Sprintf("read body: %v", err), http.StatusBadRequest)
		return
	}
	if !wait(r, p.delay) {
		return
	}
	if p.events > 0 {
		s.stream(w, r, p)
		return
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(Answer{Name: s.name, Protocol: r.Proto, Method: r.Method, Host: r.Host, Path: path, Query: query,
		Headers: r.Header, Body: body}) // an error says that the client has gone
}

func read(r io.Reader) (Body, error) {
	begun, digest := time.Now(), sha256.New()
	n, err := io.Copy(digest, r)
	return Body{Bytes: n, SHA256: hex.EncodeToString(digest.Sum(nil)), Took: time.Since(begun).Seconds()}, err
}

// stream sends the header at once, then event after event, each by itself.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, p params) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.status)
	out := http.NewResponseController(w)
	if out.Flush() != nil {
		return
	}
	for i := 1; i <= p.events; i++ {
		if !wait(r, p.before(i)) {
			return
		}
		raw, _ := json.Marshal(Event{Name: s.name, Index: i}) // of a text and a number
		if _, err := fmt.Fprintf(w, "data: %s\n\n", raw); err != nil || out.Flush() != nil {
			return
		}
	}
}

// wait tells whether the client is still there after it.
func wait(r *http.Request, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-timer.C:
		return true
	}
}
