package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const (
	schemeHTTP, schemeHTTPS = "http", "https"
	portHTTP, portHTTPS     = "80", "443"
)

// A Server is a model server that a URL names: http://10.0.0.1:8000. Its host may be a name with several addresses, which are several
// endpoints then.
type Server struct {
	Host string // an address, or a name in lower case
	Port uint16
	TLS  bool
}

// Address returns "host:port", an IPv6 address in brackets.
func (s *Server) Address() string { return net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port))) }

// ParseServer reads the URL of a model server.
func ParseServer(text string) (Server, error) {
	authority, found := "", false
	if _, authority, found = strings.Cut(text, "://"); !found {
		return Server{}, fmt.Errorf("%.100q has no scheme: give a URL such as http://10.0.0.1:8000", text)
	}
	if at := strings.LastIndex(authority, "@"); at >= 0 { // the message does not repeat a password
		return Server{}, fmt.Errorf("the URL of %.100q has a user name, which no model server gets: leave it out", authority[at+1:])
	}
	u, err := url.Parse(text)
	if err != nil {
		var cause *url.Error
		errors.As(err, &cause)
		return Server{}, fmt.Errorf("%.100q is not a URL such as http://10.0.0.1:8000: %w", text, cause.Err)
	}
	return readServer(text, u)
}

func readServer(text string, u *url.URL) (Server, error) {
	defaultPort := portHTTP
	switch {
	case u.Scheme == schemeHTTPS:
		defaultPort = portHTTPS
	case u.Scheme != schemeHTTP:
		return Server{}, fmt.Errorf("%.100q has another scheme than http and https: give one of them", text)
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return Server{}, fmt.Errorf("%.100q has more than a host and a port, but requests bring their own path: give %s://%s", text,
			u.Scheme, u.Host)
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), defaultPort), 10, 16)
	if err != nil || port == 0 {
		return Server{}, fmt.Errorf("%.100q has no valid port: give one from 1 to %d", text, maxPort)
	}
	host, err := parseHost(u.Hostname())
	if err != nil {
		return Server{}, fmt.Errorf("%.100q: %w", text, err)
	}
	return Server{Host: host, Port: uint16(port), TLS: u.Scheme == schemeHTTPS}, nil
}

// parseHost returns an address or a name in the form of Server.
func parseHost(text string) (string, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		ip = ip.Unmap()
		if !isHostAddress(ip) {
			return "", errors.New("it has an address that no host has: give one such as 10.0.0.1 or [fd00::1]")
		}
		return ip.String(), nil
	}
	name := strings.ToLower(text)
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
	}
	last := name[strings.LastIndex(strings.TrimSuffix(name, "."), ".")+1:] // of an address, it is a number
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, odd) || strings.Trim(last, "0123456789.") == "" {
		return "", errors.New("it has no valid host: give an address such as 10.0.0.1, [fd00::1], or a DNS name")
	}
	return name, nil
}

// isHostAddress reports whether an address may be that of a model server. Link-local addresses are those of services of the node, such as
// the metadata of clouds, which clients of the proxy listener must not reach.
func isHostAddress(ip netip.Addr) bool {
	return ip.IsValid() && ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast()
}
