// Package ownership decides which of several owners gets a host and path that they claim.
//
// Two claims of different owners conflict if a request could match both, and the data plane would have to choose between
// them. Within one host:
//
//	                              conflict
//	no headers                    if one path is a prefix of the other, by elements
//	both with a header            likewise, unless they want different values of one header
//	one with a header             likewise, unless the other's path is the longer one: it wins by its length
//
// The last exception does not apply to a data plane that does not compare lengths (Claim.Unordered), or to a path that
// begins with an API version, as in /v1/chat/completions: clients that select a model by a header request such paths.
//
// Conflicts are decided in this order. A claim that loses waits until the conflicting claim is gone:
//
//  1. Live claims, which an object in the cluster serves: the longest-lived first, as data planes do.
//  2. Held claims, which were granted and are being written.
//  3. All others: the oldest owner first, then by name.
//
// So the incumbent keeps its claims, whatever older owners claim later. Except for claims that are being written, the result
// depends only on the cluster's objects and the owners' ages: every replica and every restart agree.
package ownership

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Owner is the namespace and name of an object with claims.
type Owner = types.NamespacedName

// Claim is a part of the requests for a host.
type Claim struct {
	Host string
	Path string // ends in "/"; includes itself without the last slash, and everything below it
	// Header and Value restrict the claim to requests with that header. Empty: all requests.
	Header, Value string
	// Unordered means that the data plane may prefer this claim's header to another claim's longer path.
	Unordered bool
}

const root = "/"

// String returns the claim as Parse reads it: "host/path/", with a header "host/path/ header=value".
func (c Claim) String() string {
	text := c.Host + c.Path
	if c.Header != "" {
		text += " " + c.Header + "=" + c.Value
	}
	return text
}

// Parse parses the output of String, and returns false for any other text. Unordered is not part of the text.
func Parse(text string) (Claim, bool) {
	where, header, hasHeader := strings.Cut(text, " ")
	i := strings.Index(where, root)
	if i < 1 || !strings.HasSuffix(where, root) {
		return Claim{}, false
	}
	c := Claim{Host: where[:i], Path: where[i:]}
	c.Header, c.Value, _ = strings.Cut(header, "=")
	return c, !hasHeader || c.Header != "" && c.Value != ""
}

// relation is the position of another claim's path relative to a claim's.
type relation int

const (
	same relation = iota
	above
	below
)

// isVersioned reports whether the first element of a path is an API version: v and a digit.
func isVersioned(path string) bool {
	return len(path) > 2 && path[1] == 'v' && '0' <= path[2] && path[2] <= '9'
}

// eachPrefix calls f with each path above a path, from the root.
func eachPrefix(path string, f func(string)) {
	for i := range len(path) - 1 {
		if path[i] == '/' {
			f(path[:i+1])
		}
	}
}
