package ocilbtest

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/pkg/memnet"
)

// Network is a network in memory, of backends and of the listeners of load balancers.
type Network struct {
	mu      sync.Mutex
	servers map[string]*memnet.Listener // by address
}

// NewNetwork returns a network without servers.
func NewNetwork() *Network { return &Network{servers: map[string]*memnet.Listener{}} }

// Listen opens a port of the load balancers, which have one address.
func (n *Network) Listen(port int) (net.Listener, error) {
	return n.open(net.JoinHostPort(Address, strconv.Itoa(port)))
}

// Address is the address of the load balancers.
const Address = "192.0.2.10"

func (n *Network) open(address string) (*memnet.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.servers[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := memnet.Listen()
	n.servers[address] = l
	return l, nil
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
	l, err := n.open(address)
	if err != nil {
		t.Fatalf("serve %s: %v", address, err)
	}
	s := &Server{network: n, address: address, l: l, server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, served: make(chan struct{})}
	go func() {
		defer close(s.served)
		_ = s.server.Serve(l)
	}()
	t.Cleanup(s.Kill)
	return s
}

// Kill closes the port and all connections, as a process that is killed.
func (s *Server) Kill() {
	s.leave()
	_ = s.server.Close()
	s.l.Break()
	<-s.served
}

// Shutdown closes the port, and waits for requests in flight.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leave()
	return s.server.Shutdown(ctx)
}

func (s *Server) leave() {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if s.network.servers[s.address] == s.l {
		delete(s.network.servers, s.address)
	}
}

// Client returns an HTTP client with connections of its own.
func (n *Network) Client(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: n.Dial, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
