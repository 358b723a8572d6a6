// Package lbapi defines the objects of OCI's Load Balancer API, version 20170115, as they are in requests and responses, with
// the defaults and the validation of the service.
//
// Types named Details are bodies of requests: an optional field that is missing takes the default, also in an update, which
// replaces the whole object. Only the update of a load balancer itself keeps the fields that it does not name. The texts of errors
// are those of the service where they are known.
package lbapi

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// LoadBalancer is a load balancer with everything in it. A stored LoadBalancer is immutable: Clone returns a copy whose maps
// may be changed, and whose objects may be replaced.
type LoadBalancer struct {
	ID                        string                     `json:"id"`
	CompartmentID             string                     `json:"compartmentId"`
	DisplayName               string                     `json:"displayName"`
	LifecycleState            string                     `json:"lifecycleState"`
	TimeCreated               string                     `json:"timeCreated"`
	IPAddresses               []IPAddress                `json:"ipAddresses"`
	IPMode                    string                     `json:"ipMode,omitempty"`
	ShapeName                 string                     `json:"shapeName"`
	ShapeDetails              *ShapeDetails              `json:"shapeDetails,omitempty"`
	IsPrivate                 bool                       `json:"isPrivate"`
	IsDeleteProtectionEnabled bool                       `json:"isDeleteProtectionEnabled"`
	IsRequestIDEnabled        bool                       `json:"isRequestIdEnabled"`
	RequestIDHeader           string                     `json:"requestIdHeader,omitempty"`
	SubnetIDs                 []string                   `json:"subnetIds"`
	NetworkSecurityGroupIDs   []string                   `json:"networkSecurityGroupIds"`
	Listeners                 map[string]*Listener       `json:"listeners"`
	Hostnames                 map[string]*Hostname       `json:"hostnames"`
	Certificates              map[string]*Certificate    `json:"certificates"`
	BackendSets               map[string]*BackendSet     `json:"backendSets"`
	PathRouteSets             map[string]*PathRouteSet   `json:"pathRouteSets"`
	RuleSets                  map[string]*RuleSet        `json:"ruleSets"`
	RoutingPolicies           map[string]*RoutingPolicy  `json:"routingPolicies"`
	SSLCipherSuites           map[string]*SSLCipherSuite `json:"sslCipherSuites"`
	FreeformTags              map[string]string          `json:"freeformTags"`
	DefinedTags               Tags                       `json:"definedTags"`
	SecurityAttributes        Tags                       `json:"securityAttributes"`
}

// Tags are tags by namespace and key.
type Tags map[string]map[string]any

// IPAddress is an address of a load balancer.
type IPAddress struct {
	IPAddress  string      `json:"ipAddress"`
	IsPublic   bool        `json:"isPublic"`
	ReservedIP *ReservedIP `json:"reservedIp,omitempty"`
}

// ReservedIP is an address that exists without the load balancer.
type ReservedIP struct {
	ID string `json:"id"`
}

// ShapeDetails are the bandwidths of a flexible load balancer.
type ShapeDetails struct {
	MinimumBandwidthInMbps int `json:"minimumBandwidthInMbps"`
	MaximumBandwidthInMbps int `json:"maximumBandwidthInMbps"`
}

// States of a load balancer.
const (
	Creating = "CREATING"
	Active   = "ACTIVE"
	Updating = "UPDATING" // only with the concurrency mode of network load balancers
	Deleting = "DELETING"
	Failed   = "FAILED"
)

// Values of a load balancer.
const (
	IPv4          = "IPV4"
	IPv6          = "IPV6"
	FlexibleShape = "flexible"
)

// fixedShapes are shapes that only old load balancers have.
var fixedShapes = []string{"10Mbps-Micro", "100Mbps", "400Mbps", "8000Mbps"}

// SetFixedShape gives a load balancer the shape of an old one. No request can do this.
func (lb *LoadBalancer) SetFixedShape(name string) *Error {
	if !slices.Contains(fixedShapes, name) {
		return invalid("Invalid shapeName '%.60s': it must be one of %s", name, strings.Join(fixedShapes, ", "))
	}
	lb.ShapeName, lb.ShapeDetails = name, nil
	return nil
}

// Addresses of load balancers. All have the same ones, unless a test gives them others.
const (
	addressIPv4 = "192.0.2.10"
	addressIPv6 = "2001:db8::10"
)

// New returns an active load balancer without listeners and backend sets.
func New(id, compartment, name, created string) *LoadBalancer {
	lb := &LoadBalancer{
		ID: id, CompartmentID: compartment, DisplayName: name, LifecycleState: Active, TimeCreated: created, ShapeName: FlexibleShape,
		IPMode: IPv4, ShapeDetails: &ShapeDetails{MinimumBandwidthInMbps: 10, MaximumBandwidthInMbps: 100}, SubnetIDs: []string{},
		NetworkSecurityGroupIDs: []string{}, FreeformTags: map[string]string{}, DefinedTags: Tags{}, SecurityAttributes: Tags{},
	}
	lb.IPAddresses = lb.addresses(nil)
	return lb.without()
}

// addresses returns the addresses of an active load balancer.
func (lb *LoadBalancer) addresses(reserved []ReservedIP) []IPAddress {
	a := IPAddress{IPAddress: addressIPv4, IsPublic: !lb.IsPrivate}
	if lb.IPMode == IPv6 {
		a.IPAddress = addressIPv6
	}
	if len(reserved) > 0 {
		a.ReservedIP = &ReservedIP{ID: reserved[0].ID}
	}
	return []IPAddress{a}
}

// without returns a copy that has no sub-resources.
func (lb *LoadBalancer) without() *LoadBalancer {
	c := *lb
	c.Listeners, c.Hostnames, c.Certificates = map[string]*Listener{}, map[string]*Hostname{}, map[string]*Certificate{}
	c.BackendSets, c.RoutingPolicies = map[string]*BackendSet{}, map[string]*RoutingPolicy{}
	c.SSLCipherSuites, c.PathRouteSets, c.RuleSets = map[string]*SSLCipherSuite{}, map[string]*PathRouteSet{}, map[string]*RuleSet{}
	return &c
}

// Provisional returns the load balancer as it is before its creation is done: without addresses and sub-resources.
func (lb *LoadBalancer) Provisional() *LoadBalancer {
	c := lb.without()
	c.LifecycleState, c.IPAddresses = Creating, []IPAddress{}
	return c
}

// InState returns a copy in a state.
func (lb *LoadBalancer) InState(state string) *LoadBalancer {
	c := lb.Clone()
	c.LifecycleState = state
	return c
}

// Clone returns a copy whose maps may be changed.
func (lb *LoadBalancer) Clone() *LoadBalancer {
	c := *lb
	c.Listeners, c.Hostnames, c.Certificates = maps.Clone(lb.Listeners), maps.Clone(lb.Hostnames), maps.Clone(lb.Certificates)
	c.BackendSets, c.RoutingPolicies = maps.Clone(lb.BackendSets), maps.Clone(lb.RoutingPolicies)
	c.PathRouteSets, c.RuleSets, c.SSLCipherSuites = maps.Clone(lb.PathRouteSets), maps.Clone(lb.RuleSets), maps.Clone(lb.SSLCipherSuites)
	return &c
}

// Kinds of sub-resources, as they are in paths.
const (
	KindBackendSets     = "backendSets"
	KindListeners       = "listeners"
	KindRoutingPolicies = "routingPolicies"
	KindHostnames       = "hostnames"
	KindCertificates    = "certificates"
	KindRuleSets        = "ruleSets"
	KindPathRouteSets   = "pathRouteSets"
	KindSSLCipherSuites = "sslCipherSuites"
)

// Itself is the resource that a change of a load balancer itself concerns.
const Itself = "loadBalancer"

// Resource returns the name of a sub-resource within its load balancer.
func Resource(kind, name string) string { return kind + "/" + name }

// Changed returns the resources that differ between two versions of a load balancer.
func Changed(before, after *LoadBalancer) []string {
	changed := slices.Concat(
		changedIn(KindBackendSets, before.BackendSets, after.BackendSets), changedIn(KindListeners, before.Listeners, after.Listeners),
		changedIn(KindRoutingPolicies, before.RoutingPolicies, after.RoutingPolicies),
		changedIn(KindHostnames, before.Hostnames, after.Hostnames), changedIn(KindCertificates, before.Certificates, after.Certificates),
		changedIn(KindRuleSets, before.RuleSets, after.RuleSets), changedIn(KindPathRouteSets, before.PathRouteSets, after.PathRouteSets),
		changedIn(KindSSLCipherSuites, before.SSLCipherSuites, after.SSLCipherSuites),
	)
	if !reflect.DeepEqual(before.without(), after.without()) {
		changed = append(changed, Itself)
	}
	return changed
}

func changedIn[T any](kind string, before, after map[string]*T) []string {
	var changed []string
	for name, object := range before {
		if !reflect.DeepEqual(object, after[name]) {
			changed = append(changed, Resource(kind, name))
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			changed = append(changed, Resource(kind, name))
		}
	}
	return changed
}
