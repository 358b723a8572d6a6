// Package api serves the Kubernetes API to the one client beside the cache.
//
// It serves lists, gets and watches of the kinds on the allow-list from the stores, online and offline, by the rules of the API server:
// resource versions, selectors, encodings, bookmarks, time limits. It passes on the writes on the allow-list while the API server answers,
// and refuses them otherwise: a write is never lost in silence. Discovery and single reads outside the stores are passed on and cached.
// Everything else is forbidden.
package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/upstream"
)

// ServedStore is a store and what it covers.
type ServedStore struct {
	Resource  allowlist.Resource
	Namespace string // empty: all
	Store     *store.Store
	// Confirm returns nil when the store is as new as the API server, for lists of the newest state.
	Confirm func(ctx context.Context) error
	// LastError returns why the store has no objects yet, nil if nothing is known.
	LastError func() error
}

// backend is the API server.
type backend interface {
	IsOnline() bool
	Do(ctx context.Context, r upstream.Request) (*http.Response, error)
}

// CachedResponse is an answer of the API server to a read outside the stores.
type CachedResponse struct {
	ContentType string
	Body        []byte
}

// responseCache has answers of the API server by request.
type responseCache interface {
	LoadResponse(key string) (CachedResponse, bool)
	SaveResponse(key string, d CachedResponse)
	DeleteResponse(key string)
}

// Observer counts.
type Observer interface {
	CountRequest(verb, resource, source string)
	CountUnconfirmedRead(resource string)
	AddWatches(delta int)
	CountWatchEnd(reason string)
}

// Params are the arguments of New.
type Params struct {
	Stores    []ServedStore
	Allow     allowlist.List
	Namespace string // of the controller
	Token     string
	Backend   backend
	Responses responseCache
	Observer  Observer
	Log       *zap.Logger
	Limits    Limits
	// CheckReady returns an error while the pool is not known. Filtered kinds are not served then.
	CheckReady func() error
}

// Limits bound what a client can make the cache do.
type Limits struct {
	Watches  int // open at the same time
	Requests int // others at the same time
	// WriteTimeout is the longest time that a client may take to accept one event. It is cut off then.
	WriteTimeout time.Duration
	// BookmarkInterval is the time between bookmarks of a watch.
	BookmarkInterval time.Duration
}

// DefaultLimits returns limits that no ingress controller reaches: it has one watch per kind and namespace.
func DefaultLimits() Limits {
	return Limits{Watches: 256, Requests: 64, WriteTimeout: 30 * time.Second, BookmarkInterval: 50 * time.Second}
}

// maxBody limits the body of a write, as the API server does.
const maxBody = 3 << 20

// Server is the handler of the API.
type Server struct {
	params   Params
	stores   map[string][]ServedStore
	token    [sha256.Size]byte
	watches  chan struct{}
	requests chan struct{}
	buffers  chan struct{}
}

// New returns a handler.
func New(p Params) *Server {
	s := &Server{
		params: p, stores: map[string][]ServedStore{}, token: sha256.Sum256([]byte(p.Token)),
		watches: make(chan struct{}, p.Limits.Watches), requests: make(chan struct{}, p.Limits.Requests),
		buffers: make(chan struct{}, maxBuffered),
	}
	for _, served := range p.Stores {
		path := served.Resource.Path()
		s.stores[path] = append(s.stores[path], served)
	}
	return s
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.isAuthenticated(r) {
		writeError(w, r, statusError(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"))
		return
	}
	req := parseRequest(r.Method, r.URL.Path, isTrue(r.URL.Query(), "watch"))
	slots := s.requests
	if req.verb == "watch" {
		slots = s.watches
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		writeError(w, r, tooManyError("edge-cache: at most %d such requests may be open at the same time", cap(slots)))
		return
	}
	if err := s.serveRequest(w, r, req); err != nil {
		writeError(w, r, err)
	}
}

// explainError says why a store has no objects.
func (served ServedStore) explainError(err error) error {
	if !errors.Is(err, store.ErrNotSynced) {
		return err
	}
	if served.LastError != nil {
		if problem := served.LastError(); problem != nil {
			return unavailableError("edge-cache: %s were not listed yet, and none are on disk; the last attempt: %v", served.Resource.Name,
				problem)
		}
	}
	return unavailableError("edge-cache: %s were not listed yet, and none are on disk", served.Resource.Name)
}

// isAuthenticated compares hashes, so that the time says nothing about the token.
func (s *Server) isAuthenticated(r *http.Request) bool {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got := sha256.Sum256([]byte(token))
	return found && subtle.ConstantTimeCompare(got[:], s.token[:]) == 1
}

// serveRequest answers, or returns the error to answer with.
func (s *Server) serveRequest(w http.ResponseWriter, r *http.Request, req request) error {
	if !req.isResource {
		return s.serveNonResource(w, r)
	}
	read := req.verb == "get" || req.verb == "list" || req.verb == "watch"
	switch {
	case !read:
		return s.forwardWrite(w, r, req)
	case req.subresource == "" && s.stores[req.resourcePath()] != nil:
		return s.serveStored(w, r, req)
	case req.verb == "get" && s.params.Allow.Reads.AllowsRequest(req.group, req.withSubresource(), req.verb, s.namespaceScope(req)):
		return s.serveThroughCache(w, r, req)
	}
	return s.notAllowedError(req)
}

func (s *Server) notAllowedError(req request) error {
	return forbiddenError("edge-cache: %s of %s in namespace %q is not on the allow-list of the profile: add it with --resources, or "+
		"use another profile",
		req.verb, strings.TrimPrefix(req.group+"/"+req.withSubresource(), "/"), req.namespace)
}

func (s *Server) namespaceScope(req request) allowlist.Scope {
	if req.namespace != "" && req.namespace == s.params.Namespace {
		return allowlist.OwnNamespace
	}
	return allowlist.OtherNamespace
}

// serveStored serves a read of a kind that is stored.
func (s *Server) serveStored(w http.ResponseWriter, r *http.Request, req request) error {
	served, err := s.findStore(req)
	if err != nil {
		return err
	}
	return served.explainError(s.serveFromStore(w, r, req, served))
}

func (s *Server) serveFromStore(w http.ResponseWriter, r *http.Request, req request, served ServedStore) error {
	if served.Resource.Filter != allowlist.None && s.params.CheckReady != nil {
		if err := s.params.CheckReady(); err != nil {
			return unavailableError("edge-cache: %v", err)
		}
	}
	e, err := negotiateEncoding(r.Header, served.Store.Format())
	if err != nil {
		return err
	}
	if req.verb == "get" {
		return s.serveGet(w, req, served, e)
	}
	options, err := parseOptions(r.URL.Query())
	if err != nil {
		return err
	}
	selector, err := newSelector(req, served, options)
	if err != nil {
		return err
	}
	read := storedRead{request: req, served: served, encoding: e, options: options, selector: selector}
	if options.Watch {
		return s.serveWatch(w, r, read)
	}
	return s.serveList(w, r, read)
}

// findStore returns the store that covers a request. A kind with a single store covers requests for all namespaces: the client sees what it
// may.
func (s *Server) findStore(req request) (ServedStore, error) {
	candidates := s.stores[req.resourcePath()]
	for _, served := range candidates {
		if served.Namespace == "" || served.Namespace == req.namespace {
			return served, nil
		}
	}
	if req.namespace == "" && len(candidates) == 1 {
		return candidates[0], nil
	}
	return ServedStore{}, s.notCoveredError(req, candidates)
}

// notCoveredError says how to get at objects of namespaces that no store covers.
func (s *Server) notCoveredError(req request, candidates []ServedStore) error {
	switch {
	case req.namespace == "":
		namespaces := make([]string, 0, len(candidates))
		for _, served := range candidates {
			namespaces = append(namespaces, served.Namespace)
		}
		return forbiddenError("edge-cache: %s of all namespaces are not cached, only those of %s: %s",
			req.resource, strings.Join(namespaces, ", "), s.params.Allow.NamespaceSetting)
	case candidates[0].Resource.Own:
		return forbiddenError("edge-cache: %s in namespace %q are not cached, only those in the controller's own namespace %s: add %s "+
			"with --resources",
			req.resource, req.namespace, s.params.Namespace, req.resourcePath())
	}
	return forbiddenError("edge-cache: %s in namespace %q are not cached: add the namespace with --namespaces", req.resource, req.namespace)
}

// serveGet serves one object.
func (s *Server) serveGet(w http.ResponseWriter, req request, served ServedStore, e encoding) error {
	object, err := served.Store.FindObject(req.objectKey())
	if err != nil {
		return err
	}
	if object == nil {
		return notFoundError(req)
	}
	enc := newEncoder(served.Store, e)
	body, err := enc.encodeObject(object.Data)
	if err != nil {
		return err
	}
	s.countRequest(req, "store")
	setContentType(w, enc.contentType())
	_, _ = w.Write(body) //nolint:gosec // an encoded object, with its content type
	return nil
}

// setContentType sets the headers of an answer that a client must not cache.
func setContentType(w http.ResponseWriter, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache, private")
}

func (s *Server) countRequest(req request, source string) {
	s.params.Observer.CountRequest(req.verb, req.resource, source)
}
