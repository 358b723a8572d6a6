// Package plan decides which objects a YurtIngress has in its pools. It checks and defaults the specification against the policy of the
// operator, builds the objects of each pool by package profile, and decides which pools change now: a roll-out visits one pool after the
// other. It is pure: the same Input has the same Plan.
package plan

import (
	"cmp"
	"net/netip"

	"fairlead.dev/services/nodepool-ingress/internal/profile"
)

// Limits of a YurtIngress. The schema has the same limits, but a CRD of OpenYurt's operator has none.
const (
	// MaxPools bounds a reconcile: building the objects of 500 pools takes about a quarter of a second of one core. It grows linearly.
	MaxPools = 500
	// maxReplicas is far above the number of nodes of a pool that serve ingress traffic.
	maxReplicas    = 1000
	maxAddresses   = 16
	maxTolerations = 16
	maxImage       = 512
	maxQuoted      = 80 // bytes of a text of a user in a message
	// MaxManifest bounds a custom manifest. A Deployment with its Service has about 4 KiB; a ConfigMap can have 1 MiB.
	MaxManifest = 256 << 10
	maxPort     = 65535
	minDeadline = 10
	maxDeadline = 86400

	defaultDeadline   = 600
	defaultMaxPending = 1
)

// Policy contains the operator's flags: the settings that all pools share, and the values that a YurtIngress may request.
type Policy struct {
	Install          profile.Install
	ClassPrefix      string
	DefaultProfile   string
	Profiles         []string
	AllowedImages    []string // repositories; one that ends with a slash permits all below it
	LabelKeys        []string // the first is the default
	Exposures        []string // types; ExternalIPRanges decide on ExternalIPs
	HostPorts        []PortRange
	ExternalIPRanges []netip.Prefix
	BalancerClasses  []string // besides the load balancer of the cluster, which has no class
	BalancerIPRanges []netip.Prefix
}

// PortRange is a range of ports, with both ends.
type PortRange struct{ First, Last int32 }

// ClassName returns the name of the IngressClass of a pool.
func (p *Policy) ClassName(pool string) string { return p.ClassPrefix + pool }

// Problem is a reason for which a pool is not accepted.
type Problem = profile.Problem

// DefaultImage returns the image of pools without an image of their own.
func (p *Policy) DefaultImage(s *Settings) string {
	return cmp.Or(s.Image, p.Install.Images[s.Profile])
}
