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
	"sigs.k8s.io/yaml"

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
	LoadBalancers []LoadBalancer `json:"loadBalancers,omitempty"`
	// Namespaces are the limits of namespaces; "*" has those of all others.
	Namespaces map[string]NamespaceLimits `json:"namespaces,omitempty"`
	// PodRanges are the ranges of pod addresses, in CIDR notation. Other addresses do not become backends. Empty: all may.
	PodRanges []string `json:"podRanges,omitempty"`

	ranges []netip.Prefix
}

// LoadBalancer is a load balancer that bindings may name.
type LoadBalancer struct {
	ID string `json:"id"`
	// Namespaces are the namespaces of bindings. Empty: all.
	Namespaces []string `json:"namespaces,omitempty"`
	// BackendSets are the names of backend sets that bindings may name, or patterns such as "team-a-*". Empty: all.
	BackendSets []string `json:"backendSets,omitempty"`
	// TakeOver permits bindings to take backend sets that have backends of others, and to remove these. Otherwise a set must be empty,
	// or have endpoints of the Service only, when its first binding takes it.
	TakeOver bool   `json:"takeOver,omitempty"`
	Limits   Limits `json:"limits,omitempty"`
	// Gateways permits Gateways to program listeners on the load balancer. Without it, none may.
	Gateways *Gateways `json:"gateways,omitempty"`
}

// Gateways are the Gateways that may program a load balancer, and limits that their routes share. 0 is the default.
type Gateways struct {
	// Namespaces are the namespaces of Gateways. Empty: all.
	Namespaces []string `json:"namespaces,omitempty"`
	// BackendSets and Listeners are the limits of the load balancer, of which other clients use some.
	BackendSets int `json:"backendSets,omitempty"`
	Listeners   int `json:"listeners,omitempty"`
	// Conditions is the limit of a routing policy.
	Conditions int `json:"conditions,omitempty"`
}

// Limits are the limits of a load balancer, which OCI raises on request. 0 is the default.
type Limits struct {
	BackendsPerSet int `json:"backendsPerSet,omitempty"`
	Backends       int `json:"backends,omitempty"`
	// ReservedBackends is the number of backends that draining ones leave free for new ones. -1: none.
	ReservedBackends int `json:"reservedBackends,omitempty"`
}

// NamespaceLimits limit what a namespace can take. 0 is the default.
type NamespaceLimits struct {
	Bindings           int `json:"bindings,omitempty"`
	BackendsPerBinding int `json:"backendsPerBinding,omitempty"`
	// RouteBackendSets are the backend sets that routes of the namespace are the first to need on a load balancer, and RouteConditions
	// are the conditions of its routes in one routing policy.
	RouteBackendSets int `json:"routeBackendSets,omitempty"`
	RouteConditions  int `json:"routeConditions,omitempty"`
	// BackendsPerRouteSet are the active backends of such a set.
	BackendsPerRouteSet int `json:"backendsPerRouteSet,omitempty"`
	// Certificates are the OCIDs of certificates of the certificates service that Gateways of the namespace may name. Empty: none, because the
	// credentials of the program may reach those of all tenants.
	Certificates []string `json:"certificates,omitempty"`
}

// allNamespaces is the name of the limits of namespaces without limits of their own.
const allNamespaces = "*"

// Parse reads a document. It has no warnings.
func Parse(text []byte) (*Document, []string, error) {
	var d Document
	if err := yaml.UnmarshalStrict(text, &d); err != nil {
		return nil, nil, fmt.Errorf("parse: %w", err)
	}
	if err := d.validateDocument(); err != nil {
		return nil, nil, err
	}
	return &d, nil, nil
}

func (d *Document) validateDocument() error {
	var errs []error
	seen := map[string]bool{}
	for i := range d.LoadBalancers {
		lb, field := &d.LoadBalancers[i], fmt.Sprintf("loadBalancers[%d]", i)
		if errs = append(errs, lb.validateLoadBalancer(field)); seen[lb.ID] {
			errs = append(errs, fmt.Errorf("%s.id: %q is listed twice", field, lb.ID))
		}
		seen[lb.ID] = true
	}
	for name, limits := range d.Namespaces {
		if name != allNamespaces {
			errs = append(errs, validNamespace("namespaces", name))
		}
		if min(limits.Bindings, limits.BackendsPerBinding, limits.RouteBackendSets, limits.RouteConditions, limits.BackendsPerRouteSet) < 0 {
			errs = append(errs, fmt.Errorf("namespaces.%s: a limit is negative", name))
		}
		for _, id := range limits.Certificates {
			if !IsCertificate(id) {
				errs = append(errs,
					fmt.Errorf("namespaces.%s.certificates: %q is not the OCID of a certificate, which begins with %s", name, id, certificatePrefix))
			}
		}
	}
	for _, text := range d.PodRanges {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("podRanges: %q is not a range such as 10.0.0.0/16", text))
			continue
		}
		d.ranges = append(d.ranges, prefix.Masked())
	}
	return errors.Join(errs...)
}

func (lb *LoadBalancer) validateLoadBalancer(field string) error {
	errs := []error{lb.Limits.validateLimits(field + ".limits")}
	if !strings.HasPrefix(lb.ID, "ocid1.loadbalancer.") {
		errs = append(errs, fmt.Errorf("%s.id: %q is not the OCID of a load balancer, which begins with ocid1.loadbalancer", field, lb.ID))
	}
	for _, n := range lb.Namespaces {
		errs = append(errs, validNamespace(field+".namespaces", n))
	}
	if g := lb.Gateways; g != nil {
		for _, n := range g.Namespaces {
			errs = append(errs, validNamespace(field+".gateways.namespaces", n))
		}
		if min(g.BackendSets, g.Listeners, g.Conditions) < 0 {
			errs = append(errs, fmt.Errorf("%s.gateways: a limit is negative", field))
		}
	}
	for _, pattern := range lb.BackendSets {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			errs = append(errs, fmt.Errorf("%s.backendSets: %q is not a name or a pattern", field, pattern))
		}
	}
	return errors.Join(errs...)
}

func validNamespace(field, name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%s: %q: %s", field, name, problems[0])
	}
	return nil
}

func (l Limits) validateLimits(field string) error {
	resolved := l.withDefaults()
	switch {
	case l.BackendsPerSet < 0 || l.Backends < 0 || l.ReservedBackends < -1:
		return fmt.Errorf("%s: a limit is negative", field)
	case resolved.Reserved >= min(resolved.PerSet, resolved.Total):
		return fmt.Errorf("%s.reservedBackends: %d leaves no room of %d backends", field, resolved.Reserved, min(resolved.PerSet, resolved.Total))
	}
	return nil
}

// withDefaults returns the limits with defaults.
func (l Limits) withDefaults() plan.Limits {
	limits := plan.Limits{PerSet: l.BackendsPerSet, Total: l.Backends, Reserved: max(l.ReservedBackends, 0)}
	if limits.PerSet == 0 {
		limits.PerSet = defaultBackends
	}
	if limits.Total == 0 {
		limits.Total = defaultBackends
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
	if d == nil {
		return Permission{}, errors.New("the program has no configuration: the administrator must list the load balancer in it")
	}
	i := slices.IndexFunc(d.LoadBalancers, func(lb LoadBalancer) bool { return lb.ID == loadBalancer })
	if i < 0 {
		return Permission{}, errors.New("the configuration does not list this load balancer: ask the administrator to add it")
	}
	lb := &d.LoadBalancers[i]
	switch {
	case len(lb.Namespaces) > 0 && !slices.Contains(lb.Namespaces, namespace):
		return Permission{}, fmt.Errorf("the configuration does not permit namespace %s to use this load balancer", namespace)
	case len(lb.BackendSets) > 0 && !slices.ContainsFunc(lb.BackendSets, func(pattern string) bool {
		matches, _ := path.Match(pattern, set) // patterns are valid
		return matches
	}):
		return Permission{}, fmt.Errorf("the configuration does not permit backend set %s of this load balancer", set)
	}
	limits := d.limitsOf(namespace)
	if limits.Bindings == 0 {
		limits.Bindings = defaultBindings
	}
	return Permission{
		Limits: lb.Limits.withDefaults(), Backends: limits.BackendsPerBinding, Bindings: limits.Bindings, TakeOver: lb.TakeOver,
	}, nil
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
	if d == nil {
		return GatewayLimits{}, errors.New("the program has no configuration: the administrator must list the load balancer in it")
	}
	i := slices.IndexFunc(d.LoadBalancers, func(lb LoadBalancer) bool { return lb.ID == loadBalancer })
	switch {
	case i < 0:
		return GatewayLimits{}, errors.New("the configuration does not list this load balancer: ask the administrator to add it")
	case d.LoadBalancers[i].Gateways == nil:
		return GatewayLimits{}, errors.New("the configuration does not permit Gateways on this load balancer: ask the administrator to set gateways for it")
	case len(d.LoadBalancers[i].Gateways.Namespaces) > 0 && !slices.Contains(d.LoadBalancers[i].Gateways.Namespaces, namespace):
		return GatewayLimits{}, fmt.Errorf("the configuration does not permit Gateways of namespace %s to program this load balancer", namespace)
	}
	g := d.LoadBalancers[i].Gateways
	return GatewayLimits{
		Backends: d.LoadBalancers[i].Limits.withDefaults(), BackendSets: cmp.Or(g.BackendSets, defaultBindings),
		Listeners:  cmp.Or(g.Listeners, defaultListeners),
		Conditions: cmp.Or(g.Conditions, defaultConditions),
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
