package render

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PathPrefixes returns the path prefixes of a host for which an HTTPRoute, Ingress or VirtualService answers every request, ending in "/".
// It leaves out rules with other conditions, such as headers, and regular expressions.
func PathPrefixes(u *unstructured.Unstructured, host string) []string {
	switch u.GetKind() {
	case Kinds[HTTPRoutes]:
		return matchPrefixes(u, "rules", "matches", func(match map[string]any) (any, bool) {
			path, _ := match["path"].(map[string]any)
			return path["value"], isUnconditional(match) && (path["type"] == nil || path["type"] == "PathPrefix")
		})
	case Kinds[VirtualServices]:
		return matchPrefixes(u, "http", "match", func(match map[string]any) (any, bool) {
			uri, _ := match["uri"].(map[string]any)
			return uri["prefix"], isUnconditional(match) && (uri == nil || uri["prefix"] != nil)
		})
	}
	return ingressPaths(u, host)
}

func ingressPaths(u *unstructured.Unstructured, host string) []string {
	var paths []string
	EachIngressPath(u, func(h string, path map[string]any) {
		if h == host && path != nil && path["pathType"] != "Exact" {
			paths = append(paths, asPrefix(path["path"]))
		}
	})
	return paths
}

// EachIngressPath calls f with each path of an Ingress and its host, and with a nil path for a host without paths.
func EachIngressPath(u *unstructured.Unstructured, f func(host string, path map[string]any)) {
	for _, r := range nestedSlice(u.Object, "spec", "rules") {
		rule, _ := r.(map[string]any)
		host, _ := rule["host"].(string)
		paths := nestedSlice(rule, "http", "paths")
		if len(paths) == 0 {
			f(host, nil)
		}
		for _, p := range paths {
			path, _ := p.(map[string]any)
			f(host, path)
		}
	}
}

// isUnconditional reports whether a match has no conditions but its path.
func isUnconditional(match map[string]any) bool {
	return match["headers"] == nil && match["queryParams"] == nil && match["method"] == nil
}

// matchPrefixes returns the prefixes of the matches of all rules. A rule without matches has the prefix "/".
func matchPrefixes(u *unstructured.Unstructured, rules, matches string,
	pathOf func(match map[string]any) (path any, unconditional bool)) []string {
	var paths []string
	for _, r := range nestedSlice(u.Object, "spec", rules) {
		rule, _ := r.(map[string]any)
		list := nestedSlice(rule, matches)
		if len(list) == 0 {
			paths = append(paths, "/")
		}
		for _, m := range list {
			match, _ := m.(map[string]any)
			if path, unconditional := pathOf(match); unconditional {
				paths = append(paths, asPrefix(path))
			}
		}
	}
	return paths
}

func nestedSlice(object map[string]any, fields ...string) []any {
	list, _, _ := unstructured.NestedSlice(object, fields...)
	return list
}

func asPrefix(path any) string {
	text, _ := path.(string)
	return strings.TrimSuffix(text, "/") + "/"
}
