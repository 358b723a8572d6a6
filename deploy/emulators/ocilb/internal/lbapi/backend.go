package lbapi

import (
	"net/netip"
	"slices"
	"strconv"
)

// Backend is a backend.
type Backend struct {
	Name           string `json:"name"`
	IPAddress      string `json:"ipAddress"`
	Port           int    `json:"port"`
	Weight         int    `json:"weight"`
	MaxConnections *int   `json:"maxConnections,omitempty"`
	Drain          bool   `json:"drain"`
	Backup         bool   `json:"backup"`
	Offline        bool   `json:"offline"`
}

// BackendDetails are a backend in a request.
type BackendDetails struct {
	IPAddress      string `json:"ipAddress"`
	Port           *int   `json:"port"`
	Weight         *int   `json:"weight"`
	MaxConnections *int   `json:"maxConnections"`
	Drain          bool   `json:"drain"`
	Backup         bool   `json:"backup"`
	Offline        bool   `json:"offline"`
}

// UpdateBackendDetails replace the changeable fields of a backend. All but one are mandatory.
type UpdateBackendDetails struct {
	Weight         *int  `json:"weight"`
	MaxConnections *int  `json:"maxConnections"`
	Drain          *bool `json:"drain"`
	Backup         *bool `json:"backup"`
	Offline        *bool `json:"offline"`
}

const (
	defaultWeight     = 1
	maxWeight         = 100
	minMaxConnections = 256
)

// BackendName returns the name of a backend.
func BackendName(ip string, port int) string { return ip + ":" + strconv.Itoa(port) }

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
