package lbapi

import (
	"net/http"
	"strings"
)

// UpdateLoadBalancerDetails change a load balancer itself. What they do not name stays.
type UpdateLoadBalancerDetails struct {
	DisplayName               *string           `json:"displayName"`
	IsDeleteProtectionEnabled *bool             `json:"isDeleteProtectionEnabled"`
	IsRequestIDEnabled        *bool             `json:"isRequestIdEnabled"`
	RequestIDHeader           *string           `json:"requestIdHeader"`
	IPMode                    string            `json:"ipMode"`
	ReservedIPs               []ReservedIP      `json:"reservedIps"`
	FreeformTags              map[string]string `json:"freeformTags"`
	DefinedTags               Tags              `json:"definedTags"`
	SecurityAttributes        Tags              `json:"securityAttributes"`
}

// UpdateShapeDetails replace the shape of a load balancer.
type UpdateShapeDetails struct {
	ShapeName    string        `json:"shapeName"`
	ShapeDetails *ShapeDetails `json:"shapeDetails"`
}

// UpdateNetworkSecurityGroupsDetails replace the network security groups of a load balancer.
type UpdateNetworkSecurityGroupsDetails struct {
	NetworkSecurityGroupIDs []string `json:"networkSecurityGroupIds"`
}

// ChangeCompartmentDetails move a load balancer to a compartment.
type ChangeCompartmentDetails struct {
	CompartmentID string `json:"compartmentId"`
}

// Update changes a load balancer itself.
func (lb *LoadBalancer) Update(d *UpdateLoadBalancerDetails) *Error {
	lb.DisplayName = valueOr(d.DisplayName, lb.DisplayName)
	lb.IsDeleteProtectionEnabled = valueOr(d.IsDeleteProtectionEnabled, lb.IsDeleteProtectionEnabled)
	lb.IsRequestIDEnabled = valueOr(d.IsRequestIDEnabled, lb.IsRequestIDEnabled)
	lb.RequestIDHeader = valueOr(d.RequestIDHeader, lb.RequestIDHeader)
	if d.IPMode != "" {
		lb.IPMode = d.IPMode
	}
	lb.tag(d.FreeformTags, d.DefinedTags, d.SecurityAttributes)
	if err := lb.validate(d.ReservedIPs); err != nil {
		return err
	}
	if d.IPMode != "" || d.ReservedIPs != nil {
		lb.IPAddresses = lb.addresses(d.ReservedIPs)
	}
	return nil
}

// UpdateShape replaces the shape. Oracle has withdrawn all shapes but the flexible one.
func (lb *LoadBalancer) UpdateShape(d *UpdateShapeDetails) *Error {
	var c check
	c.has(d.ShapeName != "", "shapeName")
	c.that(strings.EqualFold(d.ShapeName, FlexibleShape), "Invalid shapeName '%.60s': it must be '%s'", d.ShapeName, FlexibleShape)
	c.has(d.ShapeDetails != nil, "shapeDetails")
	if c.err != nil {
		return c.err
	}
	shape := *d.ShapeDetails
	c.that(shape.MinimumBandwidthInMbps >= minBandwidth && shape.MinimumBandwidthInMbps <= shape.MaximumBandwidthInMbps &&
		shape.MaximumBandwidthInMbps <= maxBandwidth,
		"Invalid bandwidths %d and %d of the shape: they must be between %d and %d", shape.MinimumBandwidthInMbps, shape.MaximumBandwidthInMbps, minBandwidth, maxBandwidth)
	lb.ShapeName, lb.ShapeDetails = FlexibleShape, &shape
	return c.err
}

// UpdateNetworkSecurityGroups replaces the network security groups.
func (lb *LoadBalancer) UpdateNetworkSecurityGroups(d *UpdateNetworkSecurityGroupsDetails) *Error {
	var c check
	c.that(len(d.NetworkSecurityGroupIDs) <= maxSecurityGroups, "More than %d network security groups", maxSecurityGroups)
	c.ocids("networkSecurityGroupIds", d.NetworkSecurityGroupIDs)
	lb.NetworkSecurityGroupIDs = append([]string{}, d.NetworkSecurityGroupIDs...)
	return c.err
}

// ChangeCompartment moves the load balancer to a compartment.
func (lb *LoadBalancer) ChangeCompartment(d *ChangeCompartmentDetails) *Error {
	var c check
	c.has(d.CompartmentID != "", "compartmentId")
	c.ocids("compartmentId", []string{d.CompartmentID})
	lb.CompartmentID = d.CompartmentID
	return c.err
}

// CheckDelete refuses the deletion of a load balancer that is protected and takes traffic.
func (lb *LoadBalancer) CheckDelete() *Error {
	if lb.IsDeleteProtectionEnabled && len(lb.Listeners) > 0 {
		return Errorf(http.StatusConflict, CodeIncorrectState, "Load balancer %s has delete protection and listeners", lb.ID)
	}
	return nil
}
