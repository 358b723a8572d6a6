// Package network builds the cluster's network from namespaces, veth pairs and routes. It uses no bridge, iptables or CNI
// plugin, so it needs no privileges outside the cluster's user namespace.
//
//	control plane 10.200.0.1           node i 10.200.0.(10+i)             pod 10.244.i.n
//	  node-i  <------ veth ------>  eth0        pod-xxxx  <---- veth ---->  eth0
//	  routes 10.244.i.0/24 to it    default     route /32 to it             default
//
// Everything is routed: the control plane forwards between nodes, each node forwards to its pods. Neighbor entries are
// permanent, because all namespaces of the machine share the kernel's neighbor table, which holds 1024 dynamic entries.
// Service addresses are local in the control plane, so that a proxy can listen on each, and in nodes without kube-proxy.
//
// A Link can drop all packets of one direction or of both: it sends them to an unused hardware address, so both sides see
// only silence.
package network

import (
	"fmt"
	"net"
	"net/netip"
)

// Addresses that every cluster uses inside its own namespaces.
const (
	ControlIP   = "10.200.0.1"
	ServiceCIDR = "10.96.0.0/16"
	PodsCIDR    = "10.244.0.0/16" // of all nodes
	APIService  = "10.96.0.1"     // the first of ServiceCIDR, by Kubernetes' rule
	ClusterDNS  = "10.96.0.10"
)

// NodeIP returns the address of node i, counted from 1.
func NodeIP(i int) string { return fmt.Sprintf("10.200.0.%d", 10+i) }

// PodCIDR returns the range of node i's pods.
func PodCIDR(i int) string { return fmt.Sprintf("10.244.%d.0/24", i) }

// podGateway returns the pods' default route on node i. No interface has this address: a permanent neighbor entry maps it to
// the node.
func podGateway(i int) net.IP { return net.IPv4(10, 244, byte(i), 1) }

// Hardware addresses are computed, so that both ends of a link know them.
func controlMAC(i int) net.HardwareAddr { return net.HardwareAddr{0x02, 0x6c, 0x6b, 0, byte(i), 1} }
func nodeMAC(i int) net.HardwareAddr    { return net.HardwareAddr{0x02, 0x6c, 0x6b, 0, byte(i), 2} }
func gatewayMAC(i int) net.HardwareAddr { return net.HardwareAddr{0x02, 0x6c, 0x6b, 1, byte(i), 1} }

func podMAC(ip net.IP) net.HardwareAddr {
	a := netip.AddrFrom4([4]byte(ip.To4())).As4()
	return net.HardwareAddr{0x02, 0x6c, a[0], a[1], a[2], a[3]}
}

// nobodyMAC is the destination of packets on a cut link.
var nobodyMAC = net.HardwareAddr{0x02, 0xde, 0xad, 0, 0, 0}
