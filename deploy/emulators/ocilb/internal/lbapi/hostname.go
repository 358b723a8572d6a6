package lbapi

import (
	"regexp"
	"slices"
)

// Hostname is a name that listeners can have. Its request form has the same fields; Name is only in requests that create it.
type Hostname struct {
	Name     string `json:"name"`
	Hostname string `json:"hostname"`
}

// virtualHost is a domain name, with a wildcard as its first or as its last label.
var virtualHost = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$|^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.\*$`)

// PutHostname creates a hostname, or replaces it. An update without a hostname changes nothing.
func (lb *LoadBalancer) PutHostname(h *Hostname, create bool) *Error {
	if err := present(lb.Hostnames, "hostname", h.Name, create); err != nil {
		return err
	}
	host := *h
	if old := lb.Hostnames[h.Name]; old != nil && host.Hostname == "" {
		host.Hostname = old.Hostname
	}
	var c check
	c.has(host.Name != "", "name")
	c.that(len(host.Name) <= maxText, "Invalid hostname name '%.60s'", host.Name)
	c.has(host.Hostname != "", "hostname")
	c.that(len(host.Hostname) <= maxText && virtualHost.MatchString(host.Hostname), "Invalid hostname '%.60s'", host.Hostname)
	if c.err != nil {
		return c.err
	}
	lb.Hostnames[h.Name] = &host
	c.limit(len(lb.Hostnames), maxObjects, "hostnames-per-load-balancer")
	for _, l := range Sorted(lb.Listeners) {
		for _, other := range Sorted(lb.Listeners) {
			if slices.Contains(l.HostnameNames, h.Name) && other != l && other.Port == l.Port {
				c.also(l.shares(other, lb))
			}
		}
	}
	return c.err
}

// DeleteHostname removes a hostname that no listener uses.
func (lb *LoadBalancer) DeleteHostname(name string) *Error {
	if lb.Hostnames[name] == nil {
		return NotFound("hostname", name)
	}
	if err := lb.usedBy("hostname", name, func(l *Listener) bool { return slices.Contains(l.HostnameNames, name) }); err != nil {
		return err
	}
	delete(lb.Hostnames, name)
	return nil
}
