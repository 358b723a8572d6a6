package lbapi

import (
	"maps"
	"slices"
	"strings"
)

// Objects are sub-resources in a request that creates a load balancer, by their names. Names within the objects can be left out.
type Objects struct {
	Listeners       map[string]*Listener           `json:"listeners"`
	Hostnames       map[string]*Hostname           `json:"hostnames"`
	BackendSets     map[string]*BackendSetDetails  `json:"backendSets"`
	Certificates    map[string]*CertificateDetails `json:"certificates"`
	SSLCipherSuites map[string]*SSLCipherSuite     `json:"sslCipherSuites"`
	PathRouteSets   map[string]*PathRouteSet       `json:"pathRouteSets"`
	RuleSets        map[string]*RuleSet            `json:"ruleSets"`
}

// CreateLoadBalancerDetails are a load balancer in a request that creates it.
type CreateLoadBalancerDetails struct {
	CompartmentID             string            `json:"compartmentId"`
	DisplayName               string            `json:"displayName"`
	ShapeName                 string            `json:"shapeName"`
	ShapeDetails              *ShapeDetails     `json:"shapeDetails"`
	SubnetIDs                 []string          `json:"subnetIds"`
	IsPrivate                 bool              `json:"isPrivate"`
	IsDeleteProtectionEnabled bool              `json:"isDeleteProtectionEnabled"`
	IsRequestIDEnabled        bool              `json:"isRequestIdEnabled"`
	RequestIDHeader           string            `json:"requestIdHeader"`
	IPMode                    string            `json:"ipMode"`
	ReservedIPs               []ReservedIP      `json:"reservedIps"`
	NetworkSecurityGroupIDs   []string          `json:"networkSecurityGroupIds"`
	FreeformTags              map[string]string `json:"freeformTags"`
	DefinedTags               Tags              `json:"definedTags"`
	SecurityAttributes        Tags              `json:"securityAttributes"`

	Objects
}

const (
	minBandwidth      = 10
	maxBandwidth      = 8000
	maxSubnets        = 2
	maxSecurityGroups = 5
	maxTags           = 64 // of a resource, in each form
)

// LoadBalancer returns the load balancer of a request, as it is when it is active.
func (d *CreateLoadBalancerDetails) LoadBalancer(id, created string, limits Limits) (*LoadBalancer, *Error) {
	var c check
	c.has(d.CompartmentID != "", "compartmentId")
	c.ocids("compartmentId", []string{d.CompartmentID})
	c.has(d.DisplayName != "", "displayName")
	c.has(d.ShapeName != "", "shapeName")
	c.has(len(d.SubnetIDs) > 0, "subnetIds")
	c.that(len(d.SubnetIDs) <= maxSubnets, "More than %d subnets", maxSubnets)
	c.ocids("subnetIds", d.SubnetIDs)
	if c.err != nil {
		return nil, c.err
	}
	lb := New(id, d.CompartmentID, d.DisplayName, created)
	lb.SubnetIDs, lb.IsPrivate, lb.IsDeleteProtectionEnabled = d.SubnetIDs, d.IsPrivate, d.IsDeleteProtectionEnabled
	lb.IsRequestIDEnabled, lb.RequestIDHeader = d.IsRequestIDEnabled, d.RequestIDHeader
	if d.IPMode != "" {
		lb.IPMode = d.IPMode
	}
	lb.tag(d.FreeformTags, d.DefinedTags, d.SecurityAttributes)
	c.also(lb.validate(d.ReservedIPs))
	c.also(lb.UpdateShape(&UpdateShapeDetails{ShapeName: d.ShapeName, ShapeDetails: d.ShapeDetails}))
	c.also(lb.UpdateNetworkSecurityGroups(&UpdateNetworkSecurityGroupsDetails{NetworkSecurityGroupIDs: d.NetworkSecurityGroupIDs}))
	if c.err != nil {
		return nil, c.err
	}
	lb.IPAddresses = lb.addresses(d.ReservedIPs)
	return lb, lb.Add(&d.Objects, nil, limits)
}

// validate checks the fields of a load balancer itself that requests can set.
func (lb *LoadBalancer) validate(reserved []ReservedIP) *Error {
	var c check
	c.that(lb.DisplayName != "" && len(lb.DisplayName) <= maxText, "Invalid displayName '%.60s'", lb.DisplayName)
	c.that(lb.IPMode == IPv4 || lb.IPMode == IPv6, "Invalid ipMode '%.60s'", lb.IPMode)
	header := lb.RequestIDHeader
	c.that(header == "" || len(header) <= maxText && token.MatchString(header) && strings.HasPrefix(strings.ToUpper(header), "X-"), "Invalid requestIdHeader '%.60s'", header)
	c.that(len(reserved) <= 1, "More than one reserved IP address")
	for _, ip := range reserved {
		c.ocids("reservedIps", []string{ip.ID})
	}
	c.that(len(lb.FreeformTags) <= maxTags && countTags(lb.DefinedTags) <= maxTags && countTags(lb.SecurityAttributes) <= maxTags,
		"More than %d tags", maxTags)
	for key, value := range lb.FreeformTags {
		c.that(key != "" && len(key) <= maxText && len(value) <= maxText, "Invalid tag '%.60s'", key)
	}
	return c.err
}

func countTags(tags Tags) int {
	n := len(tags)
	for _, namespace := range tags {
		n += len(namespace)
	}
	return n
}

// tag replaces the tags that are not nil.
func (lb *LoadBalancer) tag(freeform map[string]string, defined, security Tags) {
	if freeform != nil {
		lb.FreeformTags = freeform
	}
	if defined != nil {
		lb.DefinedTags = defined
	}
	if security != nil {
		lb.SecurityAttributes = security
	}
}

// Add adds objects in the order in which they refer to each other. A request for a load balancer has no routing policies; an
// administrator can give them.
func (lb *LoadBalancer) Add(o *Objects, policies map[string]*RoutingPolicy, limits Limits) *Error {
	var c check
	c.also(addAll(o.Hostnames, func(h *Hostname) *string { return &h.Name }, func(h *Hostname) *Error { return lb.PutHostname(h, true) }))
	c.also(addAll(o.Certificates, func(d *CertificateDetails) *string { return &d.CertificateName }, lb.PutCertificate))
	c.also(addAll(o.SSLCipherSuites, func(s *SSLCipherSuite) *string { return &s.Name },
		func(s *SSLCipherSuite) *Error { return lb.PutSSLCipherSuite(s, true) }))
	c.also(addAll(o.BackendSets, func(d *BackendSetDetails) *string { return &d.Name },
		func(d *BackendSetDetails) *Error { return lb.PutBackendSet(d.Name, d, true, limits) }))
	c.also(addAll(o.PathRouteSets, func(p *PathRouteSet) *string { return &p.Name },
		func(p *PathRouteSet) *Error { return lb.PutPathRouteSet(p, true, limits) }))
	c.also(addAll(o.RuleSets, func(s *RuleSet) *string { return &s.Name },
		func(s *RuleSet) *Error { return lb.PutRuleSet(s, true, limits) }))
	c.also(addAll(policies, func(p *RoutingPolicy) *string { return &p.Name },
		func(p *RoutingPolicy) *Error { return lb.PutRoutingPolicy(p, true) }))
	c.also(addAll(o.Listeners, func(l *Listener) *string { return &l.Name },
		func(l *Listener) *Error { return lb.PutListener(l, true, limits) }))
	return c.err
}

// addAll adds the objects of a map under their keys.
func addAll[D any](all map[string]*D, name func(d *D) *string, add func(d *D) *Error) *Error {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		d := *all[key]
		switch own := name(&d); {
		case *own == "":
			*own = key
		case *own != key:
			return invalid("Name '%.60s' differs from its key '%.60s'", *own, key)
		}
		if err := add(&d); err != nil {
			return err
		}
	}
	return nil
}
