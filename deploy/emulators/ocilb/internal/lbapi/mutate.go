package lbapi

import (
	"maps"
	"net/http"
	"slices"
)

// Clone returns a copy whose maps may be changed.
func (lb *LoadBalancer) Clone() *LoadBalancer {
	c := *lb
	c.Listeners, c.Hostnames, c.Certificates = maps.Clone(lb.Listeners), maps.Clone(lb.Hostnames), maps.Clone(lb.Certificates)
	c.BackendSets, c.RoutingPolicies = maps.Clone(lb.BackendSets), maps.Clone(lb.RoutingPolicies)
	c.PathRouteSets, c.RuleSets, c.SSLCipherSuites = maps.Clone(lb.PathRouteSets), maps.Clone(lb.RuleSets), maps.Clone(lb.SSLCipherSuites)
	return &c
}

// New returns an active load balancer without listeners and backend sets.
func New(id, compartment, name, created string) *LoadBalancer {
	return &LoadBalancer{
		ID: id, CompartmentID: compartment, DisplayName: name, LifecycleState: Active, TimeCreated: created, ShapeName: "flexible",
		IPAddresses: []IPAddress{{IPAddress: "192.0.2.10", IsPublic: true}}, ShapeDetails: &ShapeDetails{MinimumBandwidthInMbps: 10, MaximumBandwidthInMbps: 100},
		SubnetIDs: []string{}, NetworkSecurityGroupIDs: []string{}, Listeners: map[string]*Listener{}, Hostnames: map[string]*Hostname{},
		Certificates: map[string]*Certificate{}, BackendSets: map[string]*BackendSet{}, PathRouteSets: map[string]any{}, RuleSets: map[string]any{},
		RoutingPolicies: map[string]*RoutingPolicy{}, SSLCipherSuites: map[string]any{}, FreeformTags: map[string]string{}, DefinedTags: map[string]any{},
	}
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

// AddBackend adds a backend to a set.
func (lb *LoadBalancer) AddBackend(set string, d *BackendDetails, limits Limits) *Error {
	s := lb.BackendSets[set]
	if s == nil {
		return NotFound("backend set", set)
	}
	b, err := d.Backend()
	if err != nil {
		return err
	}
	if s.Backend(b.Name) != nil {
		return Exists("backend", b.Name)
	}
	return lb.replace(s.with(append(slices.Clone(s.Backends), b)), limits)
}

// UpdateBackend changes a backend of a set.
func (lb *LoadBalancer) UpdateBackend(set, name string, d *UpdateBackendDetails, limits Limits) *Error {
	s := lb.BackendSets[set]
	if s == nil {
		return NotFound("backend set", set)
	}
	i := s.index(name)
	if i < 0 {
		return NotFound("backend", name)
	}
	b, err := d.Apply(s.Backends[i])
	if err != nil {
		return err
	}
	backends := slices.Clone(s.Backends)
	backends[i] = b
	return lb.replace(s.with(backends), limits)
}

// DeleteBackend removes a backend from a set.
func (lb *LoadBalancer) DeleteBackend(set, name string) *Error {
	s := lb.BackendSets[set]
	if s == nil {
		return NotFound("backend set", set)
	}
	i := s.index(name)
	if i < 0 {
		return NotFound("backend", name)
	}
	lb.BackendSets[set] = s.with(slices.Delete(slices.Clone(s.Backends), i, i+1))
	return nil
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
	switch {
	case create && lb.BackendSets[name] != nil:
		return Exists("backend set", name)
	case !create && lb.BackendSets[name] == nil:
		return NotFound("backend set", name)
	case !create && d.Backends == nil:
		return missing("backends")
	}
	s, err := d.BackendSet(name, limits)
	if err != nil {
		return err
	}
	if err := lb.replace(s, limits); err != nil {
		return err
	}
	var c check
	c.limit(len(lb.BackendSets), limits.BackendSets, "backend-sets-per-load-balancer")
	return c.err
}

// DeleteBackendSet removes a backend set that nothing refers to.
func (lb *LoadBalancer) DeleteBackendSet(name string) *Error {
	if lb.BackendSets[name] == nil {
		return NotFound("backend set", name)
	}
	for _, p := range lb.RoutingPolicies {
		for i := range p.Rules {
			if p.Rules[i].Actions[0].BackendSetName == name {
				return invalid("Can't remove backend set %s from load balancer %s since it is used in routing policy %s", name, lb.ID, p.Name)
			}
		}
	}
	for _, l := range lb.Listeners {
		if l.DefaultBackendSetName == name {
			return invalid("Can't remove backend set %s from load balancer %s since it is used in listener %s", name, lb.ID, l.Name)
		}
	}
	delete(lb.BackendSets, name)
	return nil
}

// PutListener creates a listener, or replaces it completely.
func (lb *LoadBalancer) PutListener(l *Listener, create bool, limits Limits) *Error {
	switch {
	case create && lb.Listeners[l.Name] != nil:
		return Exists("listener", l.Name)
	case !create && lb.Listeners[l.Name] == nil:
		return NotFound("listener", l.Name)
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

// PutRoutingPolicy creates a routing policy, or replaces its rules.
func (lb *LoadBalancer) PutRoutingPolicy(p *RoutingPolicy, create bool) *Error {
	old := lb.RoutingPolicies[p.Name]
	c := *p
	switch {
	case create && old != nil:
		return Exists("routing policy", p.Name)
	case !create && old == nil:
		return NotFound("routing policy", p.Name)
	case !create && c.ConditionLanguageVersion == "":
		c.ConditionLanguageVersion = old.ConditionLanguageVersion
	}
	if err := c.Validate(lb); err != nil {
		return err
	}
	lb.RoutingPolicies[p.Name] = &c
	return nil
}

// DeleteRoutingPolicy removes a routing policy that no listener uses.
func (lb *LoadBalancer) DeleteRoutingPolicy(name string) *Error {
	if lb.RoutingPolicies[name] == nil {
		return NotFound("routing policy", name)
	}
	for _, l := range lb.Listeners {
		if valueOr(l.RoutingPolicyName, "") == name {
			return invalid("Can't remove routing policy %s from load balancer %s since it is used in listener %s", name, lb.ID, l.Name)
		}
	}
	delete(lb.RoutingPolicies, name)
	return nil
}

// DeleteCertificate removes a certificate that nothing uses.
func (lb *LoadBalancer) DeleteCertificate(name string) *Error {
	if lb.Certificates[name] == nil {
		return NotFound("certificate", name)
	}
	uses := func(c *SSLConfiguration) bool { return c != nil && valueOr(c.CertificateName, "") == name }
	for _, l := range lb.Listeners {
		if uses(l.SSLConfiguration) {
			return Errorf(http.StatusConflict, CodeConflict, "Certificate '%s' is attached to one or more listeners", name)
		}
	}
	for _, s := range lb.BackendSets {
		if uses(s.SSLConfiguration) {
			return Errorf(http.StatusConflict, CodeConflict, "Certificate '%s' is attached to one or more backendSets", name)
		}
	}
	delete(lb.Certificates, name)
	return nil
}
