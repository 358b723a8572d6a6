package semantics

import (
	"cmp"
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// chooseTraefik takes Prefix and ImplementationSpecific by letters. Each path is a rule of its own, and the longest rule that
// fits wins: so a Prefix is before an Exact of the same path.
func chooseTraefik(all []*location, path string) (*location, error) {
	var fit []*location
	for _, l := range all {
		if l.path == path || l.kind != networkingv1.PathTypeExact && strings.HasPrefix(path, l.path) {
			fit = append(fit, l)
		}
	}
	return only(fit, func(a, b *location) int { return cmp.Compare(len(traefikRule(b)), len(traefikRule(a))) })
}

// traefikRule is the rule that Traefik 3.7 writes for a path.
func traefikRule(l *location) string {
	rule := fmt.Sprintf("PathPrefix(%q)", l.path)
	if l.kind == networkingv1.PathTypeExact {
		rule = fmt.Sprintf("Path(%q)", l.path)
	}
	if l.host == "" {
		return rule
	}
	return fmt.Sprintf("Host(%q) && %s", l.host, rule)
}

// rewriteTraefik passes a request through the Middlewares that an Ingress names, in their order.
func rewriteTraefik(w *World, l *location, a *answer) error {
	annotation, found := l.ingress.Annotations[annotationTraefikMiddlewares]
	if !found {
		return nil
	}
	for name := range strings.SplitSeq(annotation, ",") {
		name = strings.TrimSpace(name)
		m, err := w.middleware(name)
		if err != nil {
			return fmt.Errorf("annotation %s: %q: %w", annotationTraefikMiddlewares, name, err)
		}
		if err := passMiddleware(m, a); err != nil {
			return fmt.Errorf("%s: %w", identity("Middleware", m), err)
		}
	}
	return nil
}

// middleware returns the Middleware of a name "<namespace>-<name>@kubernetescrd", which two of them can have.
func (w *World) middleware(name string) (*unstructured.Unstructured, error) {
	name, isObject := strings.CutSuffix(name, "@kubernetescrd")
	if !isObject {
		return nil, ErrUnsupported
	}
	var found *unstructured.Unstructured
	for _, m := range w.Middlewares {
		switch {
		case m.GetNamespace()+"-"+m.GetName() != name:
		case found != nil:
			return nil, ErrAmbiguous
		default:
			found = m
		}
	}
	if found == nil {
		return nil, ErrNotFound
	}
	return found, nil
}

// passMiddleware changes the path as one Middleware does.
func passMiddleware(m *unstructured.Unstructured, a *answer) error {
	spec, ok := m.Object["spec"].(map[string]any)
	if !ok || len(spec) != 1 {
		return fmt.Errorf("spec does not say one thing: %w", ErrInvalid)
	}
	kind := sortedKeys(spec)[0]
	fields, ok := spec[kind].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: %w", kind, ErrInvalid)
	}
	var err error
	switch kind {
	case "stripPrefix":
		err = stripPrefix(fields, a)
	case "stripPrefixRegex":
		err = stripPrefixRegex(fields, a)
	case "replacePathRegex":
		err = replacePathRegex(fields, a)
	default:
		err = ErrUnsupported
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

// stripPrefix takes the first prefix that fits away, by its letters.
func stripPrefix(fields map[string]any, a *answer) error {
	prefixes, err := texts(fields, "prefixes")
	if err != nil {
		return err
	}
	for _, p := range prefixes {
		if rest, found := strings.CutPrefix(a.path, strings.TrimSpace(p)); found {
			return a.become(absolute(rest))
		}
	}
	return nil
}

// stripPrefixRegex takes away the first match that the path begins with.
func stripPrefixRegex(fields map[string]any, a *answer) error {
	expressions, err := texts(fields, "regex")
	if err != nil {
		return err
	}
	for _, x := range expressions {
		re, err := compile(strings.TrimSpace(x))
		if err != nil {
			return err
		}
		found := re.FindString(a.path)
		if rest, isPrefix := strings.CutPrefix(a.path, found); found != "" && isPrefix {
			return a.become(absolute(rest))
		}
	}
	return nil
}

// replacePathRegex replaces each match; "$1" and "${1}" are what groups have matched.
func replacePathRegex(fields map[string]any, a *answer) error {
	if err := onlyKeys(fields, "regex", "replacement"); err != nil {
		return err
	}
	expression, isText := fields["regex"].(string)
	replacement, isTextToo := optionalText(fields["replacement"])
	if !isText || !isTextToo {
		return ErrInvalid
	}
	re, err := compile(strings.TrimSpace(expression))
	if err != nil {
		return err
	}
	if !re.MatchString(a.path) {
		return nil
	}
	return a.become(re.ReplaceAllString(a.path, strings.TrimSpace(replacement)))
}

// become makes a path what a Middleware has made of it. Traefik answers 400 where that is not in normal form.
func (a *answer) become(path string) error {
	if path == "" {
		path = "/"
	}
	if strings.ContainsAny(path, "%?#") {
		return fmt.Errorf("path %q: %w", path, ErrUnsupported)
	}
	if !plain(path) {
		return fmt.Errorf("path %q: %w", path, ErrRejected)
	}
	a.path = path
	return nil
}

func absolute(path string) string {
	return "/" + strings.TrimPrefix(path, "/")
}

// texts returns the only field of a Middleware, a list of texts.
func texts(fields map[string]any, name string) ([]string, error) {
	if err := onlyKeys(fields, name); err != nil {
		return nil, err
	}
	list, found, err := unstructured.NestedStringSlice(fields, name)
	if err != nil || !found {
		return nil, fmt.Errorf("field %s: %w", name, ErrInvalid)
	}
	return list, nil
}

func onlyKeys(fields map[string]any, known ...string) error {
	rest := map[string]any{}
	for k, v := range fields {
		rest[k] = v
	}
	for _, k := range known {
		delete(rest, k)
	}
	if len(rest) > 0 {
		return fmt.Errorf("field %s: %w", sortedKeys(rest)[0], ErrUnsupported)
	}
	return nil
}

// optionalText is a text that may be left out.
func optionalText(v any) (string, bool) {
	if v == nil {
		return "", true
	}
	s, ok := v.(string)
	return s, ok
}
