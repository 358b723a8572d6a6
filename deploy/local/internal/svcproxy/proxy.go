package svcproxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

const (
	// dialTries is how many endpoints a connection tries before its client is told.
	dialTries = 3
	// dialTimeout is what each of them gets.
	dialTimeout = time.Second
)

// Proxy listens on service addresses.
type Proxy struct {
	directory *Directory
	nodePorts bool

	listeners map[string]*listener // by address; only Run touches it
}

// NewProxy returns a proxy for the directory's services; on nodes it serves node ports too.
func NewProxy(d *Directory, onNode bool) *Proxy {
	return &Proxy{directory: d, nodePorts: onNode, listeners: map[string]*listener{}}
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
		select {
		case <-ctx.Done():
			return
		case <-p.directory.changed:
		}
	}
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
			want[net.JoinHostPort(svc.Spec.ClusterIP, strconv.Itoa(int(port.Port)))] = backends
			if port.NodePort != 0 && p.nodePorts {
				want[net.JoinHostPort("0.0.0.0", strconv.Itoa(int(port.NodePort)))] = backends
			}
		}
	}
	return want
}

// apply opens and closes listeners; connections that run are left alone, as kube-proxy does.
func (p *Proxy) apply(want map[string][]string) {
	for addr, l := range p.listeners {
		if _, ok := want[addr]; !ok {
			l.ln.Close()
			delete(p.listeners, addr)
		}
	}
	for addr, backends := range want {
		l := p.listeners[addr]
		if l == nil {
			ln, err := listen(addr)
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
		go func() {
			l.mu.RLock()
			backends := l.backends
			l.mu.RUnlock()
			Forward(c, backends)
		}()
	}
}

// Forward joins a client to one of backends, by chance; when none takes it, the client is reset, as by a closed port.
func Forward(client net.Conn, backends []string) {
	backend, err := DialAny(context.Background(), backends)
	if err != nil {
		reset(client)
		return
	}
	Splice(client, backend)
}

// ErrNoBackend says that there was nothing to connect to.
var ErrNoBackend = errors.New("no endpoint")

// DialAny connects to one of a few of the addresses, tried in random order.
func DialAny(ctx context.Context, addrs []string) (net.Conn, error) {
	err := ErrNoBackend
	for _, i := range rand.Perm(len(addrs))[:min(dialTries, len(addrs))] {
		var c net.Conn
		if c, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp4", addrs[i]); err == nil {
			return c, nil
		}
	}
	return nil, err
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
