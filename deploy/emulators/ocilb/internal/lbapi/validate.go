package lbapi

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/routing"
)

// Limits are the limits of a load balancer. Oracle raises them on request.
type Limits struct {
	BackendSets, Listeners, BackendsPerSet, Backends int
}

// DefaultLimits returns the limits of a new tenancy. Sources disagree about the backends of all sets: 512 or 1024.
func DefaultLimits() Limits {
	return Limits{BackendSets: 16, Listeners: 16, BackendsPerSet: 512, Backends: 512}
}

// Policies of a backend set.
const (
	RoundRobin       = "ROUND_ROBIN"
	LeastConnections = "LEAST_CONNECTIONS"
	IPHash           = "IP_HASH"
)

const (
	maxName           = 32
	maxPort           = 65535
	maxWeight         = 100 // of a backend
	minMaxConnections = 256
	// cipherSuiteOfReads is a value of reads that writes refuse.
	cipherSuiteOfReads = "oci-customized-ssl-cipher-suite"
)

// Defaults of the service.
const (
	defaultWeight       = 1
	defaultReturnCode   = 200
	defaultRetries      = 3
	defaultTimeout      = 3 * time.Second
	defaultInterval     = 10 * time.Second
	defaultBody         = ".*"
	minInterval         = time.Second
	maxInterval         = 30 * time.Minute
	minTimeout          = time.Millisecond
	maxTimeout          = 10 * time.Minute
	idleTimeoutOfHTTP   = 60
	idleTimeoutOfTCP    = 300
	maxIdleTimeout      = 7200
	maxRetries          = 100
	minReturnCode       = 100
	maxReturnCode       = 599
	conditionVersion    = "V1"
	httpListener        = "HTTP"
	http2Listener       = "HTTP2"
	grpcListener        = "GRPC"
	tcpListener         = "TCP"
	cipherSuiteForHTTP2 = "oci-default-http2-ssl-cipher-suite-v1"
)

var (
	setName  = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	ruleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// BackendName returns the name of a backend.
func BackendName(ip string, port int) string { return ip + ":" + strconv.Itoa(port) }

// check keeps the first error of a request.
type check struct{ err *Error }

// has requires a field to be there.
func (c *check) has(there bool, field string) { //nolint:revive // the flag is what is checked
	if !there {
		c.also(missing(field))
	}
}

// that requires a condition.
func (c *check) that(holds bool, format string, args ...any) { //nolint:revive // the flag is what is checked
	if !holds {
		c.also(invalid(format, args...))
	}
}

// limit requires a number to be within a limit of the service.
func (c *check) limit(n, limit int, name string) {
	if n > limit {
		c.also(Errorf(http.StatusBadRequest, CodeLimitExceeded, "The following service limits were exceeded: %s (%d)", name, limit))
	}
}

// also takes the error of a part, if there is one.
func (c *check) also(err *Error) {
	if c.err == nil {
		c.err = err
	}
}

// Backend returns the backend of a request.
func (d *BackendDetails) Backend() (Backend, *Error) {
	var c check
	c.has(d.IPAddress != "", "ipAddress")
	c.has(d.Port != nil, "port")
	_, err := netip.ParseAddr(d.IPAddress)
	c.that(err == nil, "Invalid IP address '%.60s' of a backend", d.IPAddress)
	if c.err != nil {
		return Backend{}, c.err
	}
	b := Backend{
		Name: BackendName(d.IPAddress, *d.Port), IPAddress: d.IPAddress, Port: *d.Port, Weight: valueOr(d.Weight, defaultWeight),
		MaxConnections: d.MaxConnections, Drain: d.Drain, Backup: d.Backup, Offline: d.Offline,
	}
	return b, b.validate()
}

// Apply replaces the changeable fields of a backend.
func (d *UpdateBackendDetails) Apply(b Backend) (Backend, *Error) {
	var c check
	c.has(d.Weight != nil, "weight")
	c.has(d.Drain != nil, "drain")
	c.has(d.Backup != nil, "backup")
	c.has(d.Offline != nil, "offline")
	if c.err != nil {
		return b, c.err
	}
	b.Weight, b.MaxConnections, b.Drain, b.Backup, b.Offline = *d.Weight, d.MaxConnections, *d.Drain, *d.Backup, *d.Offline
	return b, b.validate()
}

func (b *Backend) validate() *Error {
	var c check
	c.that(b.Port >= 1 && b.Port <= maxPort, "Port %d of backend '%s' is not between 1 and %d", b.Port, b.IPAddress, maxPort)
	c.that(b.Weight >= 1 && b.Weight <= maxWeight, "Weight %d of backend '%s' is not between 1 and %d", b.Weight, b.Name, maxWeight)
	c.connections(b.MaxConnections)
	return c.err
}

func (c *check) connections(n *int) {
	limit := valueOr(n, 0)
	c.that(limit == 0 || limit >= minMaxConnections, "Maximum connections %d is not 0 or at least %d", limit, minMaxConnections)
}

// BackendSet returns the backend set of a request.
func (d *BackendSetDetails) BackendSet(name string, limits Limits) (*BackendSet, *Error) {
	var c check
	c.has(name != "", "name")
	c.that(len(name) <= maxName && setName.MatchString(name), "Invalid backend set name '%.60s'", name)
	c.has(d.Policy != "", "policy")
	c.that(slices.Contains([]string{RoundRobin, LeastConnections, IPHash}, d.Policy), "Invalid policy '%.60s'", d.Policy)
	c.has(d.HealthChecker != nil, "healthChecker")
	c.that(d.SessionPersistenceConfiguration == nil || d.LBCookieSessionPersistenceConfiguration == nil,
		"sessionPersistenceConfiguration and lbCookieSessionPersistenceConfiguration are mutually exclusive")
	c.has(d.SessionPersistenceConfiguration == nil || d.SessionPersistenceConfiguration.CookieName != "", "cookieName")
	c.connections(d.BackendMaxConnections)
	c.ssl(d.SSLConfiguration)
	if c.err != nil {
		return nil, c.err
	}
	checker, err := d.HealthChecker.HealthChecker()
	c.also(err)
	set := &BackendSet{
		Name: name, Policy: d.Policy, Backends: []Backend{}, BackendMaxConnections: d.BackendMaxConnections, HealthChecker: checker,
		SSLConfiguration: d.SSLConfiguration, SessionPersistenceConfiguration: d.SessionPersistenceConfiguration,
		LBCookieSessionPersistenceConfiguration: d.LBCookieSessionPersistenceConfiguration,
	}
	for i := range d.Backends {
		b, err := d.Backends[i].Backend()
		c.also(err)
		set.Backends = append(set.Backends, b)
	}
	c.also(set.Validate(limits))
	return set, c.err
}

// Validate checks the backends of a set.
func (s *BackendSet) Validate(limits Limits) *Error {
	var c check
	c.limit(len(s.Backends), limits.BackendsPerSet, "backends-per-backend-set")
	names := make(map[string]bool, len(s.Backends))
	for i := range s.Backends {
		b := &s.Backends[i]
		c.that(!names[b.Name], "Backend '%s' is listed twice in backend set '%s'", b.Name, s.Name)
		c.that(!b.Backup || s.Policy != IPHash, "Backend '%s' cannot be a backup in backend set '%s' with policy %s", b.Name, s.Name, IPHash)
		names[b.Name] = true
	}
	return c.err
}

// HealthChecker returns the health check of a request.
func (d *HealthCheckerDetails) HealthChecker() (HealthChecker, *Error) {
	h := HealthChecker{
		Protocol: d.Protocol, URLPath: d.URLPath, Port: d.Port, ReturnCode: valueOr(d.ReturnCode, defaultReturnCode), Retries: valueOr(d.Retries, defaultRetries),
		TimeoutInMillis:  valueOr(d.TimeoutInMillis, int(defaultTimeout.Milliseconds())),
		IntervalInMillis: valueOr(d.IntervalInMillis, int(defaultInterval.Milliseconds())), ResponseBodyRegex: valueOr(d.ResponseBodyRegex, defaultBody),
		IsForcePlainText: d.IsForcePlainText,
	}
	var c check
	c.has(h.Protocol != "", "protocol")
	c.that(h.Protocol == "HTTP" || h.Protocol == "TCP", "Invalid protocol '%.60s' of the health checker", h.Protocol)
	c.that(h.Protocol != "HTTP" || strings.HasPrefix(h.URLPath, "/"), "Invalid urlPath '%.60s' of the health checker", h.URLPath)
	for _, n := range []struct {
		name               string
		value, least, most int
	}{
		{"port", h.Port, 0, maxPort},
		{"intervalInMillis", h.IntervalInMillis, int(minInterval.Milliseconds()), int(maxInterval.Milliseconds())},
		{"timeoutInMillis", h.TimeoutInMillis, int(minTimeout.Milliseconds()), int(maxTimeout.Milliseconds())},
		{"retries", h.Retries, 1, maxRetries},
		{"returnCode", h.ReturnCode, minReturnCode, maxReturnCode},
	} {
		c.that(n.value >= n.least && n.value <= n.most, "Invalid %s %d of the health checker", n.name, n.value)
	}
	_, err := regexp.Compile(h.ResponseBodyRegex)
	c.that(err == nil, "Invalid responseBodyRegex of the health checker")
	return h, c.err
}

func (c *check) ssl(s *SSLConfiguration) {
	c.that(s == nil || valueOr(s.CipherSuiteName, "") != cipherSuiteOfReads, "Cipher suite '%s' cannot be used in a request", cipherSuiteOfReads)
}

// Validate checks a listener of a request, and sets defaults. What it refers to must be in the load balancer.
func (l *Listener) Validate(lb *LoadBalancer) *Error {
	if l.ConnectionConfiguration == nil {
		l.ConnectionConfiguration = &ConnectionConfiguration{IdleTimeout: idleTimeoutOfHTTP}
		if l.Protocol == tcpListener {
			l.ConnectionConfiguration.IdleTimeout = idleTimeoutOfTCP
		}
	}
	var c check
	c.has(l.Name != "", "name")
	c.has(l.DefaultBackendSetName != "", "defaultBackendSetName")
	c.that(l.Port >= 1 && l.Port <= maxPort, "Invalid port %d of listener '%s'", l.Port, l.Name)
	c.that(slices.Contains([]string{httpListener, http2Listener, grpcListener, tcpListener}, l.Protocol), "Invalid protocol '%.60s' of listener '%s'", l.Protocol, l.Name)
	c.ssl(l.SSLConfiguration)
	if l.Protocol == http2Listener || l.Protocol == grpcListener {
		c.that(l.SSLConfiguration != nil && valueOr(l.SSLConfiguration.CipherSuiteName, "") == cipherSuiteForHTTP2,
			"Listener '%s' of protocol %s needs TLS and cipher suite '%s'", l.Name, l.Protocol, cipherSuiteForHTTP2)
	}
	idle := l.ConnectionConfiguration.IdleTimeout
	c.that(idle >= 1 && idle <= maxIdleTimeout, "Invalid idleTimeout %d of listener '%s'", idle, l.Name)
	c.also(l.validateReferences(lb))
	for _, other := range lb.Listeners {
		c.that(other.Name == l.Name || other.Port != l.Port || l.differs(other), "Listener '%s' already uses port %d", other.Name, l.Port)
	}
	return c.err
}

// differs reports whether two listeners can share a port: by the names of their hosts.
func (l *Listener) differs(other *Listener) bool {
	return l.Protocol != tcpListener && other.Protocol != tcpListener && !slices.Equal(other.HostnameNames, l.HostnameNames)
}

func (l *Listener) validateReferences(lb *LoadBalancer) *Error {
	var c check
	c.that(lb.BackendSets[l.DefaultBackendSetName] != nil, "Listener '%s' refers to backend set '%s', which does not exist in load balancer %s", l.Name, l.DefaultBackendSetName, lb.ID)
	if policy := valueOr(l.RoutingPolicyName, ""); policy != "" {
		c.that(lb.RoutingPolicies[policy] != nil, "Listener '%s' refers to routing policy '%s', which does not exist in load balancer %s", l.Name, policy, lb.ID)
	}
	for _, name := range l.HostnameNames {
		c.that(lb.Hostnames[name] != nil, "Listener '%s' refers to hostname '%s', which does not exist in load balancer %s", l.Name, name, lb.ID)
	}
	return c.err
}

// Validate checks a routing policy of a request.
func (p *RoutingPolicy) Validate(lb *LoadBalancer) *Error {
	var c check
	c.has(p.Name != "", "name")
	c.that(len(p.Name) <= maxName && ruleName.MatchString(p.Name), "Invalid routing policy name '%.60s'", p.Name)
	c.that(p.ConditionLanguageVersion == conditionVersion, "Invalid conditionLanguageVersion '%.60s'", p.ConditionLanguageVersion)
	c.has(len(p.Rules) > 0, "rules")
	names, conditions := map[string]bool{}, 0
	for i := range p.Rules {
		r := &p.Rules[i]
		c.that(len(r.Name) <= maxName && ruleName.MatchString(r.Name) && !names[r.Name], "Invalid rule name '%.60s' in routing policy '%s'", r.Name, p.Name)
		names[r.Name] = true
		n, err := r.validate(p.Name, lb)
		c.also(err)
		conditions += n
	}
	c.that(conditions <= routing.MaxConditions, "Routing policy '%s' has more than %d conditions", p.Name, routing.MaxConditions)
	return c.err
}

// validate checks the condition and the actions of a rule, and returns the number of its conditions.
func (r *RoutingRule) validate(policy string, lb *LoadBalancer) (conditions int, _ *Error) {
	parsed, err := routing.Parse(r.Condition)
	if err != nil {
		return 0, invalid("Invalid condition of rule '%s' in routing policy '%s': %s", r.Name, policy, err)
	}
	if len(r.Actions) != 1 || r.Actions[0].Name != ForwardToBackendSet {
		return 0, invalid("Rule '%s' in routing policy '%s' needs one action %s", r.Name, policy, ForwardToBackendSet)
	}
	if set := r.Actions[0].BackendSetName; lb.BackendSets[set] == nil {
		return 0, invalid("Routing Policy '%s' contains a rule referencing BackendSet '%s' which does not exist in load balancer %s", policy, set, lb.ID)
	}
	return parsed.Comparisons(), nil
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
