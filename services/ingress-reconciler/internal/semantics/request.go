package semantics

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var (
	// ErrNoRoute means that no rule matches: the data plane answers 404.
	ErrNoRoute = errors.New("no route")
	// ErrNoBackend means that the matching rule has no backend: the data plane answers 500.
	ErrNoBackend = errors.New("no backend")
	// ErrRejected means that the data plane answers 400 because of the rewritten path.
	ErrRejected = errors.New("rejected")
	// ErrNotModeled means that this package does not model the data plane, a feature of an object that could match the request, or
	// a feature of the request.
	ErrNotModeled = errors.New("not modeled")
	// ErrAmbiguous means that specifications and data planes do not agree on one answer.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrInvalid means that an object or the request is not valid.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound means that a referenced object does not exist.
	ErrNotFound = errors.New("not found")
)

// Entrance is the point where a request enters the cluster. Exactly one of Gateway, IngressClass and IstioGateway is set.
type Entrance struct {
	Gateway      types.NamespacedName // a Gateway of the Gateway API
	Port         int32                // port of the Gateway; 0: any port, if all ports give the same answer
	IngressClass string               // the controller of this class
	IstioGateway string               // "namespace/name"
}

// String returns the name of the entrance for messages.
func (e Entrance) String() string {
	switch {
	case e.IngressClass != "":
		return "IngressClass " + e.IngressClass
	case e.IstioGateway != "":
		return "Istio Gateway " + e.IstioGateway
	case e.Port != 0:
		return fmt.Sprintf("Gateway %s port %d", e.Gateway, e.Port)
	}
	return "Gateway " + e.Gateway.String()
}

// Request is an HTTP request of a client.
type Request struct {
	Entrance Entrance
	Host     string            // with or without a port, in any case
	Path     string            // an absolute path without escapes, and optionally a query
	Method   string            // empty: GET
	Header   map[string]string // names in any case
}

// Kind is the kind of a backend.
type Kind string

// The kinds of backends.
const (
	KindService       Kind = "Service"
	KindInferencePool Kind = "InferencePool"
	KindHost          Kind = "Host" // a host name that is not the name of a Service; the namespace is empty
)

// Backend is the destination of a request.
type Backend struct {
	Kind            Kind
	Namespace, Name string
	Port            int32 // 0 for an InferencePool, which defines its own port
}

// String returns the name of the backend for messages.
func (b Backend) String() string {
	name := b.Name
	if b.Namespace != "" {
		name = b.Namespace + "/" + name
	}
	if b.Port != 0 {
		name = fmt.Sprintf("%s:%d", name, b.Port)
	}
	return string(b.Kind) + " " + name
}

// Answer is the backend of a request, and the request as the backend receives it.
type Answer struct {
	Backend Backend
	Path    string            // with the query
	Host    string            // value of header Host
	Header  map[string]string // headers of the request, with the changes of the route; the names are canonical
	Timeout *time.Duration    // of the whole request; nil: the route sets no timeout, 0: the route disables the timeout
}

// request is a parsed Request.
type request struct {
	entrance  Entrance
	host      string // in lower case, without the port
	authority string // Request.Host
	path      string
	query     url.Values
	rawQuery  string
	method    string
	header    map[string]string
}

// parseRequest parses a request. It rejects paths with several spellings, because data planes normalize them differently.
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
	if !isPlainPath(bare) {
		return nil, fmt.Errorf("path %q is not absolute, or can be written in another way: %w", r.Path, ErrNotModeled)
	}
	p := &request{
		entrance: r.Entrance, host: host, authority: r.Host, path: bare, query: query, rawQuery: rawQuery,
		method: cmp.Or(r.Method, "GET"), header: make(map[string]string, len(r.Header)),
	}
	for name, value := range r.Header {
		name = canonicalHeader(name)
		if _, twice := p.header[name]; twice || name == "Host" {
			return nil, fmt.Errorf("duplicate header %s: %w", name, ErrInvalid)
		}
		p.header[name] = value
	}
	return p, nil
}

// isPlainPath reports whether all data planes use a path unchanged: the path is absolute, no element is empty, "." or "..", and no
// character is escaped or needs an escape.
func isPlainPath(p string) bool {
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

// canonicalHeader returns the canonical form of a header name.
func canonicalHeader(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

// newAnswer returns an answer with the unchanged request, without its query.
func (r *request) newAnswer() *Answer {
	return &Answer{Path: r.path, Host: r.authority, Header: maps.Clone(r.header)}
}

// addHeader appends a value to a header. A list in one header is equivalent to several headers with the same name.
func (a *Answer) addHeader(name, value string) {
	if before, found := a.Header[canonicalHeader(name)]; found {
		value = before + "," + value
	}
	a.Header[canonicalHeader(name)] = value
}
