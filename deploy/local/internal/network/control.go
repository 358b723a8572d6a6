package network

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// SetupControl configures the calling process's network namespace for the control plane.
func SetupControl() error {
	l, err := here()
	if err != nil {
		return err
	}
	defer l.h.Close()
	if err := l.up("lo"); err != nil {
		return err
	}
	if err := l.addAddress("lo", ControlIP); err != nil {
		return err
	}
	if err := l.makeLocal(ServiceCIDR); err != nil {
		return err
	}
	return makeRouter()
}

// Link is the veth pair between the control plane and one node.
type Link struct {
	index int // of the node
	pid   int // a process in the node's network namespace
}

// Direction is a direction of packets on a Link, from the perspective of the node.
type Direction struct{ In, Out bool }

// Connect connects the node whose first process is pid to the control plane. The node then calls SetupNode; a Cut before that
// lasts. The link ends with the node's namespace.
func Connect(index, pid int) (*Link, error) {
	l, err := here()
	if err != nil {
		return nil, err
	}
	defer l.h.Close()
	k := &Link{index: index, pid: pid}
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: k.name(), HardwareAddr: controlMAC(index)},
		PeerName:  "eth0", PeerNamespace: netlink.NsPid(pid), PeerHardwareAddr: nodeMAC(index),
	}
	if err := l.h.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("add link to node: %w", err)
	}
	if err := k.raise(l); err != nil {
		return nil, err
	}
	node, control := net.ParseIP(NodeIP(index)), net.ParseIP(ControlIP)
	_, pods, err := net.ParseCIDR(PodCIDR(index))
	if err != nil {
		return nil, err
	}
	if err := l.setNeighbour(k.name(), node, nodeMAC(index)); err != nil {
		return nil, err
	}
	if err := l.addRoute(k.name(), route{dst: hostNet(node), src: control}); err != nil {
		return nil, err
	}
	return k, l.addRoute(k.name(), route{dst: pods, via: node, src: control})
}

func (k *Link) name() string { return fmt.Sprintf("node-%d", k.index) }

// raise sets both ends up, first the control plane's, and makes the control plane known to the node.
func (k *Link) raise(control links) error {
	if err := control.up(k.name()); err != nil {
		return err
	}
	node, err := k.node()
	if err != nil {
		return err
	}
	defer node.h.Close()
	if err := node.up("eth0"); err != nil {
		return err
	}
	if err := node.setNeighbour("eth0", net.ParseIP(ControlIP), controlMAC(k.index)); err != nil {
		return err
	}
	return control.awaitUp(k.name())
}

// node returns the links of the node's network namespace.
func (k *Link) node() (links, error) {
	ns, err := netns.GetFromPid(k.pid)
	if err != nil {
		return links{}, fmt.Errorf("open network namespace of node: %w", err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return links{}, fmt.Errorf("enter network namespace of node: %w", err)
	}
	return links{h}, nil
}

// Cut drops the packets of exactly these directions from now on.
func (k *Link) Cut(lost Direction) error {
	l, err := here()
	if err != nil {
		return err
	}
	defer l.h.Close()
	toNode, toControl := nodeMAC(k.index), controlMAC(k.index)
	if lost.In {
		toNode = nobodyMAC
	}
	if lost.Out {
		toControl = nobodyMAC
	}
	if err := l.setNeighbour(k.name(), net.ParseIP(NodeIP(k.index)), toNode); err != nil {
		return err
	}
	node, err := k.node()
	if err != nil {
		return err
	}
	defer node.h.Close()
	return node.setNeighbour("eth0", net.ParseIP(ControlIP), toControl)
}

// SetupNode configures the calling process's network namespace for node index, after Connect added eth0. services is the
// CIDR of service addresses at which processes of the node listen.
func SetupNode(index int, services string) error {
	l, err := here()
	if err != nil {
		return err
	}
	defer l.h.Close()
	if err := l.up("lo"); err != nil {
		return err
	}
	if err := l.addAddress("eth0", NodeIP(index)); err != nil {
		return err
	}
	control := net.ParseIP(ControlIP)
	if err := l.addRoute("eth0", route{dst: hostNet(control)}); err != nil {
		return err
	}
	if err := l.addRoute("eth0", route{via: control}); err != nil {
		return err
	}
	if err := l.makeLocal(services); err != nil {
		return err
	}
	return makeRouter()
}

// Disconnect removes the link to node index, if it still exists.
func Disconnect(index int) {
	l, err := here()
	if err != nil {
		return
	}
	defer l.h.Close()
	if link, err := l.byName((&Link{index: index}).name()); err == nil {
		_ = l.h.LinkDel(link) // the kernel may have removed it
	}
}
