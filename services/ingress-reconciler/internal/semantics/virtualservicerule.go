package semantics

import (
	"fmt"
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// catchesAll reports whether every request fits.
func (i *istioRule) catchesAll() bool {
	m := i.match
	everywhere := m.GetUri() == nil || m.GetUri().GetPrefix() == "/" || m.GetUri().GetRegex() == "*"
	return everywhere && onlyMessageFields(m, "name", "uri", "gateways", "stat_prefix") == nil
}

// fits reports whether a request is one of the match.
func (i *istioRule) fits(r *request) (bool, error) {
	m := i.match
	if err := onlyMessageFields(m, "name", "uri", "method", "authority", "headers", "gateways", "stat_prefix"); err != nil {
		return false, err
	}
	fits := true
	for _, c := range []struct {
		what string
		want *networkingv1alpha3.StringMatch
		got  string
	}{{"uri", m.GetUri(), r.path}, {"method", m.GetMethod(), r.method}, {"authority", m.GetAuthority(), r.authority}} {
		ok, err := fitsString(c.want, c.got, true)
		if err != nil {
			return false, fmt.Errorf("%s: %w", c.what, err)
		}
		fits = fits && ok
	}
	for _, name := range sortedKeys(m.GetHeaders()) {
		if isAuthority(name) || strings.HasPrefix(name, ":") || strings.HasPrefix(name, "@") {
			return false, fmt.Errorf("header %s: %w", name, ErrUnsupported)
		}
		got, found := r.header[canonical(name)]
		ok, err := fitsString(m.GetHeaders()[name], got, found)
		if err != nil {
			return false, fmt.Errorf("header %s: %w", name, err)
		}
		fits = fits && ok
	}
	return fits, nil
}

// fitsString reports whether a text fits. A match that says nothing, or the expression "*", wants it only to be there.
func fitsString(want *networkingv1alpha3.StringMatch, got string, found bool) (bool, error) {
	switch m := want.GetMatchType().(type) {
	case nil:
		return found, nil
	case *networkingv1alpha3.StringMatch_Exact:
		return found && got == m.Exact, nil
	case *networkingv1alpha3.StringMatch_Prefix:
		return found && strings.HasPrefix(got, m.Prefix), nil
	case *networkingv1alpha3.StringMatch_Regex:
		if m.Regex == "*" {
			return found, nil
		}
		ok, err := matchesWhole(m.Regex, got)
		return found && ok, err
	}
	return false, ErrUnsupported
}

// answer does what the rule says.
func (i *istioRule) answer(r *request) (*answer, error) {
	if err := onlyMessageFields(i.rule, "name", "match", "route", "rewrite", "timeout", "headers"); err != nil {
		return nil, err
	}
	to, err := destination(i.rule.GetRoute())
	if err != nil {
		return nil, err
	}
	a := r.answer()
	if err := i.rewrite(a); err != nil {
		return nil, err
	}
	removeHeaders(a, i.rule.GetHeaders(), to.GetHeaders())
	host, err := changeHeaders(i.rule.GetHeaders(), a)
	if err != nil {
		return nil, err
	}
	hostOfDestination, err := changeHeaders(to.GetHeaders(), a)
	if err != nil {
		return nil, err
	}
	// A rewrite of the authority is before a header of the rule, and that before one of the destination.
	for _, h := range []string{hostOfDestination, host, i.rule.GetRewrite().GetAuthority()} {
		if h != "" {
			a.host = h
		}
	}
	if t := i.rule.GetTimeout(); t != nil {
		d := t.AsDuration()
		if t.CheckValid() != nil || d < 0 {
			return nil, fmt.Errorf("timeout %s: %w", t, ErrInvalid)
		}
		a.timeout = &d
	}
	a.backend, err = i.backend(to.GetDestination())
	return a, err
}

// rewrite changes the path. What a prefix is replaced by ends where the prefix ended.
func (i *istioRule) rewrite(a *answer) error {
	rewrite := i.rule.GetRewrite()
	if rewrite == nil {
		return nil
	}
	if err := onlyMessageFields(rewrite, "uri", "authority", "uri_regex_rewrite"); err != nil {
		return err
	}
	if re := rewrite.GetUriRegexRewrite(); re != nil {
		if rewrite.GetUri() != "" {
			return fmt.Errorf("rewrite of uri in two ways: %w", ErrInvalid)
		}
		return replaceAll(re.GetMatch(), re.GetRewrite(), a)
	}
	if rewrite.GetUri() == "" {
		return nil
	}
	prefix := "/"
	switch m := i.match.GetUri().GetMatchType().(type) {
	case *networkingv1alpha3.StringMatch_Prefix:
		prefix = m.Prefix
	case *networkingv1alpha3.StringMatch_Exact, *networkingv1alpha3.StringMatch_Regex:
		prefix = a.path
	}
	a.path = rewrite.GetUri() + strings.TrimPrefix(a.path, prefix)
	return nil
}

// replaceAll replaces each match of an expression in the path.
func replaceAll(expression, replacement string, a *answer) error {
	re, err := compile(expression)
	if err != nil {
		return err
	}
	var out strings.Builder
	rest := 0
	for _, at := range re.FindAllStringSubmatchIndex(a.path, -1) {
		groups := make([]string, len(at)/2)
		for g := range groups {
			if at[2*g] >= 0 {
				groups[g] = a.path[at[2*g]:at[2*g+1]]
			}
		}
		text, err := expand(replacement, '\\', groups)
		if err != nil {
			return err
		}
		out.WriteString(a.path[rest:at[0]] + text)
		rest = at[1]
	}
	out.WriteString(a.path[rest:])
	a.path = out.String()
	return nil
}

// destination returns the only destination: one that is alone needs no weight.
func destination(all []*networkingv1alpha3.HTTPRouteDestination) (*networkingv1alpha3.HTTPRouteDestination, error) {
	if len(all) > 1 {
		all = slices.DeleteFunc(slices.Clone(all), func(d *networkingv1alpha3.HTTPRouteDestination) bool { return d.GetWeight() == 0 })
	}
	switch {
	case len(all) == 0:
		return nil, ErrNoBackend
	case len(all) > 1:
		return nil, fmt.Errorf("%d destinations with a weight: %w", len(all), ErrUnsupported)
	}
	if err := onlyMessageFields(all[0], "destination", "weight", "headers"); err != nil {
		return nil, err
	}
	return all[0], nil
}

// removeHeaders takes away what any of them says, which Envoy does before it adds any.
func removeHeaders(a *answer, all ...*networkingv1alpha3.Headers) {
	for _, h := range all {
		for _, name := range h.GetRequest().GetRemove() {
			a.remove(name)
		}
	}
}

// changeHeaders sets and adds headers of a request, and returns what it is to have as its authority. That is no header for
// Envoy.
func changeHeaders(h *networkingv1alpha3.Headers, a *answer) (host string, err error) {
	if err := onlyMessageFields(h, "request"); err != nil {
		return "", err
	}
	set, add := h.GetRequest().GetSet(), h.GetRequest().GetAdd()
	for _, name := range sortedKeys(set) {
		switch {
		case isAuthority(name) && host != "":
			return "", fmt.Errorf("header %s: it is there twice: %w", name, ErrInvalid)
		case isAuthority(name):
			host = set[name]
		case strings.HasPrefix(name, ":"):
			return "", fmt.Errorf("header %s: %w", name, ErrUnsupported)
		default:
			a.set(name, set[name])
		}
	}
	for _, name := range sortedKeys(add) {
		if isAuthority(name) || strings.HasPrefix(name, ":") {
			return "", fmt.Errorf("header %s: %w", name, ErrUnsupported)
		}
		a.add(name, add[name])
	}
	return host, nil
}

func isAuthority(name string) bool {
	return strings.EqualFold(name, "host") || strings.EqualFold(name, ":authority")
}

// backend returns the Service that a destination names, or the host if it is not a Service's. A short name is a Service of the
// VirtualService's namespace.
func (i *istioRule) backend(d *networkingv1alpha3.Destination) (Backend, error) {
	if err := onlyMessageFields(d, "host", "port"); err != nil {
		return Backend{}, err
	}
	port := d.GetPort().GetNumber()
	if d.GetHost() == "" || port == 0 || port > 65535 {
		return Backend{}, fmt.Errorf("destination %q, port %d: %w", d.GetHost(), port, ErrUnsupported)
	}
	b := Backend{Kind: KindService, Namespace: i.in.Namespace, Name: d.GetHost(), Port: int32(port)}
	switch labels := strings.SplitN(d.GetHost(), ".", 4); {
	case len(labels) == 4 && labels[2] == "svc":
		b.Namespace, b.Name = labels[1], labels[0]
	case len(labels) > 1:
		b.Kind, b.Namespace = KindHost, ""
	}
	return b, nil
}

// sortedKeys makes what is said of a map the same each time.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
