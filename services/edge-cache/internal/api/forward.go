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
	// maxCachedBody is the largest answer that is cached. Larger ones are streamed.
	maxCachedBody = 2 << 20
	// maxAnswer is the largest answer that is passed on.
	maxAnswer = 16 << 20
	// maxBuffered is the number of requests whose bodies are in memory: 48 MiB. Others wait.
	maxBuffered = 16
)

// acquireBuffer waits until a body may be in memory.
func (s *Server) acquireBuffer(ctx context.Context) (release func(), err error) {
	select {
	case s.buffers <- struct{}{}:
		return func() { <-s.buffers }, nil
	case <-ctx.Done():
		return nil, unavailableError("edge-cache: too many other requests are waiting for the API server: nothing was sent to it")
	}
}

// forwardWrite passes on a write.
func (s *Server) forwardWrite(w http.ResponseWriter, r *http.Request, req request) error {
	if !s.params.Allow.Writes.AllowsRequest(req.group, req.withSubresource(), req.verb, s.namespaceScope(req)) {
		return s.notAllowedError(req)
	}
	if !s.params.Backend.IsOnline() {
		return unavailableError("edge-cache: nothing was written, because the API server has not answered the last probe")
	}
	ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
	defer cancel()
	release, err := s.acquireBuffer(ctx)
	if err != nil {
		return err
	}
	defer release()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return badRequestError("read body: %v", err)
	}
	if len(body) > maxBody {
		return statusError(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "the body is larger than 3 MiB")
	}
	response, err := s.params.Backend.Do(ctx, upstream.Request{
		Source: "write", Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: forwardedHeaders(r.Header),
		Body: bytes.NewReader(body),
	})
	if err != nil {
		return unavailableError("edge-cache: the API server did not answer, so it may have written or not: %v", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized { // to the controller it would say that its own token is wrong
		return unavailableError("edge-cache: nothing was written, because the API server does not accept the token of the cache: %v",
			upstream.ReadStatus(response))
	}
	s.countRequest(req, "upstream")
	relayResponse(w, response)
	return nil
}

// forwardedHeaders returns the headers that are passed on. Credentials and impersonation are not among them.
func forwardedHeaders(h http.Header) http.Header {
	out := http.Header{}
	copyHeaders(out, h, "Accept", "Content-Type", "User-Agent")
	return out
}

func copyHeaders(to, from http.Header, names ...string) {
	for _, name := range names {
		if values := from.Values(name); len(values) > 0 {
			to[name] = slices.Clone(values)
		}
	}
}

// relayResponse writes an answer of the API server.
func relayResponse(w http.ResponseWriter, response *http.Response) {
	copyHeaders(w.Header(), response.Header, "Content-Type", "Retry-After", "Warning")
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(response.Body, maxAnswer)) // the client may be gone
}

// serveNonResource serves discovery, the version and the health of the API server.
func (s *Server) serveNonResource(w http.ResponseWriter, r *http.Request) error {
	path := r.URL.Path
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
	case path == "/healthz" || path == "/readyz" || path == "/livez":
		_, _ = io.WriteString(w, "ok")
		return nil
	case path == "/version" || path == "/version/" || isDiscovery(path):
		return s.serveThroughCache(w, r, request{verb: "get", resource: "discovery"})
	}
	return forbiddenError("edge-cache: %s %s is not on the allow-list", r.Method, path)
}

// isDiscovery reports whether a path is of discovery or of the schema.
func isDiscovery(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if slices.Contains(parts, "..") {
		return false
	}
	longest := map[string]int{"api": 2, "apis": 3, "openapi": 6}
	return len(parts) <= longest[parts[0]]
}

// serveThroughCache passes on a read, and caches the answer for the time when the API server does not answer. 403 and 404 are answers about
// the request; all other errors are not, and the cached answer is served instead.
func (s *Server) serveThroughCache(w http.ResponseWriter, r *http.Request, req request) error {
	key := r.URL.Path + "?" + cacheKeyQuery(r) + "|" + strings.Join(r.Header.Values("Accept"), ",")
	cause := errors.New("it has not answered the last probe")
	if s.params.Backend.IsOnline() {
		if cause = s.readUpstream(w, r, key); cause == nil {
			s.countRequest(req, "upstream")
			return nil
		}
	}
	d, found := s.params.Responses.LoadResponse(key)
	if !found {
		return unavailableError("edge-cache: GET %s: no answer of the API server from before, and none now: %v", r.URL.Path, cause)
	}
	s.countRequest(req, "kept")
	w.Header().Set("Content-Type", d.ContentType)
	_, _ = w.Write(d.Body)
	return nil
}

// cacheKeyQuery returns the part of the query that names a document: the hashes of OpenAPI are of one version of it.
func cacheKeyQuery(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/openapi/") {
		return ""
	}
	return r.URL.Query().Encode()
}

// readUpstream answers with what the API server says. An error means that it says nothing about the request; nothing was written then.
func (s *Server) readUpstream(w http.ResponseWriter, r *http.Request, key string) error {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	release, err := s.acquireBuffer(ctx)
	if err != nil {
		return err
	}
	defer release()
	response, err := s.params.Backend.Do(ctx, upstream.Request{
		Source: "read", Path: r.URL.Path, Query: r.URL.Query(), Header: forwardedHeaders(r.Header),
	})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return s.cacheResponse(w, response, key)
	case http.StatusNotFound:
		s.params.Responses.DeleteResponse(key)
		relayResponse(w, response)
		return nil
	case http.StatusForbidden:
		relayResponse(w, response)
		return nil
	}
	return upstream.ReadStatus(response)
}

// cacheResponse passes on an answer, and caches it unless it is too large.
func (s *Server) cacheResponse(w http.ResponseWriter, response *http.Response, key string) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxCachedBody+1))
	if err != nil {
		return err
	}
	d := CachedResponse{ContentType: response.Header.Get("Content-Type"), Body: body}
	w.Header().Set("Content-Type", d.ContentType)
	if len(body) <= maxCachedBody {
		s.params.Responses.SaveResponse(key, d)
		_, _ = w.Write(body)
		return nil
	}
	answer := io.MultiReader(bytes.NewReader(body), response.Body)
	if n, err := io.Copy(w, io.LimitReader(answer, maxAnswer)); err != nil || n == maxAnswer {
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}
