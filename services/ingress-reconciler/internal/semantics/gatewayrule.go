package semantics

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Ranks of paths.
const (
	rankExact = iota
	rankPrefix
	rankRegularExpression
)

// fits reports whether the match is one of the request, and notes the rank of its path.
func (c *candidate) fits(r *request) (bool, error) {
	m := c.match
	if err := onlyFields(m, "Path", "Headers", "QueryParams", "Method"); err != nil {
		return false, err
	}
	path, err := c.fitsPath(r.path)
	if err != nil {
		return false, err
	}
	headers, err := fitsHeaders(m.Headers, r)
	if err != nil {
		return false, err
	}
	query, err := fitsQuery(m.QueryParams, r)
	if err != nil {
		return false, err
	}
	return path && headers && query && (m.Method == nil || string(*m.Method) == r.method), nil
}

func (c *candidate) fitsPath(path string) (bool, error) {
	kind, want := pathOf(c.match)
	switch kind {
	case gatewayv1.PathMatchExact:
		c.rank = rankExact
		return path == want, nil
	case gatewayv1.PathMatchPathPrefix:
		c.rank, c.length = rankPrefix, len(want)
		return hasElements(path, want), nil
	case gatewayv1.PathMatchRegularExpression:
		c.rank = rankRegularExpression
		return matchesWhole(want, path)
	}
	return false, fmt.Errorf("path of type %q: %w", kind, ErrUnsupported)
}

// pathOf returns the path of a match; by default it is the prefix of all paths.
func pathOf(m *gatewayv1.HTTPRouteMatch) (gatewayv1.PathMatchType, string) {
	if m.Path == nil {
		return gatewayv1.PathMatchPathPrefix, "/"
	}
	return value(m.Path.Type, gatewayv1.PathMatchPathPrefix), value(m.Path.Value, "/")
}

// hasElements reports whether a path begins with the elements of a prefix. A slash at the end of the prefix is nothing.
func hasElements(path, prefix string) bool {
	rest, found := strings.CutPrefix(path, strings.TrimSuffix(prefix, "/"))
	return found && (rest == "" || rest[0] == '/')
}

// fitsHeaders reports whether a request has all headers of a match. Of two for one name the first counts.
func fitsHeaders(want []gatewayv1.HTTPHeaderMatch, r *request) (bool, error) {
	seen := map[string]bool{}
	fits := true
	for _, h := range want {
		name := canonical(string(h.Name))
		if seen[name] {
			continue
		}
		seen[name] = true
		if name == "Host" {
			return false, fmt.Errorf("header %s: %w", name, ErrUnsupported)
		}
		got, found := r.header[name]
		ok, err := fitsValue(string(value(h.Type, gatewayv1.HeaderMatchExact)), h.Value, got)
		if err != nil {
			return false, fmt.Errorf("header %s: %w", name, err)
		}
		fits = fits && found && ok
	}
	return fits, nil
}

// fitsQuery is fitsHeaders for parameters of the query. Which of several values counts is not specified.
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
			return false, fmt.Errorf("query parameter %s: it has %d values: %w", q.Name, len(got), ErrAmbiguous)
		}
		ok, err := fitsValue(string(value(q.Type, gatewayv1.QueryParamMatchExact)), q.Value, strings.Join(got, ""))
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
	return false, fmt.Errorf("match of type %q: %w", kind, ErrUnsupported)
}

// answer does what the rule of the match says.
func (c *candidate) answer(r *request) (*answer, error) {
	if err := onlyFields(c.rule, "Name", "Matches", "Filters", "BackendRefs", "Timeouts"); err != nil {
		return nil, err
	}
	a := r.answer()
	seen := map[gatewayv1.HTTPRouteFilterType]bool{}
	for i := range c.rule.Filters {
		f := &c.rule.Filters[i]
		if seen[f.Type] {
			return nil, fmt.Errorf("filter %s: it is there twice: %w", f.Type, ErrInvalid)
		}
		seen[f.Type] = true
		if err := c.filter(f, a); err != nil {
			return nil, fmt.Errorf("filter %s: %w", f.Type, err)
		}
	}
	var err error
	if a.timeout, err = requestTimeout(c.rule.Timeouts); err != nil {
		return nil, err
	}
	a.backend, err = c.backend()
	return a, err
}

func (c *candidate) filter(f *gatewayv1.HTTPRouteFilter, a *answer) error {
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
		return c.rewrite(f.URLRewrite, a)
	default:
		return ErrUnsupported
	}
}

func modifyHeaders(f *gatewayv1.HTTPHeaderFilter, a *answer) error {
	if f == nil {
		return ErrInvalid
	}
	for _, h := range append(append([]gatewayv1.HTTPHeader{}, f.Set...), f.Add...) {
		if canonical(string(h.Name)) == "Host" {
			return fmt.Errorf("header Host: %w", ErrUnsupported)
		}
	}
	for _, h := range f.Set {
		a.set(string(h.Name), h.Value)
	}
	for _, h := range f.Add {
		a.add(string(h.Name), h.Value)
	}
	for _, name := range f.Remove {
		a.remove(name)
	}
	return nil
}

func (c *candidate) rewrite(f *gatewayv1.HTTPURLRewriteFilter, a *answer) error {
	if f == nil {
		return ErrInvalid
	}
	if f.Hostname != nil {
		a.host = string(*f.Hostname)
	}
	switch {
	case f.Path == nil:
		return nil
	case f.Path.Type == gatewayv1.FullPathHTTPPathModifier && f.Path.ReplaceFullPath != nil && f.Path.ReplacePrefixMatch == nil:
		a.path = *f.Path.ReplaceFullPath
		return nil
	case f.Path.Type == gatewayv1.PrefixMatchHTTPPathModifier && f.Path.ReplacePrefixMatch != nil && f.Path.ReplaceFullPath == nil:
		kind, prefix := pathOf(c.match)
		if kind != gatewayv1.PathMatchPathPrefix || len(c.rule.Matches) > 1 {
			return fmt.Errorf("prefix of a rule that has not one match by prefix: %w", ErrInvalid)
		}
		a.path = replacePrefix(a.path, prefix, *f.Path.ReplacePrefixMatch)
		return nil
	}
	return fmt.Errorf("path of type %q: %w", f.Path.Type, ErrInvalid)
}

// replacePrefix puts elements in the place of those of a prefix. Slashes at the end of either are nothing; what remains has
// its slashes, and at least one.
func replacePrefix(path, prefix, replacement string) string {
	path = strings.TrimSuffix(replacement, "/") + strings.TrimPrefix(path, strings.TrimSuffix(prefix, "/"))
	if path == "" {
		return "/"
	}
	return path
}

// durations are those of the Gateway API (GEP-2257), which are fewer than Go's.
var durations = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

// requestTimeout returns the timeout of a request. That of a try is not modelled, unless it says the same.
func requestTimeout(t *gatewayv1.HTTPRouteTimeouts) (*time.Duration, error) {
	if t == nil {
		return nil, nil
	}
	if t.BackendRequest != nil && (t.Request == nil || *t.BackendRequest != *t.Request) {
		return nil, fmt.Errorf("timeouts.backendRequest: %w", ErrUnsupported)
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

// backend returns the only one that has a weight.
func (c *candidate) backend() (Backend, error) {
	var found []*gatewayv1.HTTPBackendRef
	for i := range c.rule.BackendRefs {
		if b := &c.rule.BackendRefs[i]; value(b.Weight, 1) > 0 {
			found = append(found, b)
		}
	}
	switch {
	case len(found) == 0:
		return Backend{}, ErrNoBackend
	case len(found) > 1:
		return Backend{}, fmt.Errorf("%d backends with a weight: %w", len(found), ErrUnsupported)
	}
	return backendOf(found[0], c.route.Namespace)
}

// backendOf reads a reference of a route in a namespace.
func backendOf(b *gatewayv1.HTTPBackendRef, namespace string) (Backend, error) {
	if err := onlyFields(b, "BackendRef"); err != nil {
		return Backend{}, err
	}
	if to := string(value(b.Namespace, gatewayv1.Namespace(namespace))); to != namespace {
		return Backend{}, fmt.Errorf("backend in namespace %s: %w", to, ErrUnsupported)
	}
	out := Backend{Kind: KindService, Namespace: namespace, Name: string(b.Name), Port: value(b.Port, 0)}
	switch kind := (schema.GroupKind{Group: string(value(b.Group, "")), Kind: string(value(b.Kind, "Service"))}).String(); kind {
	case "Service":
		if out.Port == 0 {
			return Backend{}, fmt.Errorf("backend %s without a port: %w", b.Name, ErrInvalid)
		}
	case "InferencePool.inference.networking.k8s.io":
		out.Kind = KindInferencePool
	default:
		return Backend{}, fmt.Errorf("backend of kind %s: %w", kind, ErrUnsupported)
	}
	return out, nil
}
