package network

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Pod is one pod's network namespace, connected to its node.
type Pod struct {
	IP   net.IP
	file *os.File // keeps the namespace while it has no process
	link string
}

// NewPod creates a network namespace on node index with address ip. id names its link and must be unique on the node.
func NewPod(index int, ip net.IP, id string) (*Pod, error) {
	f, err := newNamespace()
	if err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	p := &Pod{IP: ip, file: f}
	if err := p.plug(index, "pod-"+id[:min(len(id), 10)]); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// newNamespace creates a network namespace. Its thread is never reused: it ends with its goroutine.
func newNamespace() (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	ch := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			ch <- result{nil, err}
			return
		}
		// As in containerd: any user may listen on low ports inside a pod.
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0o644); err != nil {
			ch <- result{nil, err}
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		ch <- result{f, err}
	}()
	r := <-ch
	return r.f, r.err
}

func (p *Pod) plug(index int, link string) error {
	node, err := here()
	if err != nil {
		return err
	}
	defer node.h.Close()
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: link, HardwareAddr: gatewayMAC(index)},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(int(p.file.Fd())), PeerHardwareAddr: podMAC(p.IP),
	}
	if err := node.h.LinkAdd(veth); err != nil {
		return fmt.Errorf("add link to pod: %w", err)
	}
	p.link = link // from here on Close removes it
	if err := node.up(p.link); err != nil {
		return err
	}
	if err := node.setNeighbour(p.link, p.IP, podMAC(p.IP)); err != nil {
		return err
	}
	if err := p.setupInside(index); err != nil {
		return err
	}
	if err := node.awaitUp(p.link); err != nil {
		return err
	}
	// Add the route last: as soon as packets can reach the pod, it can answer.
	return node.addRoute(p.link, route{dst: hostNet(p.IP), src: net.ParseIP(NodeIP(index))})
}

func (p *Pod) setupInside(index int) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(p.file.Fd()))
	if err != nil {
		return fmt.Errorf("enter network namespace of pod: %w", err)
	}
	defer h.Close()
	l, gateway := links{h}, podGateway(index)
	for _, name := range []string{"lo", "eth0"} {
		if err := l.up(name); err != nil {
			return err
		}
	}
	if err := l.addAddress("eth0", p.IP.String()); err != nil {
		return err
	}
	if err := l.setNeighbour("eth0", gateway, gatewayMAC(index)); err != nil {
		return err
	}
	if err := l.addRoute("eth0", route{dst: hostNet(gateway)}); err != nil {
		return err
	}
	return l.addRoute("eth0", route{via: gateway})
}

// Close disconnects the pod from the network; processes in the namespace keep it alive, but without a network.
func (p *Pod) Close() {
	if l, err := here(); err == nil {
		if link, err := l.byName(p.link); err == nil {
			_ = l.h.LinkDel(link)
		}
		l.h.Close()
	}
	_ = p.file.Close()
}

// Do runs f on a thread in the pod's namespace. Processes and files that f starts or opens stay there.
func (p *Pod) Do(f func() error) error {
	runtime.LockOSThread()
	self, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer self.Close()
	if err := unix.Setns(int(p.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace of pod: %w", err)
	}
	ferr := f()
	if err := unix.Setns(int(self.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("leave network namespace of pod: %w", err) // the thread stays locked and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return ferr
}
