// Package network builds the cluster's network out of namespaces, veth pairs and routes, without a bridge, iptables or a
// CNI plugin, and therefore without privileges outside the cluster's user namespace.
//
//	control plane 10.200.0.1           node i 10.200.0.(10+i)             pod 10.244.i.n
//	  node-i  <------ veth ------>  eth0        pod-xxxx  <---- veth ---->  eth0
//	  routes 10.244.i.0/24 to it    default     route /32 to it             default
//
// Everything is routed: the control plane forwards between nodes, each node forwards to its pods. Neighbour entries are
// permanent, because the kernel's neighbour table is shared by all namespaces of the machine and holds 1024 dynamic
// entries. Service addresses are local in the control plane, so that a proxy can listen on each, and in nodes without kube-proxy.
//
// A Link can lose all packets of one direction or of both; it does so by sending to a hardware address that nobody has,
// so neither side sees anything but silence.
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

// NodeIP is the address of node i, counted from 1.
func NodeIP(i int) string { return fmt.Sprintf("10.200.0.%d", 10+i) }

// PodCIDR is the range of node i's pods.
func PodCIDR(i int) string { return fmt.Sprintf("10.244.%d.0/24", i) }

// podGateway is the pods' default route on node i. No interface has it: a permanent neighbour entry makes it the node.
func podGateway(i int) net.IP { return net.IPv4(10, 244, byte(i), 1) }

// Hardware addresses are derived, so that both ends of a link know them without asking.
func controlMAC(i int) net.HardwareAddr { return net.HardwareAddr{0x02, 0x6c, 0x6b, 0, byte(i), 1} }
func nodeMAC(i int) net.HardwareAddr    { return net.HardwareAddr{0x02, 0x6c, 0x6b, 0, byte(i), 2} }
func gatewayMAC(i int) net.HardwareAddr { return net.HardwareAddr{0x02, 0x6c, 0x6b, 1, byte(i), 1} }

func podMAC(ip net.IP) net.HardwareAddr {
	a := netip.AddrFrom4([4]byte(ip.To4())).As4()
	return net.HardwareAddr{0x02, 0x6c, a[0], a[1], a[2], a[3]}
}

// nobodyMAC is where a cut link sends its packets.
var nobodyMAC = net.HardwareAddr{0x02, 0xde, 0xad, 0, 0, 0}
