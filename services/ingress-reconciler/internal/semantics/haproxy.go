package semantics

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// chooseHAProxyOrg takes ImplementationSpecific by letters, without a slash at the end.
func chooseHAProxyOrg(all []*location, path string) (*location, error) {
	if len(all) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	return chooseElements(byHost(all)[0], path, func(l *location) bool {
		return strings.HasPrefix(path, strings.TrimSuffix(l.path, "/"))
	})
}

// chooseHAProxyIngress takes ImplementationSpecific by letters in any case. A host whose paths do not fit leaves the request to
// the next.
func chooseHAProxyIngress(all []*location, path string) (*location, error) {
	for _, group := range byHost(all) {
		l, err := chooseElements(group, path, func(l *location) bool {
			return strings.HasPrefix(strings.ToLower(path), strings.ToLower(l.path))
		})
		if l != nil || err != nil {
			return l, err
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// chooseElements takes Exact first, then the longest; Prefix is by elements, and specific says what ImplementationSpecific is.
func chooseElements(group []*location, path string, specific func(l *location) bool) (*location, error) {
	var fit []*location
	for _, l := range group {
		fits := false
		switch l.kind {
		case networkingv1.PathTypeExact:
			fits = l.path == path
		case networkingv1.PathTypePrefix:
			fits = hasElements(path, l.path)
		case networkingv1.PathTypeImplementationSpecific:
			fits = specific(l)
		}
		if fits {
			fit = append(fit, l)
		}
	}
	return only(fit, func(a, b *location) int {
		return cmp.Or(
			cmp.Compare(exactness(a), exactness(b)),
			cmp.Compare(len(strings.TrimSuffix(b.path, "/")), len(strings.TrimSuffix(a.path, "/"))),
		)
	})
}

func exactness(l *location) int {
	if l.kind == networkingv1.PathTypeExact {
		return 0
	}
	return 1
}

// rewriteHAProxyOrg does what each line says, one after the other: a replacement of the whole path, after an expression that
// has to match somewhere in it, or for any path.
func rewriteHAProxyOrg(_ *World, l *location, a *answer) error {
	annotation := strings.TrimSpace(l.ingress.Annotations[annotationPathRewrite])
	if annotation == "" {
		return nil
	}
	for line := range strings.SplitSeq(annotation, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 1 {
			fields = []string{"(.*)", fields[0]}
		}
		if len(fields) != 2 {
			return fmt.Errorf("annotation %s: %q: %w", annotationPathRewrite, line, ErrInvalid)
		}
		if err := replaceHAProxy(fields[0], fields[1], a); err != nil {
			return fmt.Errorf("annotation %s: %w", annotationPathRewrite, err)
		}
	}
	return nil
}

// replaceHAProxy is "http-request replace-path", whose replacement has sample expressions after a percent sign.
func replaceHAProxy(expression, replacement string, a *answer) error {
	if strings.ContainsAny(expression+replacement, "%\"'#") {
		return fmt.Errorf("replacement %q of %q: %w", replacement, expression, ErrUnsupported)
	}
	re, err := compile(expression)
	if err != nil {
		return err
	}
	groups := re.FindStringSubmatch(a.path)
	if groups == nil {
		return nil
	}
	path, err := expand(replacement, '\\', groups)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("replacement %q makes %q: %w", replacement, path, ErrRejected)
	}
	a.path = path
	return nil
}

// rewriteHAProxyIngress puts the target in the place of the path of the Ingress, by letters and with their case. A target "/"
// takes a slash that follows with it.
//
//	path   request  target  result        path   request  target  result
//	/abc   /abc     /       /             /abc   /abc/    /y      /y/
//	/abc   /abc/x   /       /x            /abc   /abc/x   /y      /y/x
//	/abc   /abc     /y      /y            /abc/  /abc/x   /y      /y/x
func rewriteHAProxyIngress(_ *World, l *location, a *answer) error {
	target := l.ingress.Annotations[annotationHAProxyTarget]
	if target == "" {
		return nil
	}
	if !strings.HasPrefix(target, "/") || strings.Contains(target, `\`) {
		return fmt.Errorf("annotation %s: %q: %w", annotationHAProxyTarget, target, ErrUnsupported)
	}
	expression := "^" + regexp.QuoteMeta(l.path)
	if target == "/" && !strings.HasSuffix(l.path, "/") {
		expression += "/?"
	}
	if strings.HasSuffix(l.path, "/") && !strings.HasSuffix(target, "/") {
		target += "/"
	}
	if err := replaceHAProxy(expression+"(.*)$", target+`\1`, a); err != nil {
		return fmt.Errorf("annotation %s: %w", annotationHAProxyTarget, err)
	}
	return nil
}
