package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/edge-cache/internal/upstream"
)

const (
	// readTimeout is the time after which a single read is answered from what was kept.
	readTimeout = 2 * time.Second
	// writeTimeout is the time after which a write counts as lost. The API server itself gives up after 34 s.
	writeTimeout = 35 * time.Second
	// maxDocument is the largest answer that is kept.
	maxDocument = 2 << 20
	// maxAnswer is the largest answer that is passed on.
	maxAnswer = 16 << 20
)

// forward passes on a write.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, req request) error {
	if !s.params.Allow.Writable(req.group, req.withSub(), req.verb, s.scope(req)) {
		return s.notAllowed(req)
	}
	if !s.params.Backend.Online() {
		return unavailable("edge-cache: the API server does not answer, so nothing was written")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return badRequest("read body: %v", err)
	}
	if len(body) > maxBody {
		return statusError(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "the body is larger than 3 MiB")
	}
	ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
	defer cancel()
	response, err := s.params.Backend.Do(ctx, upstream.Request{
		Source: "write", Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: forwarded(r.Header), Body: bytes.NewReader(body),
	})
	if err != nil {
		return unavailable("edge-cache: the API server did not answer, so it may have written or not: %v", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized { // to the controller it would say that its own token is wrong
		return unavailable("edge-cache: nothing was written, because the API server does not accept the token of the cache: %v", upstream.ReadStatus(response))
	}
	s.count(req, "upstream")
	relay(w, response)
	return nil
}

// forwarded returns the headers that are passed on. Credentials and impersonation are not among them.
func forwarded(h http.Header) http.Header {
	out := http.Header{}
	for _, name := range []string{"Accept", "Content-Type", "User-Agent"} {
		if values := h.Values(name); len(values) > 0 {
			out[name] = slices.Clone(values)
		}
	}
	return out
}

// relay writes an answer of the API server.
func relay(w http.ResponseWriter, response *http.Response) {
	for _, name := range []string{"Content-Type", "Retry-After", "Warning"} {
		if values := response.Header.Values(name); len(values) > 0 {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(response.Body, maxAnswer)) // the client may be gone
}

// serveDocument serves discovery, the version and the health of the API server.
func (s *Server) serveDocument(w http.ResponseWriter, r *http.Request) error {
	path := r.URL.Path
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
	case path == "/healthz" || path == "/readyz" || path == "/livez":
		_, _ = io.WriteString(w, "ok")
		return nil
	case path == "/version" || path == "/version/" || isDiscovery(path):
		return s.keep(w, r, request{verb: "get", resource: "discovery"})
	}
	return forbidden("edge-cache: %s %s is not on the allow-list", r.Method, path)
}

// isDiscovery reports whether a path is of discovery or of the schema.
func isDiscovery(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if slices.Contains(parts, "..") {
		return false
	}
	switch parts[0] {
	case "api":
		return len(parts) <= 2
	case "apis":
		return len(parts) <= 3
	case "openapi":
		return len(parts) <= 6
	}
	return false
}

// readOne serves a get of a kind that is not stored.
func (s *Server) readOne(w http.ResponseWriter, r *http.Request, req request) error {
	return s.keep(w, r, req)
}

// keep passes on a read and keeps the answer for the time when the API server does not answer. Answers 403 and 404 are answers; all other
// errors are not.
func (s *Server) keep(w http.ResponseWriter, r *http.Request, req request) error {
	key := r.URL.Path + "?" + documentQuery(r) + "|" + strings.Join(r.Header.Values("Accept"), ",")
	if s.params.Backend.Online() {
		done, err := s.readThrough(w, r, key)
		if done || err != nil {
			s.count(req, "upstream")
			return err
		}
	}
	d, found := s.params.Documents.Load(key)
	if !found {
		return unavailable("edge-cache: the API server gives no answer to GET %s, and there is none from before", r.URL.Path)
	}
	s.count(req, "kept")
	w.Header().Set("Content-Type", d.ContentType)
	_, _ = w.Write(d.Body)
	return nil
}

// documentQuery returns the part of the query that names a document: the hashes of OpenAPI are of one version of it.
func documentQuery(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/openapi/") {
		return ""
	}
	return r.URL.Query().Encode()
}

// readThrough answers with what the API server says. It returns false if that says nothing.
func (s *Server) readThrough(w http.ResponseWriter, r *http.Request, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	response, err := s.params.Backend.Do(ctx, upstream.Request{Source: "read", Path: r.URL.Path, Query: r.URL.Query(), Header: forwarded(r.Header)})
	if err != nil {
		return false, nil // what was kept is the answer
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return s.keepAnswer(w, response, key)
	case http.StatusNotFound:
		s.params.Documents.Delete(key)
		relay(w, response)
		return true, nil
	case http.StatusForbidden:
		relay(w, response)
		return true, nil
	}
	return false, nil
}

func (s *Server) keepAnswer(w http.ResponseWriter, response *http.Response, key string) (bool, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return false, nil //nolint:nilerr // what was kept is the answer
	}
	if len(body) == maxAnswer {
		return false, errors.New("the answer of the API server is too large")
	}
	d := Document{ContentType: response.Header.Get("Content-Type"), Body: body}
	if len(body) <= maxDocument {
		s.params.Documents.Save(key, d)
	}
	w.Header().Set("Content-Type", d.ContentType)
	_, _ = w.Write(body)
	return true, nil
}
