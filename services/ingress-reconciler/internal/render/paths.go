package render

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Paths returns the path prefixes of a host for which an HTTPRoute, Ingress or VirtualService answers every request, ending in "/". It
// leaves out rules with other conditions, such as headers, and regular expressions.
func Paths(u *unstructured.Unstructured, host string) []string {
	switch u.GetKind() {
	case Kinds[HTTPRoutes]:
		return prefixes(u, "rules", "matches", func(match map[string]any) (any, bool) {
			path, _ := match["path"].(map[string]any)
			return path["value"], unconditional(match) && (path["type"] == nil || path["type"] == "PathPrefix")
		})
	case Kinds[VirtualServices]:
		return prefixes(u, "http", "match", func(match map[string]any) (any, bool) {
			uri, _ := match["uri"].(map[string]any)
			return uri["prefix"], unconditional(match) && (uri == nil || uri["prefix"] != nil)
		})
	}
	return ingressPaths(u, host)
}

func ingressPaths(u *unstructured.Unstructured, host string) []string {
	var paths []string
	for _, r := range slice(u.Object, "spec", "rules") {
		if rule, _ := r.(map[string]any); rule["host"] == host {
			for _, p := range slice(rule, "http", "paths") {
				if path, _ := p.(map[string]any); path["pathType"] != "Exact" {
					paths = append(paths, asPrefix(path["path"]))
				}
			}
		}
	}
	return paths
}

// unconditional reports whether a match has no conditions but its path.
func unconditional(match map[string]any) bool {
	return match["headers"] == nil && match["queryParams"] == nil && match["method"] == nil
}

// prefixes returns the prefixes of the matches of all rules. A rule without matches has the prefix "/".
func prefixes(u *unstructured.Unstructured, rules, matches string, of func(match map[string]any) (path any, whole bool)) []string {
	var paths []string
	for _, r := range slice(u.Object, "spec", rules) {
		rule, _ := r.(map[string]any)
		all := slice(rule, matches)
		if len(all) == 0 {
			paths = append(paths, "/")
		}
		for _, m := range all {
			match, _ := m.(map[string]any)
			if path, whole := of(match); whole {
				paths = append(paths, asPrefix(path))
			}
		}
	}
	return paths
}

func slice(of map[string]any, fields ...string) []any {
	list, _, _ := unstructured.NestedSlice(of, fields...)
	return list
}

func asPrefix(path any) string {
	text, _ := path.(string)
	return strings.TrimSuffix(text, "/") + "/"
}
