package svcproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// minSyncPeriod is what lies between two looks at changed services at least, as with kube-proxy's default.
const minSyncPeriod = time.Second

// Proxy listens on service addresses.
type Proxy struct {
	directory *Directory
	nodePorts bool
	listen    func(addr string) (net.Listener, error)

	mu        sync.Mutex
	listeners map[string]*listener // by address; only Run changes it
}

// NewProxy returns a proxy for the directory's services; on nodes it serves node ports too.
func NewProxy(d *Directory, onNode bool) *Proxy {
	return &Proxy{directory: d, nodePorts: onNode, listen: listen, listeners: map[string]*listener{}}
}

// Run follows the directory until ctx ends.
func (p *Proxy) Run(ctx context.Context) {
	defer func() {
		for _, l := range p.listeners {
			l.ln.Close()
		}
	}()
	for {
		p.apply(p.wanted())
		wait := time.NewTimer(minSyncPeriod)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-p.directory.changed:
		}
	}
}

// Lookup finds the addresses behind port, by number or name, of a Service: those that Run saw last, however dead they are. Where
// it saw none, those of now, so that nobody waits for the first ones.
func (p *Proxy) Lookup(namespace, name, port string) ([]string, error) {
	svc, err := p.directory.service(namespace, name)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(svc.Spec.Ports, func(sp corev1.ServicePort) bool { return sp.Name == port || strconv.Itoa(int(sp.Port)) == port })
	if i < 0 {
		return nil, fmt.Errorf("service %s.%s has no port %s", name, namespace, port)
	}
	found := p.serving(clusterAddress(svc, svc.Spec.Ports[i]))
	if len(found) == 0 {
		found = p.directory.backends(namespace, name, svc.Spec.Ports[i].Name)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("service %s.%s has no ready endpoint for port %s", name, namespace, port)
	}
	return found, nil
}

// serving returns the endpoints behind an address on which the proxy listens.
func (p *Proxy) serving(addr string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.listeners[addr]; l != nil {
		return l.endpoints()
	}
	return nil
}

func clusterAddress(svc *corev1.Service, port corev1.ServicePort) string {
	return net.JoinHostPort(svc.Spec.ClusterIP, strconv.Itoa(int(port.Port)))
}

// wanted is what to listen on, and the endpoints behind it.
func (p *Proxy) wanted() map[string][]string {
	services, err := p.directory.services.List(labels.Everything())
	if err != nil {
		return nil // a cache's List does not fail
	}
	want := map[string][]string{}
	for _, svc := range services {
		if headless(svc) {
			continue
		}
		for _, port := range svc.Spec.Ports {
			if port.Protocol != corev1.ProtocolTCP && port.Protocol != "" {
				continue
			}
			backends := p.directory.backends(svc.Namespace, svc.Name, port.Name)
			want[clusterAddress(svc, port)] = backends
			if port.NodePort != 0 && p.nodePorts {
				want[net.JoinHostPort("0.0.0.0", strconv.Itoa(int(port.NodePort)))] = backends
			}
		}
	}
	return want
}

// apply opens and closes listeners; connections that run are left alone, as kube-proxy does.
func (p *Proxy) apply(want map[string][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, l := range p.listeners {
		if _, ok := want[addr]; !ok {
			l.ln.Close()
			delete(p.listeners, addr)
		}
	}
	for addr, backends := range want {
		l := p.listeners[addr]
		if l == nil {
			ln, err := p.listen(addr)
			if err != nil {
				klog.ErrorS(err, "Service address is not served", "address", addr)
				continue
			}
			l = &listener{ln: ln}
			p.listeners[addr] = l
			l.set(backends)
			go l.serve()
			continue
		}
		l.set(backends)
	}
}

// listen opens an address. A node port, which is on all addresses, may have the number of a service port.
func listen(addr string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); cerr != nil {
			return cerr
		}
		return err
	}}
	return lc.Listen(context.Background(), "tcp4", addr)
}

// listener is one service port.
type listener struct {
	ln       net.Listener
	mu       sync.RWMutex
	backends []string
}

func (l *listener) set(backends []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backends = backends
}

func (l *listener) endpoints() []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.backends
}

func (l *listener) serve() {
	for {
		c, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, or the client has left already
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go Forward(c, l.endpoints())
	}
}

// Forward joins a client to one of backends, by chance; when that one refuses, the client is reset, as by a closed port.
func Forward(client net.Conn, backends []string) {
	backend, err := DialOne(context.Background(), backends)
	if err != nil {
		reset(client)
		return
	}
	Splice(client, backend)
}

// ErrNoBackend says that there was nothing to connect to.
var ErrNoBackend = errors.New("no endpoint")

// DialOne connects to one of the addresses, by chance, and to no other when that fails: kube-proxy does not try again either. It
// waits as long as the kernel does.
func DialOne(ctx context.Context, addrs []string) (net.Conn, error) {
	if len(addrs) == 0 {
		return nil, ErrNoBackend
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp4", addrs[rand.IntN(len(addrs))])
}

// Splice copies both ways until both are done, passing on half-closes; an error on one side resets the other.
func Splice(a, b net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() { pass(a, b) })
	wg.Go(func() { pass(b, a) })
	wg.Wait()
	a.Close()
	b.Close()
}

func pass(from, to net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		reset(from)
		reset(to)
		return
	}
	if c, ok := to.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}
