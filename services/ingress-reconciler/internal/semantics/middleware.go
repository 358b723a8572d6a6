package semantics

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// middleware has the kinds of Middlewares that are modeled. A Middleware has one of them.
type middleware struct {
	StripPrefix *struct {
		Prefixes *[]string `json:"prefixes"`
	} `json:"stripPrefix"`
	StripPrefixRegex *struct {
		Regex *[]string `json:"regex"`
	} `json:"stripPrefixRegex"`
	ReplacePathRegex *struct {
		Regex       *string `json:"regex"`
		Replacement string  `json:"replacement"`
	} `json:"replacePathRegex"`
}

// passMiddleware applies one Middleware to the path.
func passMiddleware(u *unstructured.Unstructured, a *Answer) error {
	spec, ok := u.Object["spec"].(map[string]any)
	if !ok || len(spec) != 1 {
		return fmt.Errorf("spec does not have exactly one kind: %w", ErrInvalid)
	}
	var m middleware
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(spec, &m, true)
	switch {
	case runtime.IsStrictDecodingError(err):
		err = fmt.Errorf("%w: %w", err, ErrNotModeled)
	case err != nil:
		err = fmt.Errorf("%w: %w", err, ErrInvalid)
	case m.StripPrefix != nil && m.StripPrefix.Prefixes != nil:
		err = stripPrefix(*m.StripPrefix.Prefixes, a)
	case m.StripPrefixRegex != nil && m.StripPrefixRegex.Regex != nil:
		err = stripPrefixRegex(*m.StripPrefixRegex.Regex, a)
	case m.ReplacePathRegex != nil && m.ReplacePathRegex.Regex != nil:
		err = replacePathRegex(*m.ReplacePathRegex.Regex, m.ReplacePathRegex.Replacement, a)
	default:
		err = ErrInvalid
	}
	if err != nil {
		return fmt.Errorf("%s: %w", sortedKeys(spec)[0], err)
	}
	return nil
}

// stripPrefix removes the first prefix in the list that matches the path. It compares characters, not elements.
func stripPrefix(prefixes []string, a *Answer) error {
	for _, p := range prefixes {
		if rest, found := strings.CutPrefix(a.Path, strings.TrimSpace(p)); found {
			return a.setPath(absolutePath(rest))
		}
	}
	return nil
}

// stripPrefixRegex removes the first match that is a prefix of the path.
func stripPrefixRegex(expressions []string, a *Answer) error {
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
func replacePathRegex(expression, replacement string, a *Answer) error {
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
	path = cmp.Or(path, "/")
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
