package routing

import (
	"errors"
	"fmt"
	"strings"
)

// maxLiteral is the length of the longest literal. OCI documents no limit; this is the limit of the Gateway API for paths and for values
// of query parameters. Values of headers can have 4096 characters there.
const maxLiteral = 1024

// The language documents no escape, neither for the quote that ends a literal nor for the backslash, so neither can be in one. Control
// characters and characters beyond ASCII have no documented encoding. Everything else between two quotes is text.
const forbiddenChars = `'\`

// hostnameChars are the characters of hostnames. A hostname with a port would be a condition for a host of another route.
const hostnameChars = "abcdefghijklmnopqrstuvwxyz0123456789-."

// Characters that some clients send percent-encoded, and others as they are. OCI does not document whether it compares paths and query
// parameters before or after decoding, so a value with such a character could match some clients' requests only.
const (
	encodedInPaths = "%\"<>^`{|} ?#"
	// notEncodedInQueries are the other characters: those that no encoder encodes.
	notEncodedInQueries = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"
)

var errEmpty = errors.New("an empty value cannot be compared")

// quoteLiteral returns a value as a literal of the condition language. The error names the reason why that is not possible.
func quoteLiteral(value string) (string, error) {
	switch {
	case value == "":
		return "", errEmpty
	case len(value) > maxLiteral:
		return "", fmt.Errorf("the value has %d characters, the limit is %d", len(value), maxLiteral)
	}
	for _, r := range value {
		if r < ' ' || r > '~' || strings.ContainsRune(forbiddenChars, r) {
			return "", fmt.Errorf("the value contains %q, which OCI conditions cannot contain", r)
		}
	}
	return "'" + value + "'", nil
}

// ignoreCase returns a value as a literal whose case does not matter.
func ignoreCase(value string) (string, error) {
	text, err := quoteLiteral(value)
	return "(i " + text + ")", err
}

// hostLiteral returns a part of a Host header as a literal whose case does not matter.
func hostLiteral(host string) (string, error) {
	if i := strings.IndexFunc(host, func(r rune) bool { return !strings.ContainsRune(hostnameChars, r) }); i >= 0 {
		return "", fmt.Errorf("the hostname contains %q", host[i])
	}
	return ignoreCase(host)
}

// pathLiteral returns a path, or a part of one, as a literal.
func pathLiteral(path string) (string, error) {
	if i := strings.IndexAny(path, encodedInPaths); i >= 0 {
		return "", fmt.Errorf("the path contains %q, and OCI does not define whether it compares encoded paths", path[i])
	}
	return quoteLiteral(path)
}

// queryLiteral returns a name or value of a query parameter as a literal.
func queryLiteral(value string) (string, error) {
	if i := strings.IndexFunc(value, func(r rune) bool { return !strings.ContainsRune(notEncodedInQueries, r) }); i >= 0 {
		return "", fmt.Errorf("the query parameter contains %q, and OCI does not define whether it compares encoded parameters", value[i])
	}
	return quoteLiteral(value)
}
