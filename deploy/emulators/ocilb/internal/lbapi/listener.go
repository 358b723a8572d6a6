package lbapi

import (
	"maps"
	"slices"
	"strings"
)

// Listener is a listener. Its request form has the same fields; Name is only in requests that create it.
type Listener struct {
	Name                    string                   `json:"name"`
	DefaultBackendSetName   string                   `json:"defaultBackendSetName"`
	Port                    int                      `json:"port"`
	Protocol                string                   `json:"protocol"`
	HostnameNames           []string                 `json:"hostnameNames,omitempty"`
	PathRouteSetName        *string                  `json:"pathRouteSetName,omitempty"`
	SSLConfiguration        *SSLConfiguration        `json:"sslConfiguration,omitempty"`
	ConnectionConfiguration *ConnectionConfiguration `json:"connectionConfiguration,omitempty"`
	RuleSetNames            []string                 `json:"ruleSetNames,omitempty"`
	RoutingPolicyName       *string                  `json:"routingPolicyName,omitempty"`
}

// ConnectionConfiguration is the connection configuration of a listener. The idle timeout is in seconds.
type ConnectionConfiguration struct {
	IdleTimeout                    int64    `json:"idleTimeout"`
	BackendTCPProxyProtocolVersion *int     `json:"backendTcpProxyProtocolVersion,omitempty"`
	BackendTCPProxyProtocolOptions []string `json:"backendTcpProxyProtocolOptions,omitempty"`
}

// Protocols of listeners.
const (
	HTTP  = "HTTP"
	HTTP2 = "HTTP2"
	GRPC  = "GRPC"
	TCP   = "TCP"
)

// Protocols returns the protocols of listeners.
func Protocols() []string { return []string{HTTP, HTTP2, TCP, GRPC} }

const (
	idleTimeoutOfHTTP = 60
	idleTimeoutOfTCP  = 300
	maxIdleTimeout    = 7200
	maxProxyProtocol  = 2
)

// IdleTimeout returns the idle timeout of the listener in seconds.
func (l *Listener) IdleTimeout() int64 {
	switch {
	case l.ConnectionConfiguration != nil:
		return l.ConnectionConfiguration.IdleTimeout
	case l.Protocol == TCP:
		return idleTimeoutOfTCP
	}
	return idleTimeoutOfHTTP
}

// PutListener creates a listener, or replaces it completely.
func (lb *LoadBalancer) PutListener(l *Listener, create bool, limits Limits) *Error {
	if err := present(lb.Listeners, "listener", l.Name, create); err != nil {
		return err
	}
	listener := *l
	if err := listener.Validate(lb); err != nil {
		return err
	}
	lb.Listeners[l.Name] = &listener
	var c check
	c.limit(len(lb.Listeners), limits.Listeners, "listeners-per-load-balancer")
	return c.err
}

// DeleteListener removes a listener.
func (lb *LoadBalancer) DeleteListener(name string) *Error {
	if lb.Listeners[name] == nil {
		return NotFound("listener", name)
	}
	delete(lb.Listeners, name)
	return nil
}

// Validate checks a listener of a request, and sets defaults. What it refers to must be in the load balancer.
func (l *Listener) Validate(lb *LoadBalancer) *Error {
	if l.ConnectionConfiguration == nil {
		l.ConnectionConfiguration = &ConnectionConfiguration{IdleTimeout: l.IdleTimeout()}
	}
	var c check
	c.has(l.Name != "", "name")
	c.that(len(l.Name) <= maxText, "Invalid listener name '%.60s'", l.Name)
	c.has(l.DefaultBackendSetName != "", "defaultBackendSetName")
	c.that(l.Port >= 1 && l.Port <= maxPort, "Invalid port %d of listener '%s'", l.Port, l.Name)
	c.that(slices.Contains(Protocols(), l.Protocol), "Invalid protocol '%.60s' of listener '%s'", l.Protocol, l.Name)
	c.also(l.validateSSL())
	c.that(len(l.HostnameNames) <= maxObjects && len(l.RuleSetNames) <= maxObjects, "More than %d hostnames or rule sets of listener '%s'", maxObjects, l.Name)
	idle := l.ConnectionConfiguration.IdleTimeout
	c.that(idle >= 1 && idle <= maxIdleTimeout, "Invalid idleTimeout %d of listener '%s'", idle, l.Name)
	proxy := valueOr(l.ConnectionConfiguration.BackendTCPProxyProtocolVersion, 0)
	c.that(proxy >= 0 && proxy <= maxProxyProtocol, "Invalid backendTcpProxyProtocolVersion %d of listener '%s'", proxy, l.Name)
	if c.err != nil {
		return c.err
	}
	l.SSLConfiguration = l.SSLConfiguration.withDefaults()
	c.also(l.validateReferences(lb))
	for _, other := range Sorted(lb.Listeners) {
		if other.Name != l.Name && other.Port == l.Port {
			c.also(l.shares(other, lb))
		}
	}
	return c.err
}

func (l *Listener) validateSSL() *Error {
	s := l.SSLConfiguration
	var c check
	c.also(s.validate())
	if l.Protocol == HTTP2 || l.Protocol == GRPC {
		c.that(s != nil && slices.Contains(http2CipherSuites, valueOr(s.CipherSuiteName, "")),
			"Listener '%s' of protocol %s needs TLS and cipher suite '%s'", l.Name, l.Protocol, http2CipherSuites[0])
	}
	c.that(s == nil || s.CertificateName != nil || len(s.CertificateIDs) > 0, "The SSL configuration of listener '%s' needs a certificate", l.Name)
	return c.err
}

// shares checks whether two listeners can have the same port: by the names of their hosts, if they do the same with connections.
func (l *Listener) shares(other *Listener, lb *LoadBalancer) *Error {
	taken := invalid("Listener '%s' already uses port %d", other.Name, l.Port)
	if l.Protocol == TCP || l.Protocol != other.Protocol || (l.SSLConfiguration == nil) != (other.SSLConfiguration == nil) {
		return taken
	}
	own, others := lb.HostsOf(l), lb.HostsOf(other)
	if len(own) == 0 && len(others) == 0 || slices.ContainsFunc(own, func(host string) bool { return slices.Contains(others, host) }) {
		return taken
	}
	if s := l.SSLConfiguration; s != nil && !maps.Equal(asSet(s.Protocols), asSet(other.SSLConfiguration.Protocols)) {
		return invalid("Listeners '%s' and '%s' of port %d need the same protocols of TLS", l.Name, other.Name, l.Port)
	}
	return nil
}

func asSet(all []string) map[string]bool {
	set := map[string]bool{}
	for _, name := range all {
		set[name] = true
	}
	return set
}

// HostsOf returns the names of the hosts of a listener, in lower case.
func (lb *LoadBalancer) HostsOf(l *Listener) []string {
	var hosts []string
	for _, name := range l.HostnameNames {
		if h := lb.Hostnames[name]; h != nil {
			hosts = append(hosts, strings.ToLower(h.Hostname))
		}
	}
	return hosts
}

// validateReferences checks what a listener refers to, and what follows from it.
func (l *Listener) validateReferences(lb *LoadBalancer) *Error {
	var c check
	refers := func(exists bool, kind, name string) {
		c.that(exists, "Listener '%s' refers to %s '%s', which does not exist in load balancer %s", l.Name, kind, name, lb.ID)
	}
	refers(lb.BackendSets[l.DefaultBackendSetName] != nil, "backend set", l.DefaultBackendSetName)
	policy, paths := valueOr(l.RoutingPolicyName, ""), valueOr(l.PathRouteSetName, "")
	if policy != "" {
		refers(lb.RoutingPolicies[policy] != nil, "routing policy", policy)
	}
	if paths != "" {
		refers(lb.PathRouteSets[paths] != nil, "path route set", paths)
	}
	for i, name := range l.HostnameNames {
		refers(lb.Hostnames[name] != nil, "hostname", name)
		c.that(!slices.Contains(l.HostnameNames[:i], name), "Hostname '%s' is listed twice in listener '%s'", name, l.Name)
	}
	c.that(l.Protocol != TCP || policy == "" && paths == "" && len(l.HostnameNames) == 0 && len(l.RuleSetNames) == 0,
		"Listener '%s' of protocol %s cannot have hostnames, rule sets or routes", l.Name, TCP)
	c.also(l.validateCertificate(lb))
	c.also(l.validateRules(lb))
	c.also(l.validateCookies(lb))
	return c.err
}

// validateCookies refuses secure cookies without TLS.
func (l *Listener) validateCookies(lb *LoadBalancer) *Error {
	if l.Protocol != HTTP || l.SSLConfiguration != nil {
		return nil
	}
	var c check
	for _, name := range lb.Targets(l) {
		s := lb.BackendSets[name]
		c.that(s == nil || s.LBCookieSessionPersistenceConfiguration == nil ||
			!valueOr(s.LBCookieSessionPersistenceConfiguration.IsSecure, false),
			"Listener '%s' has no TLS, which the secure cookie of backend set '%s' needs", l.Name, name)
	}
	return c.err
}

func (l *Listener) validateCertificate(lb *LoadBalancer) *Error {
	s := l.SSLConfiguration
	if s == nil {
		return nil
	}
	if err := s.validateReferences(lb); err != nil {
		return err
	}
	var c check
	certificate := lb.Certificates[valueOr(s.CertificateName, "")]
	c.that(certificate == nil || certificate.PublicCertificate != "", "Certificate '%s' of listener '%s' has no public certificate", valueOr(s.CertificateName, ""), l.Name)
	if valueOr(s.VerifyPeerCertificate, false) {
		c.that(certificate != nil && certificate.CACertificate != "" || len(s.TrustedCertificateAuthorityIDs) > 0,
			"Listener '%s' verifies peer certificates, and has no certificate authority to trust", l.Name)
	}
	return c.err
}

// Targets returns the names of the backend sets to which a listener can send requests. A routing policy disables the path routes.
func (lb *LoadBalancer) Targets(l *Listener) []string {
	names := []string{l.DefaultBackendSetName}
	if policy := valueOr(l.RoutingPolicyName, ""); policy != "" {
		return append(names, lb.RoutingPolicies[policy].targets()...)
	}
	return append(names, lb.PathRouteSets[valueOr(l.PathRouteSetName, "")].targets()...)
}

// checkCookies checks the cookies of the listeners that a change of another object concerns.
func (lb *LoadBalancer) checkCookies(concerned func(l *Listener) bool) *Error {
	var c check
	for _, l := range Sorted(lb.Listeners) {
		if concerned(l) {
			c.also(l.validateCookies(lb))
		}
	}
	return c.err
}

// usedBy returns the error for an object that listeners use, or nil if none does.
func (lb *LoadBalancer) usedBy(kind, name string, uses func(l *Listener) bool) *Error {
	for _, l := range Sorted(lb.Listeners) {
		if uses(l) {
			return invalid("Can't remove %s %s from load balancer %s since it is used in listener %s", kind, name, lb.ID, l.Name)
		}
	}
	return nil
}
