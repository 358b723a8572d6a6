package semantics

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
)

// fitsRequest reports whether the match applies to the request.
func (m *gatewayMatch) fitsRequest() (bool, error) {
	if err := onlyFields(m.Match, "Path", "Headers", "QueryParams", "Method"); err != nil {
		return false, err
	}
	path, err := m.fitsPath(m.request.path)
	if err != nil {
		return false, err
	}
	headers, err := fitsHeaders(m.Match.Headers, m.request)
	if err != nil {
		return false, err
	}
	query, err := fitsQuery(m.Match.QueryParams, m.request)
	if err != nil {
		return false, err
	}
	return path && headers && query && (m.Match.Method == nil || string(*m.Match.Method) == m.request.method), nil
}

func (m *gatewayMatch) fitsPath(path string) (bool, error) {
	kind, want := gatewayapi.PathOf(m.Match)
	switch kind {
	case gatewayv1.PathMatchExact:
		return path == want, nil
	case gatewayv1.PathMatchPathPrefix:
		return gatewayapi.HasPathPrefix(path, want), nil
	case gatewayv1.PathMatchRegularExpression:
		return matchesWhole(want, path)
	}
	return false, fmt.Errorf("path match of type %q: %w", kind, ErrNotModeled)
}

// fitsHeaders reports whether a request has all headers of a match. If a match lists a name twice, only the first entry counts.
func fitsHeaders(want []gatewayv1.HTTPHeaderMatch, r *request) (bool, error) {
	seen := map[string]bool{}
	fits := true
	for _, h := range want {
		name := canonicalHeader(string(h.Name))
		if seen[name] {
			continue
		}
		seen[name] = true
		if name == "Host" {
			return false, fmt.Errorf("header %s: %w", name, ErrNotModeled)
		}
		got, found := r.header[name]
		ok, err := fitsValue(string(ptr.Deref(h.Type, gatewayv1.HeaderMatchExact)), h.Value, got)
		if err != nil {
			return false, fmt.Errorf("header %s: %w", name, err)
		}
		fits = fits && found && ok
	}
	return fits, nil
}

// fitsQuery reports whether a request has all query parameters of a match. For a parameter with several values it returns ErrAmbiguous,
// because the specification does not define which value counts.
func fitsQuery(want []gatewayv1.HTTPQueryParamMatch, r *request) (bool, error) {
	seen := map[gatewayv1.HTTPHeaderName]bool{}
	fits := true
	for _, q := range want {
		if seen[q.Name] {
			continue
		}
		seen[q.Name] = true
		got := r.query[string(q.Name)]
		if len(got) > 1 {
			return false, fmt.Errorf("query parameter %s has %d values: %w", q.Name, len(got), ErrAmbiguous)
		}
		ok, err := fitsValue(string(ptr.Deref(q.Type, gatewayv1.QueryParamMatchExact)), q.Value, strings.Join(got, ""))
		if err != nil {
			return false, fmt.Errorf("query parameter %s: %w", q.Name, err)
		}
		fits = fits && len(got) == 1 && ok
	}
	return fits, nil
}

func fitsValue(kind, want, got string) (bool, error) {
	switch kind {
	case string(gatewayv1.HeaderMatchExact):
		return want == got, nil
	case string(gatewayv1.HeaderMatchRegularExpression):
		return matchesWhole(want, got)
	}
	return false, fmt.Errorf("match of type %q: %w", kind, ErrNotModeled)
}

// resolveAnswer applies the filters of the rule, and returns its backend.
func (m *gatewayMatch) resolveAnswer() (*Answer, error) {
	if err := onlyFields(m.spec, "Name", "Matches", "Filters", "BackendRefs", "Timeouts"); err != nil {
		return nil, err
	}
	a := m.request.newAnswer()
	seen := map[gatewayv1.HTTPRouteFilterType]bool{}
	for i := range m.spec.Filters {
		f := &m.spec.Filters[i]
		if seen[f.Type] {
			return nil, fmt.Errorf("duplicate filter %s: %w", f.Type, ErrInvalid)
		}
		seen[f.Type] = true
		if err := m.applyFilter(f, a); err != nil {
			return nil, fmt.Errorf("filter %s: %w", f.Type, err)
		}
	}
	var err error
	if a.Timeout, err = requestTimeout(m.spec.Timeouts); err != nil {
		return nil, err
	}
	a.Backend, err = m.singleBackend()
	return a, err
}

func (m *gatewayMatch) applyFilter(f *gatewayv1.HTTPRouteFilter, a *Answer) error {
	switch f.Type {
	case gatewayv1.HTTPRouteFilterRequestHeaderModifier:
		if err := onlyFields(f, "Type", "RequestHeaderModifier"); err != nil {
			return err
		}
		return modifyHeaders(f.RequestHeaderModifier, a)
	case gatewayv1.HTTPRouteFilterURLRewrite:
		if err := onlyFields(f, "Type", "URLRewrite"); err != nil {
			return err
		}
		return m.rewriteURL(f.URLRewrite, a)
	default:
		return ErrNotModeled
	}
}

func modifyHeaders(f *gatewayv1.HTTPHeaderFilter, a *Answer) error {
	if f == nil {
		return ErrInvalid
	}
	for _, h := range append(append([]gatewayv1.HTTPHeader{}, f.Set...), f.Add...) {
		if canonicalHeader(string(h.Name)) == "Host" {
			return fmt.Errorf("header Host: %w", ErrNotModeled)
		}
	}
	for _, h := range f.Set {
		a.Header[canonicalHeader(string(h.Name))] = h.Value
	}
	for _, h := range f.Add {
		a.addHeader(string(h.Name), h.Value)
	}
	for _, name := range f.Remove {
		delete(a.Header, canonicalHeader(name))
	}
	return nil
}

func (m *gatewayMatch) rewriteURL(f *gatewayv1.HTTPURLRewriteFilter, a *Answer) error {
	if f == nil {
		return ErrInvalid
	}
	if f.Hostname != nil {
		a.Host = string(*f.Hostname)
	}
	switch {
	case f.Path == nil:
		return nil
	case f.Path.Type == gatewayv1.FullPathHTTPPathModifier && f.Path.ReplaceFullPath != nil && f.Path.ReplacePrefixMatch == nil:
		a.Path = *f.Path.ReplaceFullPath
		return nil
	case f.Path.Type == gatewayv1.PrefixMatchHTTPPathModifier && f.Path.ReplacePrefixMatch != nil && f.Path.ReplaceFullPath == nil:
		kind, prefix := gatewayapi.PathOf(m.Match)
		if kind != gatewayv1.PathMatchPathPrefix || len(m.spec.Matches) > 1 {
			return fmt.Errorf("a prefix is replaced in a rule that does not have exactly one prefix match: %w", ErrInvalid)
		}
		a.Path = replacePrefix(a.Path, prefix, *f.Path.ReplacePrefixMatch)
		return nil
	}
	return fmt.Errorf("path rewrite of type %q: %w", f.Path.Type, ErrInvalid)
}

// replacePrefix replaces the elements of a prefix. It ignores trailing slashes of prefix and replacement. The rest of the path keeps its
// slashes, and the result is at least "/".
func replacePrefix(path, prefix, replacement string) string {
	return cmp.Or(strings.TrimSuffix(replacement, "/")+strings.TrimPrefix(path, strings.TrimSuffix(prefix, "/")), "/")
}

// durations matches the durations of the Gateway API (GEP-2257), a subset of Go's.
var durations = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

// requestTimeout returns the timeout of a request, nil if none is set. A different timeout for each attempt is not modeled.
func requestTimeout(t *gatewayv1.HTTPRouteTimeouts) (*time.Duration, error) {
	if t == nil {
		return nil, nil
	}
	if t.BackendRequest != nil && (t.Request == nil || *t.BackendRequest != *t.Request) {
		return nil, fmt.Errorf("timeouts.backendRequest: %w", ErrNotModeled)
	}
	if t.Request == nil {
		return nil, nil
	}
	d, err := time.ParseDuration(string(*t.Request))
	if err != nil || !durations.MatchString(string(*t.Request)) {
		return nil, fmt.Errorf("timeouts.request %q: %w", *t.Request, ErrInvalid)
	}
	return &d, nil
}

// singleBackend returns the only backend with a weight above zero.
func (m *gatewayMatch) singleBackend() (Backend, error) {
	var found []*gatewayv1.HTTPBackendRef
	for i := range m.spec.BackendRefs {
		if b := &m.spec.BackendRefs[i]; ptr.Deref(b.Weight, 1) > 0 {
			found = append(found, b)
		}
	}
	switch {
	case len(found) == 0:
		return Backend{}, ErrNoBackend
	case len(found) > 1:
		return Backend{}, fmt.Errorf("%d backends with a weight: %w", len(found), ErrNotModeled)
	}
	return backendOf(found[0], m.Route.Namespace)
}

// backendOf returns the backend that a route in a namespace refers to.
func backendOf(b *gatewayv1.HTTPBackendRef, namespace string) (Backend, error) {
	if err := onlyFields(b, "BackendRef"); err != nil {
		return Backend{}, err
	}
	if other := string(ptr.Deref(b.Namespace, gatewayv1.Namespace(namespace))); other != namespace {
		return Backend{}, fmt.Errorf("backend in namespace %s: %w", other, ErrNotModeled)
	}
	out := Backend{Kind: KindService, Namespace: namespace, Name: string(b.Name), Port: ptr.Deref(b.Port, 0)}
	switch kind := (schema.GroupKind{Group: string(ptr.Deref(b.Group, "")), Kind: string(ptr.Deref(b.Kind, "Service"))}).String(); kind {
	case "Service":
		if out.Port == 0 {
			return Backend{}, fmt.Errorf("backend %s without a port: %w", b.Name, ErrInvalid)
		}
	case "InferencePool.inference.networking.k8s.io":
		out.Kind = KindInferencePool
	default:
		return Backend{}, fmt.Errorf("backend of kind %s: %w", kind, ErrNotModeled)
	}
	return out, nil
}
