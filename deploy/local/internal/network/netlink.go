package network

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// links contains the netlink operations that are the same inside and outside another namespace.
type links struct{ h *netlink.Handle }

// here returns the links of the calling thread's own network namespace.
func here() (links, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return links{}, fmt.Errorf("open netlink: %w", err)
	}
	return links{h}, nil
}

func (l links) byName(name string) (netlink.Link, error) {
	link, err := l.h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	return link, nil
}

func (l links) up(name string) error {
	link, err := l.byName(name)
	if err != nil {
		return err
	}
	if err := l.h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// upTimeout is the timeout of awaitUp; the kernel needs milliseconds.
const upTimeout = 5 * time.Second

// awaitUp waits until a link can send. The end of a veth pair that was set up first becomes ready some time after the other
// one: until then the kernel silently drops its packets, and a lost SYN costs a second.
func (l links) awaitUp(name string) error {
	for deadline := time.Now().Add(upTimeout); ; time.Sleep(time.Millisecond) {
		link, err := l.byName(name)
		if err != nil {
			return err
		}
		state := link.Attrs().OperState
		if state == netlink.OperUp {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for %s to be up: it is %s", name, state)
		}
	}
}

func (l links) addAddress(name, ip string) error {
	link, err := l.byName(name)
	if err != nil {
		return err
	}
	if err := l.h.AddrAdd(link, &netlink.Addr{IPNet: hostNet(net.ParseIP(ip))}); err != nil {
		return fmt.Errorf("add %s to %s: %w", ip, name, err)
	}
	return nil
}

// route sends dst to a link, directly or by a gateway that is assumed to be on the link; src is the preferred source.
type route struct {
	dst      *net.IPNet // nil: default
	via, src net.IP
}

func (l links) addRoute(name string, r route) error {
	link, err := l.byName(name)
	if err != nil {
		return err
	}
	nr := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: r.dst, Gw: r.via, Src: r.src}
	if r.via == nil {
		nr.Scope = netlink.SCOPE_LINK
	} else {
		nr.Flags = int(netlink.FLAG_ONLINK)
	}
	if err := l.h.RouteReplace(nr); err != nil {
		return fmt.Errorf("route %v by %s: %w", r.dst, name, err)
	}
	return nil
}

// setNeighbour sets a permanent neighbor entry for ip on a link.
func (l links) setNeighbour(name string, ip net.IP, mac net.HardwareAddr) error {
	link, err := l.byName(name)
	if err != nil {
		return err
	}
	n := &netlink.Neigh{LinkIndex: link.Attrs().Index, IP: ip, HardwareAddr: mac, State: netlink.NUD_PERMANENT}
	if err := l.h.NeighSet(n); err != nil {
		return fmt.Errorf("set neighbour %s on %s: %w", ip, name, err)
	}
	return nil
}

// makeLocal makes all addresses of a CIDR local (AnyIP), so that a process can listen on each.
func (l links) makeLocal(cidr string) error {
	lo, err := l.byName("lo")
	if err != nil {
		return err
	}
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return err
	}
	r := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}
	if err := l.h.RouteReplace(r); err != nil {
		return fmt.Errorf("make %s local: %w", cidr, err)
	}
	return nil
}

func hostNet(ip net.IP) *net.IPNet { return &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)} }

// makeRouter makes the namespace forward packets, independent of the path of the replies.
func makeRouter() error {
	for file, value := range map[string]string{"ip_forward": "1", "conf/all/rp_filter": "0", "conf/default/rp_filter": "0"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+file, []byte(value), 0o644); err != nil {
			return fmt.Errorf("set net.ipv4.%s: %w", file, err)
		}
	}
	return nil
}
