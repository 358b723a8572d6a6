// Package api serves the Kubernetes API to the one client beside the cache.
//
// It serves lists, gets and watches of the kinds on the allow-list from the stores, online and offline, by the rules of the API server:
// resource versions, selectors, encodings, bookmarks, time limits. It passes on the writes on the allow-list while the API server answers,
// and refuses them otherwise: a write is never lost in silence. Discovery and single reads outside the stores are passed on and kept.
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

// Served is a store and what it covers.
type Served struct {
	Resource  allowlist.Resource
	Namespace string // empty: all
	Store     *store.Store
	// Confirm returns nil when the store is as new as the API server, for lists of the newest state.
	Confirm func(ctx context.Context) error
	// Problem returns why the store has no objects yet, nil if nothing is known.
	Problem func() error
}

// backend is the API server.
type backend interface {
	Online() bool
	Do(ctx context.Context, r upstream.Request) (*http.Response, error)
}

// Document is a kept answer.
type Document struct {
	ContentType string
	Body        []byte
}

// documents keeps answers.
type documents interface {
	Load(key string) (Document, bool)
	Save(key string, d Document)
	Delete(key string)
}

// Observer counts.
type Observer interface {
	Served(verb, resource, source string)
	Unconfirmed(resource string)
	Watching(delta int)
	WatchEnded(reason string)
}

// Params are the arguments of New.
type Params struct {
	Served    []Served
	Allow     allowlist.List
	Namespace string // of the controller
	Token     string
	Backend   backend
	Documents documents
	Observer  Observer
	Log       *zap.Logger
	Limits    Limits
	// Ready returns an error while the pool is not known. Filtered kinds are not served then.
	Ready func() error
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
	stores   map[string][]Served
	token    [sha256.Size]byte
	watches  chan struct{}
	requests chan struct{}
	buffers  chan struct{}
	pages    pages
}

// New returns a handler.
func New(p Params) *Server {
	s := &Server{
		params: p, stores: map[string][]Served{}, token: sha256.Sum256([]byte(p.Token)),
		watches: make(chan struct{}, p.Limits.Watches), requests: make(chan struct{}, p.Limits.Requests), buffers: make(chan struct{}, maxBuffered),
	}
	for _, served := range p.Served {
		path := served.Resource.Path()
		s.stores[path] = append(s.stores[path], served)
	}
	return s
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.authenticated(r) {
		writeError(w, r, statusError(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"))
		return
	}
	req := parseRequest(r.Method, r.URL.Path, watchParameter(isTrue(r.URL.Query(), "watch")))
	slots := s.requests
	if req.verb == "watch" {
		slots = s.watches
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		writeError(w, r, tooMany("edge-cache: at most %d such requests may be open at the same time", cap(slots)))
		return
	}
	if err := s.serve(w, r, req); err != nil {
		writeError(w, r, err)
	}
}

// explain says why a store has no objects.
func (served Served) explain(err error) error {
	if !errors.Is(err, store.ErrNotSynced) {
		return err
	}
	if served.Problem != nil {
		if problem := served.Problem(); problem != nil {
			return unavailable("edge-cache: %s were not listed yet, and none are on disk; the last attempt: %v", served.Resource.Name, problem)
		}
	}
	return unavailable("edge-cache: %s were not listed yet, and none are on disk", served.Resource.Name)
}

// authenticated compares hashes, so that the time says nothing about the token.
func (s *Server) authenticated(r *http.Request) bool {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got := sha256.Sum256([]byte(token))
	return found && subtle.ConstantTimeCompare(got[:], s.token[:]) == 1
}

// serve answers, or returns the error to answer with.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, req request) error {
	if !req.isResource {
		return s.serveDocument(w, r)
	}
	read := req.verb == "get" || req.verb == "list" || req.verb == "watch"
	switch {
	case !read:
		return s.forward(w, r, req)
	case req.sub == "" && s.stores[req.gvr()] != nil:
		return s.read(w, r, req)
	case req.verb == "get" && s.params.Allow.CanRead(req.group, req.withSub(), req.verb, s.scope(req)):
		return s.readOne(w, r, req)
	}
	return s.notAllowed(req)
}

func (s *Server) notAllowed(req request) error {
	return forbidden("edge-cache: %s of %s in namespace %q is not on the allow-list of the profile: add it with --resources, or use another profile",
		req.verb, strings.TrimPrefix(req.group+"/"+req.withSub(), "/"), req.namespace)
}

func (s *Server) scope(req request) allowlist.Scope {
	if req.namespace != "" && req.namespace == s.params.Namespace {
		return allowlist.OwnNamespace
	}
	return allowlist.OtherNamespace
}

// read serves a read of a kind that is stored.
func (s *Server) read(w http.ResponseWriter, r *http.Request, req request) error {
	served, err := s.find(req)
	if err != nil {
		return err
	}
	return served.explain(s.readFrom(w, r, req, served))
}

func (s *Server) readFrom(w http.ResponseWriter, r *http.Request, req request, served Served) error {
	if served.Resource.Filter != allowlist.None && s.params.Ready != nil {
		if err := s.params.Ready(); err != nil {
			return unavailable("edge-cache: %v", err)
		}
	}
	e, err := negotiate(r.Header, served.Store.Format())
	if err != nil {
		return err
	}
	if req.verb == "get" {
		return s.get(w, req, served, e)
	}
	options, err := parseOptions(r.URL.Query())
	if err != nil {
		return err
	}
	selector, err := newSelector(req, served, options)
	if err != nil {
		return err
	}
	if options.watch {
		return s.watch(w, r, watchParams{request: req, served: served, encoding: e, options: options, selector: selector})
	}
	return s.list(w, r, listParams{request: req, served: served, encoding: e, options: options, selector: selector})
}

// find returns the store that covers a request. A kind with a single store covers requests for all namespaces: the client sees what it may.
func (s *Server) find(req request) (Served, error) {
	candidates := s.stores[req.gvr()]
	for _, served := range candidates {
		if served.Namespace == "" || served.Namespace == req.namespace {
			return served, nil
		}
	}
	if req.namespace == "" && len(candidates) == 1 {
		return candidates[0], nil
	}
	return Served{}, s.notCovered(req, candidates)
}

// notCovered says how to get at objects of namespaces that no store covers.
func (s *Server) notCovered(req request, candidates []Served) error {
	switch {
	case req.namespace == "":
		namespaces := make([]string, 0, len(candidates))
		for _, served := range candidates {
			namespaces = append(namespaces, served.Namespace)
		}
		return forbidden("edge-cache: %s of all namespaces are not cached, only those of %s: %s", req.resource, strings.Join(namespaces, ", "), s.params.Allow.NamespaceSetting)
	case candidates[0].Resource.Own:
		return forbidden("edge-cache: %s in namespace %q are not cached, only those in the controller's own namespace %s: add %s with --resources",
			req.resource, req.namespace, s.params.Namespace, req.gvr())
	}
	return forbidden("edge-cache: %s in namespace %q are not cached: add the namespace with --namespaces", req.resource, req.namespace)
}

// get serves one object.
func (s *Server) get(w http.ResponseWriter, req request, served Served, e encoding) error {
	object, err := served.Store.FindObject(req.key())
	if err != nil {
		return err
	}
	if object == nil {
		return notFound(req)
	}
	enc := newEncoder(served.Store, e)
	body, err := enc.object(object.Data)
	if err != nil {
		return err
	}
	s.count(req, "store")
	w.Header().Set("Content-Type", enc.contentType())
	w.Header().Set("Cache-Control", "no-cache, private")
	_, _ = w.Write(body) //nolint:gosec // an encoded object, with its content type
	return nil
}

func (s *Server) count(req request, source string) {
	if s.params.Observer != nil {
		s.params.Observer.Served(req.verb, req.resource, source)
	}
}
