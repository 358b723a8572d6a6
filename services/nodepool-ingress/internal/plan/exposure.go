package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// PoolAddresses returns the addresses of a pool, of either name of the field.
func PoolAddresses(p *v1alpha1.IngressPool) []string {
	if len(p.IngressIPs) > 0 {
		return p.IngressIPs
	}
	return p.IngressIPsCamel
}

func resolveAddresses(found *problems, p *v1alpha1.IngressPool) []string {
	if len(p.IngressIPs) > 0 && len(p.IngressIPsCamel) > 0 && !slices.Equal(p.IngressIPs, p.IngressIPsCamel) {
		found.addProblem(v1alpha1.ReasonFieldConflict, "ingress_ips and ingressIPs differ: set only one of them")
	}
	given := PoolAddresses(p)
	if len(given) > maxAddresses {
		found.addProblem(v1alpha1.ReasonLimitExceeded, "%d addresses are more than %d", len(given), maxAddresses)
		return nil
	}
	var unique []string
	for _, text := range given {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" {
			found.addInvalid("ingress_ips: %s is not an IP address", quoteInput(text))
			continue
		}
		if canonical := address.String(); !slices.Contains(unique, canonical) {
			unique = append(unique, canonical)
		}
	}
	slices.Sort(unique) // the order has no meaning, and must not cause a write
	return unique
}

// resolveExposure returns the exposure of a pool. A pool with addresses has externalIPs, as with OpenYurt's operator, unless its exposure
// says something else.
func resolveExposure(found *problems, given *v1alpha1.Exposure, addresses []string, policy *Policy) v1alpha1.Exposure {
	e := v1alpha1.Exposure{Type: v1alpha1.ExposureNodePort}
	switch {
	case given != nil:
		e = *given
	case len(addresses) > 0:
		e.Type = v1alpha1.ExposureExternalIPs
	}
	if !slices.Contains(v1alpha1.Exposures(), e.Type) {
		found.addInvalid("exposure.type %s is not one of %s", quoteInput(e.Type), strings.Join(v1alpha1.Exposures(), ", "))
		return e
	}
	// The flag with the ranges decides on externalIPs.
	if e.Type != v1alpha1.ExposureExternalIPs && !slices.Contains(policy.Exposures, e.Type) {
		found.addForbidden("exposure %s is not allowed: --allowed-exposures of the operator has %s", e.Type,
			strings.Join(policy.Exposures, ", "))
	}
	checkPorts(found, &e, policy)
	checkBalancerClass(found, &e, policy)
	checkAddresses(found, &e, addresses, policy)
	return e
}

// checkPorts checks ports, and sets those of exposures on nodes.
func checkPorts(found *problems, e *v1alpha1.Exposure, policy *Policy) {
	onNode := e.Type == v1alpha1.ExposureHostPort || e.Type == v1alpha1.ExposureHostNetwork
	if onNode {
		e.HTTPPort, e.HTTPSPort = cmp.Or(e.HTTPPort, 80), cmp.Or(e.HTTPSPort, 443)
		checkHostPorts(found, policy, e.HTTPPort, e.HTTPSPort)
	}
	if (e.HTTPPort != 0 || e.HTTPSPort != 0) && !onNode && e.Type != v1alpha1.ExposureNodePort {
		found.addInvalid("exposure %s has no httpPort and no httpsPort", e.Type)
	}
	if min(e.HTTPPort, e.HTTPSPort) < 0 || max(e.HTTPPort, e.HTTPSPort) > maxPort {
		found.addInvalid("exposure: a port is not between 1 and %d", maxPort)
	}
	if e.HTTPPort != 0 && e.HTTPPort == e.HTTPSPort {
		found.addInvalid("exposure: httpPort and httpsPort are both %d", e.HTTPPort)
	}
}

func checkHostPorts(found *problems, policy *Policy, ports ...int32) {
	for _, port := range ports {
		if !policy.allowsHostPort(port) {
			found.addForbidden("exposure: port %d of the nodes is not allowed: add it to --allowed-host-ports of the operator", port)
		}
	}
}

// checkBalancerClass checks the class of the load balancer. Classes differ in which clients reach the address, and in cost.
func checkBalancerClass(found *problems, e *v1alpha1.Exposure, policy *Policy) {
	switch {
	case e.LoadBalancerClass == "":
	case e.Type != v1alpha1.ExposureLoadBalancer:
		found.addInvalid("exposure %s has no loadBalancerClass", e.Type)
	case !slices.Contains(policy.BalancerClasses, e.LoadBalancerClass):
		found.addForbidden("exposure.loadBalancerClass %s is not allowed: "+
			"add it to --allowed-load-balancer-classes of the operator, or remove it", quoteInput(e.LoadBalancerClass))
	}
}

func checkAddresses(found *problems, e *v1alpha1.Exposure, addresses []string, policy *Policy) {
	switch e.Type {
	case v1alpha1.ExposureLoadBalancer:
		// Load balancers of bare metal announce each address that they are asked for, also that of a router or of another host.
		for _, text := range addresses {
			if !inRanges(policy.BalancerIPRanges, text) {
				found.addForbidden("address %s of a load balancer is not allowed: "+
					"add its range to --load-balancer-ip-ranges of the operator, or remove ingress_ips", text)
			}
		}
	case v1alpha1.ExposureExternalIPs:
		if len(addresses) == 0 {
			found.addInvalid("exposure ExternalIPs needs ingress_ips")
		}
		for _, text := range addresses {
			if !inRanges(policy.ExternalIPRanges, text) {
				found.addForbidden("external IP %s is not allowed: "+
					"add its range to --external-ip-ranges of the operator, or set an exposure such as LoadBalancer", text)
			}
		}
	default:
		if len(addresses) > 0 {
			found.addInvalid("exposure %s has no addresses: remove ingress_ips, or use LoadBalancer or ExternalIPs", e.Type)
		}
	}
}

// allowsHostPort reports whether the policy allows a port of the nodes. A host port takes a connection before a program of the node does:
// with port 10250, a pod would receive the connections to the kubelet.
func (p *Policy) allowsHostPort(port int32) bool {
	return slices.ContainsFunc(p.HostPorts, func(r PortRange) bool { return r.First <= port && port <= r.Last })
}

// inRanges reports whether one of the ranges contains an address. A Service with an external IP receives the traffic of all nodes to that
// address, also that of other tenants and to other hosts; a load balancer attracts it from the network.
func inRanges(ranges []netip.Prefix, text string) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address.Unmap()) })
}
