// Package policy is the administrator's configuration: the load balancers that bindings and Gateways may name, and limits. Users who create
// bindings can choose neither credentials nor other load balancers.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Key is the key of the ConfigMap.
const Key = "config"

// Defaults of limits.
const (
	// defaultBackends is OCI's limit for a set, and for a load balancer according to Oracle's developers. Older documents say 1024.
	defaultBackends = 512
	// defaultReserved is the size of a roll-out step of 25 % of 64 replicas.
	defaultReserved = 16
	// defaultConditions is the number of conditions of a routing policy.
	defaultConditions = 200
	// defaultListeners is the number of listeners of a load balancer.
	defaultListeners = 16
	// shareOfRoutes divides the limits of a load balancer for the routes of one namespace: one namespace can take half of them.
	shareOfRoutes = 2
	// defaultBindings is the number of backend sets of a load balancer.
	defaultBindings = 16
)

// Document is the configuration.
type Document struct {
	LoadBalancers []LoadBalancer `yaml:"loadBalancers"`
	// Namespaces are the limits of namespaces; "*" has those of all others.
	Namespaces map[string]NamespaceLimits `yaml:"namespaces"`
	// PodRanges are the ranges of pod addresses, in CIDR notation. Other addresses do not become backends. Empty: all may.
	PodRanges []string `yaml:"podRanges"`

	ranges []netip.Prefix
}

// Source returns the document in force, or nil, and what is wrong with its last text.
type Source func() (*Document, string)

// LoadBalancer is a load balancer that bindings may name.
type LoadBalancer struct {
	ID string `yaml:"id"`
	// Namespaces are the namespaces of bindings. Empty: all.
	Namespaces []string `yaml:"namespaces"`
	// BackendSets are the names of backend sets that bindings may name, or patterns such as "team-a-*". Empty: all.
	BackendSets []string `yaml:"backendSets"`
	// TakeOver permits bindings to take backend sets that have backends of others, and to remove these. Otherwise a set must be empty,
	// or have endpoints of the Service only, when its first binding takes it.
	TakeOver bool   `yaml:"takeOver"`
	Limits   Limits `yaml:"limits"`
	// Gateways permits Gateways to program listeners on the load balancer. Without it, none may.
	Gateways *Gateways `yaml:"gateways"`
}

// Gateways are the Gateways that may program a load balancer, and limits that their routes share. 0 is the default.
type Gateways struct {
	// Namespaces are the namespaces of Gateways. Empty: all.
	Namespaces []string `yaml:"namespaces"`
	// BackendSets and Listeners are the limits of the load balancer, of which other clients use some.
	BackendSets int `yaml:"backendSets"`
	Listeners   int `yaml:"listeners"`
	// Conditions is the limit of a routing policy.
	Conditions int `yaml:"conditions"`
}

// Limits are the limits of a load balancer, which OCI raises on request. 0 is the default.
type Limits struct {
	BackendsPerSet int `yaml:"backendsPerSet"`
	Backends       int `yaml:"backends"`
	// ReservedBackends is the number of backends that draining ones leave free for new ones. -1: none.
	ReservedBackends int `yaml:"reservedBackends"`
}

// NamespaceLimits limit what a namespace can take. 0 is the default.
type NamespaceLimits struct {
	Bindings           int `yaml:"bindings"`
	BackendsPerBinding int `yaml:"backendsPerBinding"`
	// RouteBackendSets are the backend sets that routes of the namespace are the first to need on a load balancer, and RouteConditions
	// are the conditions of its routes in one routing policy.
	RouteBackendSets int `yaml:"routeBackendSets"`
	RouteConditions  int `yaml:"routeConditions"`
	// BackendsPerRouteSet are the active backends of such a set.
	BackendsPerRouteSet int `yaml:"backendsPerRouteSet"`
	// Certificates are the OCIDs of certificates of the certificates service that Gateways of the namespace may name. Empty: none, because
	// the credentials of the program may reach those of all tenants.
	Certificates []string `yaml:"certificates"`
}

// allNamespaces is the name of the limits of namespaces without limits of their own.
const allNamespaces = "*"

// maxBytes is above the size of the largest ConfigMap.
const maxBytes = 1 << 21

// Parse reads a document. Its error lists all problems with their lines.
func Parse(text []byte) (*Document, error) {
	parsed, err := strictyaml.Parse(text, strictyaml.Options{MaxBytes: maxBytes, Aliases: true, PlainStrings: true})
	if err != nil {
		return nil, err // it names the line
	}
	var d Document
	parsed.Decode(&d)
	c := checker{parsed}
	c.checkLoadBalancers(d.LoadBalancers)
	for namespace, limits := range d.Namespaces {
		c.checkNamespace("namespaces."+namespace, namespace, limits)
	}
	for i, text := range d.PodRanges {
		prefix, err := netip.ParsePrefix(text)
		c.require(err == nil, strictyaml.Indexed("podRanges", i), "%.100q is not a range such as 10.0.0.0/16", text)
		d.ranges = append(d.ranges, prefix.Masked())
	}
	if err := parsed.AllProblems(); err != nil {
		return nil, err
	}
	return &d, nil
}

// A checker records problems of values in the text.
type checker struct{ *strictyaml.Document }

// require records a problem of a field unless ok is true, or the field has a problem of its type.
func (c checker) require(ok bool, field, format string, args ...any) { //nolint:revive // as in testify
	if !ok && !c.IsInvalid(field) {
		c.Errorf(field, format, args...)
	}
}

func (c checker) checkLoadBalancers(lbs []LoadBalancer) {
	seen := map[string]bool{}
	for i, lb := range lbs {
		field := strictyaml.Indexed("loadBalancers", i)
		if c.IsInvalid(field) {
			continue // it is not a mapping
		}
		c.require(strings.HasPrefix(lb.ID, "ocid1.loadbalancer."), field+".id",
			"%.100q is not the OCID of a load balancer, which begins with ocid1.loadbalancer", lb.ID)
		c.require(!seen[lb.ID], field+".id", "%.100q is listed twice", lb.ID)
		seen[lb.ID] = true
		c.checkNames(field+".namespaces", lb.Namespaces)
		for i, pattern := range lb.BackendSets {
			_, err := path.Match(pattern, "")
			c.require(err == nil && pattern != "", strictyaml.Indexed(field+".backendSets", i), "%.100q is not a name or a pattern",
				pattern)
		}
		c.checkLimits(field+".limits", lb.Limits)
		if g := lb.Gateways; g != nil {
			field += ".gateways"
			c.checkNames(field+".namespaces", g.Namespaces)
			c.notNegative(field+".backendSets", g.BackendSets)
			c.notNegative(field+".listeners", g.Listeners)
			c.notNegative(field+".conditions", g.Conditions)
		}
	}
}

// checkNames checks a list of namespaces.
func (c checker) checkNames(field string, names []string) {
	for i, name := range names {
		c.checkName(strictyaml.Indexed(field, i), name)
	}
}

func (c checker) checkName(field, namespace string) {
	problems := validation.IsDNS1123Label(namespace)
	c.require(len(problems) == 0, field, "%.100q: %s", namespace, strings.Join(problems, "; "))
}

func (c checker) notNegative(field string, limit int) {
	c.require(limit >= 0, field, "%d is negative: give 0 for the default", limit)
}

// checkLimits checks the limits of a load balancer.
func (c checker) checkLimits(field string, l Limits) {
	c.notNegative(field+".backendsPerSet", l.BackendsPerSet)
	c.notNegative(field+".backends", l.Backends)
	c.require(l.ReservedBackends >= -1, field+".reservedBackends", "%d is negative: give -1 for none", l.ReservedBackends)
	limits := l.withDefaults()
	room := min(limits.PerSet, limits.Total)
	c.require(limits.Reserved < room || room < 0, field+".reservedBackends", "%d leaves no room of %d backends", limits.Reserved, room)
}

// checkNamespace checks the limits of a namespace.
func (c checker) checkNamespace(field, namespace string, l NamespaceLimits) {
	if namespace != allNamespaces {
		c.checkName(field, namespace)
	}
	c.notNegative(field+".bindings", l.Bindings)
	c.notNegative(field+".backendsPerBinding", l.BackendsPerBinding)
	c.notNegative(field+".routeBackendSets", l.RouteBackendSets)
	c.notNegative(field+".routeConditions", l.RouteConditions)
	c.notNegative(field+".backendsPerRouteSet", l.BackendsPerRouteSet)
	for i, id := range l.Certificates {
		c.require(IsCertificate(id), strictyaml.Indexed(field+".certificates", i),
			"%.100q is not the OCID of a certificate, which begins with %s", id, certificatePrefix)
	}
}

// withDefaults returns the limits with defaults.
func (l Limits) withDefaults() plan.Limits {
	limits := plan.Limits{
		PerSet: cmp.Or(l.BackendsPerSet, defaultBackends), Total: cmp.Or(l.Backends, defaultBackends), Reserved: max(l.ReservedBackends, 0),
	}
	if l.ReservedBackends == 0 {
		limits.Reserved = min(defaultReserved, limits.PerSet-1, limits.Total-1)
	}
	return limits
}

// Permission is what a binding may have.
type Permission struct {
	Limits   plan.Limits
	Backends int  // active ones; 0: no limit but those of the load balancer
	Bindings int  // of the namespace
	TakeOver bool // a set with backends of others
}

// PermitBinding returns what a binding may have, or an error that says why it may have nothing. d may be nil.
func (d *Document) PermitBinding(namespace, loadBalancer, set string) (Permission, error) {
	lb, err := d.findLoadBalancer(loadBalancer)
	switch {
	case err != nil:
		return Permission{}, err
	case len(lb.Namespaces) > 0 && !slices.Contains(lb.Namespaces, namespace):
		return Permission{}, fmt.Errorf("the configuration does not permit namespace %s to use this load balancer", namespace)
	case len(lb.BackendSets) > 0 && !slices.ContainsFunc(lb.BackendSets, func(pattern string) bool {
		matches, _ := path.Match(pattern, set) // patterns are valid
		return matches
	}):
		return Permission{}, fmt.Errorf("the configuration does not permit backend set %s of this load balancer", set)
	}
	return Permission{
		Limits: lb.Limits.withDefaults(), Backends: d.limitsOf(namespace).BackendsPerBinding, Bindings: d.BindingsLimit(namespace),
		TakeOver: lb.TakeOver,
	}, nil
}

// BindingsLimit returns how many bindings a namespace may have.
func (d *Document) BindingsLimit(namespace string) int {
	return cmp.Or(d.limitsOf(namespace).Bindings, defaultBindings)
}

// findLoadBalancer returns a load balancer, or why bindings and Gateways may not name it. d may be nil.
func (d *Document) findLoadBalancer(id string) (*LoadBalancer, error) {
	if d == nil {
		return nil, errors.New("the program has no configuration: the administrator must list the load balancer in it")
	}
	i := slices.IndexFunc(d.LoadBalancers, func(lb LoadBalancer) bool { return lb.ID == id })
	if i < 0 {
		return nil, errors.New("the configuration does not list this load balancer: ask the administrator to add it")
	}
	return &d.LoadBalancers[i], nil
}

func (d *Document) limitsOf(namespace string) NamespaceLimits {
	limits, found := d.Namespaces[namespace]
	if !found {
		limits = d.Namespaces[allNamespaces]
	}
	return limits
}

// GatewayLimits are the limits of the Gateways and routes of a load balancer.
type GatewayLimits struct {
	Backends                           plan.Limits
	BackendSets, Listeners, Conditions int
}

// PermitGateway returns the limits of a load balancer, or an error that says why a Gateway of a namespace may not program it. d may be
// nil.
func (d *Document) PermitGateway(namespace, loadBalancer string) (GatewayLimits, error) {
	lb, err := d.findLoadBalancer(loadBalancer)
	switch {
	case err != nil:
		return GatewayLimits{}, err
	case lb.Gateways == nil:
		return GatewayLimits{}, errors.New("the configuration does not permit Gateways on this load balancer: " +
			"ask the administrator to set gateways for it")
	case len(lb.Gateways.Namespaces) > 0 && !slices.Contains(lb.Gateways.Namespaces, namespace):
		return GatewayLimits{}, fmt.Errorf("the configuration does not permit Gateways of namespace %s to program this load balancer",
			namespace)
	}
	return GatewayLimits{
		Backends: lb.Limits.withDefaults(), BackendSets: cmp.Or(lb.Gateways.BackendSets, defaultBindings),
		Listeners: cmp.Or(lb.Gateways.Listeners, defaultListeners), Conditions: cmp.Or(lb.Gateways.Conditions, defaultConditions),
	}, nil
}

const certificatePrefix = "ocid1.certificate."

// IsCertificate reports whether a text is the OCID of a certificate.
func IsCertificate(id string) bool { return strings.HasPrefix(id, certificatePrefix) }

// PermitCertificate reports whether Gateways of a namespace may name the certificate with an OCID. d may be nil.
func (d *Document) PermitCertificate(namespace, id string) bool {
	return d != nil && slices.Contains(d.limitsOf(namespace).Certificates, id)
}

// RouteLimits are what the routes of a namespace may take of a load balancer.
type RouteLimits struct {
	BackendSets, Conditions int
	Backends                int // active ones of a set; 0: no limit but those of the load balancer
}

// RouteLimits returns what the routes of a namespace may take.
func (d *Document) RouteLimits(namespace string, gateway GatewayLimits) RouteLimits {
	limits := d.limitsOf(namespace)
	return RouteLimits{
		BackendSets: cmp.Or(limits.RouteBackendSets, max(gateway.BackendSets/shareOfRoutes, 1)),
		Conditions:  cmp.Or(limits.RouteConditions, max(gateway.Conditions/shareOfRoutes, 1)),
		Backends:    limits.BackendsPerRouteSet,
	}
}

// IsPod reports whether an address may belong to a pod.
func (d *Document) IsPod(address netip.Addr) bool {
	return len(d.ranges) == 0 || slices.ContainsFunc(d.ranges, func(p netip.Prefix) bool { return p.Contains(address) })
}
