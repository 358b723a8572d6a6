// Package rules applies the rules of a listener's rule sets to HTTP requests:
//
//	ALLOW                                 answers 403 to clients whose address no rule allows. Conditions on VCNs match nobody.
//	CONTROL_ACCESS_USING_HTTP_METHODS     answers to other methods with the status of the rule
//	REDIRECT                              answers with the URI that the rule builds from that of the request
//	ADD, EXTEND, REMOVE ... HEADER        change the headers of requests to backends, and of their responses
//
// HTTP_HEADER and IP_BASED_MAX_CONNECTIONS have no effect.
package rules

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
	"fairlead.dev/deploy/emulators/ocilb/internal/redirect"
	"fairlead.dev/deploy/emulators/ocilb/internal/routing"
)

// Rules are the rules of a listener.
type Rules struct {
	restricted          bool // whether only some clients are allowed
	allowed             []netip.Prefix
	methods             *lbapi.Rule // nil: all methods
	paths               []routing.Path
	redirects           []lbapi.Rule // of each path
	requests, responses []lbapi.Rule // on headers
}

// New returns the rules of a listener.
func New(all []lbapi.ListenerRule) *Rules {
	rules := &Rules{}
	for i := range all {
		rule := all[i].Rule
		switch rule.Action {
		case lbapi.RuleAllow:
			rules.restricted = true
			if len(rule.Conditions) == 1 && rule.Conditions[0].AttributeName == lbapi.SourceAddress {
				if prefix, err := netip.ParsePrefix(rule.Conditions[0].AttributeValue); err == nil {
					rules.allowed = append(rules.allowed, prefix)
				}
			}
		case lbapi.RuleMethods:
			rules.methods = &rule
		case lbapi.RuleRedirect:
			if len(rule.Conditions) == 1 {
				rules.paths = append(rules.paths, routing.Path{Type: rule.Conditions[0].Operator, Text: rule.Conditions[0].AttributeValue})
				rules.redirects = append(rules.redirects, rule)
			}
		case lbapi.RuleAddRequestHeader, lbapi.RuleExtendRequestHeader, lbapi.RuleRemoveRequestHeader:
			rules.requests = append(rules.requests, rule)
		case lbapi.RuleAddResponseHeader, lbapi.RuleExtendResponseHeader, lbapi.RuleRemoveResponseHeader:
			rules.responses = append(rules.responses, rule)
		}
	}
	return rules
}

// Answer answers a request to a port that must not reach a backend, and reports whether it did.
func (s *Rules) Answer(w http.ResponseWriter, r *http.Request, port int) (done bool) {
	if s.restricted && !s.allows(r) {
		http.Error(w, "access denied", http.StatusForbidden)
		return true
	}
	if s.methods != nil && !slices.Contains(s.methods.AllowedMethods, r.Method) {
		status := http.StatusMethodNotAllowed
		if s.methods.StatusCode != nil {
			status = *s.methods.StatusCode
		}
		if status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", strings.Join(s.methods.AllowedMethods, ", "))
		}
		http.Error(w, "method not allowed", status)
		return true
	}
	i := routing.BestPath(s.paths, r.URL.Path)
	if i < 0 {
		return false
	}
	status := http.StatusFound
	if s.redirects[i].ResponseCode != nil {
		status = *s.redirects[i].ResponseCode
	}
	w.Header().Set("Location", location(s.redirects[i].RedirectURI, r, port))
	w.WriteHeader(status)
	return true
}

func (s *Rules) allows(r *http.Request) bool {
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(s.allowed, func(p netip.Prefix) bool { return p.Contains(address.Addr().Unmap()) })
}

// location returns the URI of a redirect. A change of the protocol keeps the port, as the documentation warns: http://host/ becomes
// https://host:80/ unless the rule has a port.
func location(u *lbapi.RedirectURI, r *http.Request, port int) string {
	host, portText, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, portText = r.Host, strconv.Itoa(port)
	}
	values := map[string]string{redirect.Protocol: "http", redirect.Host: host, redirect.Port: portText, redirect.Path: r.URL.EscapedPath(), redirect.Query: r.URL.RawQuery}
	if r.TLS != nil {
		values[redirect.Protocol] = "https"
	}
	if u == nil {
		u = &lbapi.RedirectURI{}
	}
	if u.Port != nil {
		portText = strconv.Itoa(*u.Port)
	}
	protocol := strings.ToLower(expand(u.Protocol, redirect.Protocol, values))
	authority := expand(u.Host, redirect.Host, values)
	if portText != map[string]string{"http": "80", "https": "443"}[protocol] {
		authority += ":" + portText
	}
	uri := protocol + "://" + authority + expand(u.Path, redirect.Path, values)
	if query := expand(u.Query, redirect.Query, values); query != "" {
		uri += "?" + strings.TrimPrefix(query, "?")
	}
	return strings.TrimRight(uri, "?&")
}

func expand(text *string, otherwise string, values map[string]string) string {
	if text != nil {
		otherwise = *text
	}
	t, err := redirect.Parse(otherwise)
	if err != nil {
		return otherwise
	}
	return t.Expand(values)
}

// Request changes the headers of a request to a backend.
func (s *Rules) Request(h http.Header) { apply(s.requests, h) }

// Response changes the headers of a response of a backend.
func (s *Rules) Response(h http.Header) { apply(s.responses, h) }

func apply(all []lbapi.Rule, h http.Header) {
	for i := range all {
		rule := &all[i]
		switch rule.Action {
		case lbapi.RuleAddRequestHeader, lbapi.RuleAddResponseHeader:
			remove(h, rule.Header)
			h.Set(rule.Header, rule.Value)
		case lbapi.RuleRemoveRequestHeader, lbapi.RuleRemoveResponseHeader:
			remove(h, rule.Header)
		default:
			extend(h, rule)
		}
	}
}

// remove removes a header in all spellings: the service does not tell dashes from underscores.
func remove(h http.Header, name string) {
	for other := range h {
		if fold(other) == fold(name) {
			delete(h, other)
		}
	}
}

// extend adds a prefix and a suffix to the value of a header, unless it has several.
func extend(h http.Header, rule *lbapi.Rule) {
	for name, values := range h {
		if fold(name) == fold(rule.Header) && len(values) == 1 {
			h[name] = []string{rule.Prefix + values[0] + rule.Suffix}
			return
		}
	}
}

func fold(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "-")) }
