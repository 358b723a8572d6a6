package httpproxy

import (
	"fmt"
	"net/http"
	"strings"
)

// ForwardedPolicy is the policy for the headers that describe the client's side of the proxy: X-Forwarded-For, X-Forwarded-Proto and
// X-Forwarded-Host. It implements pflag.Value.
type ForwardedPolicy uint8

// The policies.
const (
	Replace ForwardedPolicy = iota // model servers get only what the proxy itself knows, whatever the client claims
	Append                         // the client's address is added to X-Forwarded-For, and the others stay if the client sent them
	Off                            // the headers of the client stay as they are
)

var forwardedNames = []string{Replace: "replace", Append: "append", Off: "off"}

// String returns the policy's name.
func (f *ForwardedPolicy) String() string { return forwardedNames[*f] }

// Set parses the name of a policy.
func (f *ForwardedPolicy) Set(name string) error {
	for policy, n := range forwardedNames {
		if n == name {
			*f = ForwardedPolicy(policy)
			return nil
		}
	}
	return fmt.Errorf("%q is not one of %s", name, strings.Join(forwardedNames, ", "))
}

// Type names the value in help.
func (*ForwardedPolicy) Type() string { return "policy" }

// The headers, in the form of http.Header.
const (
	headerForwarded      = "Forwarded" // RFC 7239
	headerForwardedFor   = "X-Forwarded-For"
	headerForwardedHost  = "X-Forwarded-Host"
	headerForwardedProto = "X-Forwarded-Proto"
	prefixForwarded      = "X-Forwarded-"
)

// setHeaders sets the headers of a request to a model server. The address is the client's.
func (f ForwardedPolicy) setHeaders(h http.Header, r *http.Request, address string) {
	if f == Off {
		return
	}
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	if f == Append {
		if before := h[headerForwardedFor]; len(before) > 0 {
			address = strings.Join(before, ", ") + ", " + address
		}
		h[headerForwardedFor] = []string{address}
		setMissing(h, headerForwardedProto, proto)
		setMissing(h, headerForwardedHost, r.Host)
		return
	}
	delete(h, headerForwarded)
	h[headerForwardedFor], h[headerForwardedProto], h[headerForwardedHost] = []string{address}, []string{proto}, []string{r.Host}
}

func setMissing(h http.Header, name, value string) {
	if len(h[name]) == 0 {
		h[name] = []string{value}
	}
}
