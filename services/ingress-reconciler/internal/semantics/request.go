package semantics

import (
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
	// ErrNoBackend means that the rule that matches has no backend: the data plane answers 500.
	ErrNoBackend = errors.New("no backend")
	// ErrRejected means that the data plane answers 400, because of the path that its rewrite has produced.
	ErrRejected = errors.New("rejected")
	// ErrNotModeled means that the data plane, an object that concerns the request, or the request uses something that this
	// package does not model.
	ErrNotModeled = errors.New("not modeled")
	// ErrAmbiguous means that neither a specification nor the data planes' source decides between two rules.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrInvalid means that an object or the request is not valid.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound means that an object that is referred to does not exist.
	ErrNotFound = errors.New("not found")
)

// Entrance is where a request enters the cluster. Exactly one of Gateway, IngressClass and IstioGateway is set.
type Entrance struct {
	Gateway      types.NamespacedName // a Gateway of the Gateway API
	Port         int32                // of a listener of the Gateway; 0: any port, if all give the same answer
	IngressClass string               // the controller of that class
	IstioGateway string               // "namespace/name"
}

// String returns the entrance as messages name it.
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

// Request is what a client sends.
type Request struct {
	Entrance Entrance
	Host     string            // with or without a port, in any case
	Path     string            // absolute, without escapes; a query may follow
	Method   string            // empty: GET
	Header   map[string]string // names in any case
}

// Kind is the kind of a backend.
type Kind string

// The kinds of backends.
const (
	KindService       Kind = "Service"
	KindInferencePool Kind = "InferencePool"
	KindHost          Kind = "Host" // a host name that is not that of a Service; it has no namespace
)

// Backend is the destination of a request.
type Backend struct {
	Kind            Kind
	Namespace, Name string
	Port            int32 // 0 for an InferencePool, which has its own
}

// String returns the backend as messages name it.
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

// Answer is what happens to a request.
type Answer struct {
	Backend Backend
	Path    string            // that the backend sees, with the query
	Host    string            // that the backend sees
	Header  map[string]string // that the backend sees, with canonical names: of the request, with the changes of the route
	Timeout *time.Duration    // of the whole request; nil: the route says nothing, 0: none
}

// request is a Request in the form that rules are compared with.
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

// parseRequest checks a request. Data planes disagree about paths that can be written in several ways, so these are refused.
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
		return nil, fmt.Errorf("path %q is not absolute, or can be written in another way: %w", r.Path, ErrNotModeled)
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
			return nil, fmt.Errorf("header %s is there twice: %w", name, ErrInvalid)
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

// canonical returns the one form of a header's name.
func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

// answer is an Answer in progress.
type answer struct {
	backend    Backend
	path, host string
	header     map[string]string
	timeout    *time.Duration
}

// answer returns an answer that changes nothing of the request.
func (r *request) answer() *answer {
	return &answer{path: r.path, host: r.authority, header: maps.Clone(r.header)}
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

// add appends to a header as a list, which two lines with one name are equal to.
func (a *answer) add(name, value string) {
	if before, found := a.header[canonical(name)]; found {
		value = before + "," + value
	}
	a.header[canonical(name)] = value
}
