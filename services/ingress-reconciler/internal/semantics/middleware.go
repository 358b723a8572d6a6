package semantics

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// findMiddleware returns the Middleware with the name "<namespace>-<name>@kubernetescrd". The name can be ambiguous.
func (w *World) findMiddleware(name string) (*unstructured.Unstructured, error) {
	name, isObject := strings.CutSuffix(name, "@kubernetescrd")
	switch middlewares := w.middlewares[name]; {
	case !isObject:
		return nil, ErrNotModeled
	case len(middlewares) == 0:
		return nil, ErrNotFound
	case len(middlewares) > 1:
		return nil, ErrAmbiguous
	default:
		return middlewares[0], nil
	}
}

// passMiddleware applies one Middleware to the path.
func passMiddleware(m *unstructured.Unstructured, a *Answer) error {
	spec, ok := m.Object["spec"].(map[string]any)
	if !ok || len(spec) != 1 {
		return fmt.Errorf("spec does not have exactly one kind: %w", ErrInvalid)
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
		err = ErrNotModeled
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

// stripPrefix removes the first prefix in the list that matches the path. It compares characters, not elements.
func stripPrefix(fields map[string]any, a *Answer) error {
	prefixes, err := stringList(fields, "prefixes")
	if err != nil {
		return err
	}
	for _, p := range prefixes {
		if rest, found := strings.CutPrefix(a.Path, strings.TrimSpace(p)); found {
			return a.setPath(absolutePath(rest))
		}
	}
	return nil
}

// stripPrefixRegex removes the first match that is a prefix of the path.
func stripPrefixRegex(fields map[string]any, a *Answer) error {
	expressions, err := stringList(fields, "regex")
	if err != nil {
		return err
	}
	for _, x := range expressions {
		re, err := compileRegexp(strings.TrimSpace(x))
		if err != nil {
			return err
		}
		found := re.FindString(a.Path)
		if rest, isPrefix := strings.CutPrefix(a.Path, found); found != "" && isPrefix {
			return a.setPath(absolutePath(rest))
		}
	}
	return nil
}

// replacePathRegex replaces each match. In the replacement, "$1" and "${1}" stand for the text that group 1 matched.
func replacePathRegex(fields map[string]any, a *Answer) error {
	if err := onlyKeys(fields, "regex", "replacement"); err != nil {
		return err
	}
	expression, isText := fields["regex"].(string)
	replacement, isTextToo := optionalText(fields["replacement"])
	if !isText || !isTextToo {
		return ErrInvalid
	}
	re, err := compileRegexp(strings.TrimSpace(expression))
	if err != nil {
		return err
	}
	if !re.MatchString(a.Path) {
		return nil
	}
	return a.setPath(re.ReplaceAllString(a.Path, strings.TrimSpace(replacement)))
}

// setPath sets the path to the result of a Middleware. Traefik answers 400 if the path is not in normal form.
func (a *Answer) setPath(path string) error {
	if path == "" {
		path = "/"
	}
	if strings.ContainsAny(path, "%?#") {
		return fmt.Errorf("path %q: %w", path, ErrNotModeled)
	}
	if !isPlainPath(path) {
		return fmt.Errorf("path %q: %w", path, ErrRejected)
	}
	a.Path = path
	return nil
}

func absolutePath(path string) string { return "/" + strings.TrimPrefix(path, "/") }

// stringList returns the only field of a Middleware, a list of strings.
func stringList(fields map[string]any, name string) ([]string, error) {
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
	rest := maps.Clone(fields)
	for _, k := range known {
		delete(rest, k)
	}
	if len(rest) > 0 {
		return fmt.Errorf("field %s: %w", sortedKeys(rest)[0], ErrNotModeled)
	}
	return nil
}

// optionalText returns an optional string.
func optionalText(v any) (string, bool) {
	if v == nil {
		return "", true
	}
	s, ok := v.(string)
	return s, ok
}
