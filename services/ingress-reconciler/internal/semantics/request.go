package semantics

import (
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var (
	// ErrNoRoute means that the data plane has nothing for the request, and answers 404 by itself.
	ErrNoRoute = errors.New("no route")
	// ErrNoBackend means that a route takes the request and has nowhere to send it: the data plane answers 500.
	ErrNoBackend = errors.New("no backend")
	// ErrRedirected means that the data plane sends the client to another path by itself.
	ErrRedirected = errors.New("redirected")
	// ErrRejected means that the data plane answers 400, because of what its own rewrite has made of the path.
	ErrRejected = errors.New("rejected")
	// ErrUnsupported means that an object that decides about the request, or the request, says what is not modelled here.
	ErrUnsupported = errors.New("unsupported")
	// ErrAmbiguous means that objects contradict each other, and no specification says which of them holds.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrInvalid means that an object, or the request, is not what its API allows.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound means that what an object or an entrance names is not there.
	ErrNotFound = errors.New("not found")
)

// Entrance is where a request comes into the cluster. Exactly one of its three kinds is set.
type Entrance struct {
	Gateway      types.NamespacedName // a Gateway of the Gateway API
	Port         int32                // of a listener of that Gateway; 0: any, if they agree
	IngressClass string               // the controller of that class
	IstioGateway string               // "namespace/name"
}

// Request is what a client sends.
type Request struct {
	Entrance Entrance
	Host     string            // with a port or without, in any case
	Path     string            // absolute, without escapes; a query may follow
	Method   string            // empty: GET
	Header   map[string]string // names in any case
}

// Kind is what a backend is.
type Kind string

// The kinds of backends.
const (
	KindService       Kind = "Service"
	KindInferencePool Kind = "InferencePool"
	KindHost          Kind = "Host" // a host name that is not a Service's; it has no namespace
)

// Backend is where a request goes.
type Backend struct {
	Kind            Kind
	Namespace, Name string
	Port            int32 // 0 if an InferencePool says it
}

// Answer is what becomes of a request.
type Answer struct {
	Backend Backend
	Path    string            // as the backend sees it, with the query
	Host    string            // as the backend sees it
	Header  map[string]string // as the backend sees it, in canonical form: that of the request, and what the route changes
	Timeout *time.Duration    // of the whole request; nil: nothing is said, 0: there is none
}

// request is a Request that has been checked, in the form that rules are compared with.
type request struct {
	entrance  Entrance
	host      string // in lower case, without the port
	authority string // as it was sent
	path      string
	query     url.Values
	rawQuery  string
	method    string
	header    map[string]string
}

// parseRequest checks a request. Data planes disagree about paths that can be written in another way, so these are refused.
func parseRequest(r *Request) (*request, error) {
	host, err := parseHost(r.Host)
	if err != nil {
		return nil, err
	}
	bare, rawQuery, _ := strings.Cut(r.Path, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, fmt.Errorf("query of path %q: %w", r.Path, ErrInvalid)
	}
	if !plain(bare) {
		return nil, fmt.Errorf("path %q: it is not absolute and normal: %w", r.Path, ErrUnsupported)
	}
	p := &request{
		entrance: r.Entrance, host: host, authority: r.Host, path: bare, query: query, rawQuery: rawQuery,
		method: r.Method, header: make(map[string]string, len(r.Header)),
	}
	if p.method == "" {
		p.method = "GET"
	}
	for name, value := range r.Header {
		name = canonical(name)
		if _, twice := p.header[name]; twice || name == "Host" {
			return nil, fmt.Errorf("header %s: it is there twice: %w", name, ErrInvalid)
		}
		p.header[name] = value
	}
	return p, nil
}

// plain reports whether all data planes take a path as it is: it is absolute, its elements are neither empty nor dots, and
// nothing in it is or needs to be escaped.
func plain(p string) bool {
	if !strings.HasPrefix(p, "/") {
		return false
	}
	if clean := path.Clean(p); p != clean && p != clean+"/" || p == "//" {
		return false
	}
	return !strings.ContainsFunc(p, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("%?#\\\"<>^`{|}", r)
	})
}

// canonical is the one form of a header's name.
func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

// answer begins an answer that changes nothing of the request.
func (r *request) answer() *answer {
	a := &answer{path: r.path, host: r.authority, header: make(map[string]string, len(r.header))}
	for name, value := range r.header {
		a.header[name] = value
	}
	return a
}

// answer is an Answer in the making.
type answer struct {
	backend    Backend
	path, host string
	header     map[string]string
	timeout    *time.Duration
}

func (a *answer) finish(r *request) Answer {
	p := a.path
	if r.rawQuery != "" {
		p += "?" + r.rawQuery
	}
	return Answer{Backend: a.backend, Path: p, Host: a.host, Header: a.header, Timeout: a.timeout}
}

func (a *answer) set(name, value string) { a.header[canonical(name)] = value }

func (a *answer) remove(name string) { delete(a.header, canonical(name)) }

// add appends to a header as a list, which is what two lines of one name mean.
func (a *answer) add(name, value string) {
	if was, found := a.header[canonical(name)]; found {
		value = was + "," + value
	}
	a.header[canonical(name)] = value
}
