package lbapi

import "slices"

// BackendSet is a backend set.
type BackendSet struct {
	Name                                    string                                   `json:"name"`
	Policy                                  string                                   `json:"policy"`
	Backends                                []Backend                                `json:"backends"`
	BackendMaxConnections                   *int                                     `json:"backendMaxConnections,omitempty"`
	HealthChecker                           HealthChecker                            `json:"healthChecker"`
	SSLConfiguration                        *SSLConfiguration                        `json:"sslConfiguration,omitempty"`
	SessionPersistenceConfiguration         *SessionPersistenceConfiguration         `json:"sessionPersistenceConfiguration,omitempty"`
	LBCookieSessionPersistenceConfiguration *LBCookieSessionPersistenceConfiguration `json:"lbCookieSessionPersistenceConfiguration,omitempty"`
}

// BackendSetDetails are a backend set in a request. Name is only in requests that create it.
type BackendSetDetails struct {
	Name                                    string                                   `json:"name"`
	Policy                                  string                                   `json:"policy"`
	Backends                                []BackendDetails                         `json:"backends"`
	BackendMaxConnections                   *int                                     `json:"backendMaxConnections"`
	HealthChecker                           *HealthCheckerDetails                    `json:"healthChecker"`
	SSLConfiguration                        *SSLConfiguration                        `json:"sslConfiguration"`
	SessionPersistenceConfiguration         *SessionPersistenceConfiguration         `json:"sessionPersistenceConfiguration"`
	LBCookieSessionPersistenceConfiguration *LBCookieSessionPersistenceConfiguration `json:"lbCookieSessionPersistenceConfiguration"`
}

// Policies of a backend set.
const (
	RoundRobin       = "ROUND_ROBIN"
	LeastConnections = "LEAST_CONNECTIONS"
	IPHash           = "IP_HASH"
)

// Policies returns the policies of backend sets.
func Policies() []string { return []string{RoundRobin, LeastConnections, IPHash} }

// BackendSet returns the backend set of a request.
func (d *BackendSetDetails) BackendSet(name string, limits Limits) (*BackendSet, *Error) {
	var c check
	c.has(name != "", "name")
	c.that(len(name) <= maxName && plainName.MatchString(name), "Invalid backend set name '%.60s'", name)
	c.has(d.Policy != "", "policy")
	c.that(slices.Contains(Policies(), d.Policy), "Invalid policy '%.60s'", d.Policy)
	c.has(d.HealthChecker != nil, "healthChecker")
	c.that(d.SessionPersistenceConfiguration == nil || d.LBCookieSessionPersistenceConfiguration == nil,
		"sessionPersistenceConfiguration and lbCookieSessionPersistenceConfiguration are mutually exclusive")
	c.also(d.SessionPersistenceConfiguration.validate())
	c.also(d.LBCookieSessionPersistenceConfiguration.validate())
	c.connections(d.BackendMaxConnections)
	c.also(d.SSLConfiguration.validate())
	if c.err != nil {
		return nil, c.err
	}
	checker, err := d.HealthChecker.HealthChecker()
	c.also(err)
	set := &BackendSet{
		Name: name, Policy: d.Policy, Backends: []Backend{}, BackendMaxConnections: d.BackendMaxConnections, HealthChecker: checker,
		SSLConfiguration: d.SSLConfiguration.withDefaults(), SessionPersistenceConfiguration: d.SessionPersistenceConfiguration,
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

// validateReferences checks what a set refers to.
func (s *BackendSet) validateReferences(lb *LoadBalancer) *Error {
	ssl := s.SSLConfiguration
	if ssl == nil {
		return nil
	}
	var c check
	c.also(ssl.validateReferences(lb))
	if valueOr(ssl.VerifyPeerCertificate, false) {
		known := ssl.CertificateName != nil && lb.Certificates[*ssl.CertificateName] != nil &&
			lb.Certificates[*ssl.CertificateName].CACertificate != ""
		c.that(known || len(ssl.TrustedCertificateAuthorityIDs) > 0, "Backend set '%s' verifies peer certificates, and has no certificate authority to trust", s.Name)
	}
	return c.err
}

// Backend returns a backend of the set, or nil.
func (s *BackendSet) Backend(name string) *Backend {
	if i := s.index(name); i >= 0 {
		return &s.Backends[i]
	}
	return nil
}

func (s *BackendSet) index(name string) int {
	return slices.IndexFunc(s.Backends, func(b Backend) bool { return b.Name == name })
}

// with returns a copy of the set with other backends.
func (s *BackendSet) with(backends []Backend) *BackendSet {
	c := *s
	c.Backends = backends
	return &c
}

// CheckTotal checks the number of the backends of all sets.
func (lb *LoadBalancer) CheckTotal(limits Limits) *Error {
	total := 0
	for _, s := range lb.BackendSets {
		total += len(s.Backends)
	}
	var c check
	c.limit(total, limits.Backends, "backends-per-load-balancer")
	return c.err
}

// replace replaces a backend set.
func (lb *LoadBalancer) replace(s *BackendSet, limits Limits) *Error {
	if err := s.Validate(limits); err != nil {
		return err
	}
	lb.BackendSets[s.Name] = s
	return lb.CheckTotal(limits)
}

// PutBackendSet creates a backend set, or replaces it completely.
func (lb *LoadBalancer) PutBackendSet(name string, d *BackendSetDetails, create bool, limits Limits) *Error {
	if err := present(lb.BackendSets, "backend set", name, create); err != nil {
		return err
	}
	if lb.BackendSets[name] != nil && d.Backends == nil { // only an update needs them
		return missing("backends")
	}
	s, err := d.BackendSet(name, limits)
	if err != nil {
		return err
	}
	if err := s.validateReferences(lb); err != nil {
		return err
	}
	if err := lb.replace(s, limits); err != nil {
		return err
	}
	var c check
	c.limit(len(lb.BackendSets), limits.BackendSets, "backend-sets-per-load-balancer")
	c.also(lb.checkCookies(func(l *Listener) bool { return slices.Contains(lb.Targets(l), name) }))
	return c.err
}

// DeleteBackendSet removes a backend set that nothing refers to.
func (lb *LoadBalancer) DeleteBackendSet(name string) *Error {
	if lb.BackendSets[name] == nil {
		return NotFound("backend set", name)
	}
	inUse := func(kind, by string) *Error {
		return invalid("Can't remove backend set %s from load balancer %s since it is used in %s %s", name, lb.ID, kind, by)
	}
	for _, p := range Sorted(lb.RoutingPolicies) {
		if slices.Contains(p.targets(), name) {
			return inUse("routing policy", p.Name)
		}
	}
	for _, p := range Sorted(lb.PathRouteSets) {
		if slices.Contains(p.targets(), name) {
			return inUse("path route set", p.Name)
		}
	}
	for _, l := range Sorted(lb.Listeners) {
		if l.DefaultBackendSetName == name {
			return inUse("listener", l.Name)
		}
	}
	delete(lb.BackendSets, name)
	return nil
}
