// Package echo provides a server whose answers describe the received request. A test sends a request through a gateway, and reads
// the changes of the gateway in the answer. Query parameters, which gateways pass on, select the status, the delay of the answer,
// and whether the answer is a stream of server-sent events.
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

// NameHeader is the header of every answer with the server's name.
const NameHeader = "X-Served-By"

// Answer is the JSON of an answer.
type Answer struct {
	Name     string      `json:"name"`
	Protocol string      `json:"protocol"` // HTTP/1.1 or HTTP/2.0
	Method   string      `json:"method"`
	Host     string      `json:"host"`
	Path     string      `json:"path"`  // with its escapes, as received
	Query    string      `json:"query"` // with its escapes, as received
	Headers  http.Header `json:"headers"`
	Body     Body        `json:"body"`
}

// Body describes a request's body.
type Body struct {
	Bytes  int64   `json:"bytes"`
	SHA256 string  `json:"sha256"`
	Took   float64 `json:"took"` // seconds from the start to the end of reading
}

// Event is the JSON of one event of a stream.
type Event struct {
	Name  string `json:"name"`
	Index int    `json:"index"` // from 1
}

// Server answers any method on any path.
type Server struct{ name string }

// New returns a server with the given name.
func New(name string) *Server { return &Server{name: name} }

// ServeHTTP reads the whole request, waits as the query requests, and answers.
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
		Headers: r.Header, Body: body}) // fails only if the client has disconnected
}

func read(r io.Reader) (Body, error) {
	begun, digest := time.Now(), sha256.New()
	n, err := io.Copy(digest, r)
	return Body{Bytes: n, SHA256: hex.EncodeToString(digest.Sum(nil)), Took: time.Since(begun).Seconds()}, err
}

// stream sends the header immediately, then flushes each event.
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
		raw, _ := json.Marshal(Event{Name: s.name, Index: i}) // never fails for a string and a number
		if _, err := fmt.Fprintf(w, "data: %s\n\n", raw); err != nil || out.Flush() != nil {
			return
		}
	}
}

// wait waits, and reports whether the client is still connected.
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
