package ocilbtest

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/memnet"
)

// Network is a network in memory, of backends and of the listeners of load balancers.
type Network struct {
	mu      sync.Mutex
	servers map[string]*memnet.Listener // by address
	all     []*memnet.Listener
}

// NewNetwork returns a network without servers.
func NewNetwork() *Network { return &Network{servers: map[string]*memnet.Listener{}} }

// Listen opens a port at the address of a load balancer.
func (n *Network) Listen(address string, port int) (net.Listener, error) {
	at := net.JoinHostPort(address, strconv.Itoa(port))
	l, err := n.open(at)
	if err != nil {
		return nil, err
	}
	return &opened{Listener: l, leave: func() { n.leave(at, l) }}, nil
}

// opened is a port that is free again after Close.
type opened struct {
	*memnet.Listener

	leave func()
}

func (o *opened) Close() error {
	o.leave()
	return o.Listener.Close()
}

// Address is the address of the load balancers that have no other one.
const Address = "192.0.2.10"

func (n *Network) open(address string) (*memnet.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.servers[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := memnet.Listen()
	n.servers[address] = l
	n.all = append(n.all, l)
	return l, nil
}

// Close closes all ports, and breaks all connections: two ends that close a TLS connection in memory at the same time would wait for each
// other.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.all {
		l.Break()
	}
}

// Dial connects to an address. Without a server, the connection is refused.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.servers[address]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	conn, err := l.Dial(ctx, network, address)
	if err != nil && ctx.Err() == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return conn, err
}

// Server is a backend.
type Server struct {
	network *Network
	address string
	l       *memnet.Listener
	server  *http.Server
	served  chan struct{}
}

// Serve starts a backend. It ends with the test.
func (n *Network) Serve(t testing.TB, address string, handler http.Handler) *Server {
	t.Helper()
	return n.serve(t, address, handler, (*http.Server).Serve)
}

// ServeTLS starts a backend that has a certificate. It ends with the test.
func (n *Network) ServeTLS(t testing.TB, address string, handler http.Handler, certificate tls.Certificate) *Server {
	t.Helper()
	return n.serve(t, address, handler, func(s *http.Server, l net.Listener) error {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		s.ErrorLog = zap.NewStdLog(zap.NewNop())
		return s.ServeTLS(l, "", "")
	})
}

func (n *Network) serve(t testing.TB, address string, handler http.Handler, serve func(s *http.Server, l net.Listener) error) *Server {
	t.Helper()
	l, err := n.open(address)
	if err != nil {
		t.Fatalf("serve %s: %v", address, err)
	}
	s := &Server{
		network: n, address: address, l: l, server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute},
		served: make(chan struct{}),
	}
	go func() {
		defer close(s.served)
		_ = serve(s.server, l)
	}()
	t.Cleanup(s.Kill)
	return s
}

// Kill closes the port and all connections, as a process that is killed.
func (s *Server) Kill() {
	s.network.leave(s.address, s.l)
	_ = s.server.Close()
	s.l.Break()
	<-s.served
}

// Shutdown closes the port, and waits for requests in flight.
func (s *Server) Shutdown(ctx context.Context) error {
	s.network.leave(s.address, s.l)
	return s.server.Shutdown(ctx)
}

// leave removes a server from an address, if it is still its server.
func (n *Network) leave(address string, l *memnet.Listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.servers[address] == l {
		delete(n.servers, address)
	}
}

// Client returns an HTTP client with connections of its own.
func (n *Network) Client(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: n.Dial, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
