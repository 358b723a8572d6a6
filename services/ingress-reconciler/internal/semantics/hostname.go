package semantics

import (
	"fmt"
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// parseHost returns the host of a Host header, in lower case and without the port.
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

// hostIndex finds values by the hostnames that cover a host: an exact name, "*.domain" for all names below a domain, and "" for all
// hosts.
type hostIndex[T any] map[string][]T

func (x hostIndex[T]) addValue(hostname string, v T) {
	hostname = strings.ToLower(hostname)
	if hostname == "*" {
		hostname = ""
	}
	x[hostname] = append(x[hostname], v)
}

// indexHost adds a value to one of several indexes.
func indexHost[K comparable, T any](indexes map[K]hostIndex[T], key K, hostname string, v T) {
	if indexes[key] == nil {
		indexes[key] = hostIndex[T]{}
	}
	indexes[key].addValue(hostname, v)
}

// forEachCovering calls f with each hostname that covers a host and has values, the most specific first, until f returns false.
func (x hostIndex[T]) forEachCovering(host string, f func(hostname string, values []T) bool) {
	hostnames := []string{host}
	for rest := host; ; {
		_, domain, found := strings.Cut(rest, ".")
		if !found {
			break
		}
		hostnames, rest = append(hostnames, "*."+domain), domain
	}
	for _, h := range append(hostnames, "") {
		if values := x[h]; len(values) > 0 && !f(h, values) {
			return
		}
	}
}
