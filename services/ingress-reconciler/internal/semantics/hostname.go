package semantics

import (
	"cmp"
	"fmt"
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// parseHost returns the host name of a Host header, in lower case.
func parseHost(authority string) (string, error) {
	host := authority
	if strings.Contains(host, ":") {
		name, port, err := net.SplitHostPort(host)
		if err != nil || port == "" || strings.Trim(port, "0123456789") != "" {
			return "", fmt.Errorf("host %q: %w", authority, ErrInvalid)
		}
		host = name
	}
	host = strings.ToLower(host)
	if len(validation.IsDNS1123Subdomain(host)) > 0 {
		return "", fmt.Errorf("host %q: %w", authority, ErrInvalid)
	}
	return host, nil
}

const wildcard = "*."

// underWildcard reports whether a host is below the domain of a pattern like "*.example.com", by one label or more. The
// domain itself is not.
func underWildcard(pattern, host string) bool {
	return strings.HasPrefix(pattern, wildcard) && strings.HasSuffix(host, pattern[1:])
}

// covers reports whether a host name of the Gateway API or of Istio is that of the request. Names have no case.
func covers(pattern, host string) bool {
	pattern = strings.ToLower(pattern)
	return pattern == host || underWildcard(pattern, host)
}

// coversOneLabel is covers for Ingresses, whose wildcards stand for one label.
func coversOneLabel(pattern, host string) bool {
	pattern = strings.ToLower(pattern)
	return pattern == host || underWildcard(pattern, host) && !strings.Contains(strings.TrimSuffix(host, pattern[1:]), ".")
}

// compareHostnames orders host names that cover the same host, the more specific first: one without a wildcard, then the one
// with more characters. An empty one is last.
func compareHostnames(a, b string) int {
	return cmp.Or(cmp.Compare(literalLen(b), literalLen(a)), cmp.Compare(len(b), len(a)))
}

func literalLen(pattern string) int {
	if strings.HasPrefix(pattern, "*") {
		return 0
	}
	return len(pattern)
}
