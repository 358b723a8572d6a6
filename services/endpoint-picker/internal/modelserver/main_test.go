package modelserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deaf learns nothing of outliers.
type deaf struct{}

func (deaf) OnScrapeRefused(*endpoint.Endpoint) {}
func (deaf) OnScrape(*endpoint.Endpoint)        {}

// The network in memory: listeners by their addresses, and the last of the addresses.
var (
	listeners sync.Map
	lastPort  atomic.Uint32
)

// dialMemory connects to a server in memory. Other addresses refuse, as those without a server do.
func dialMemory(ctx context.Context, network, address string) (net.Conn, error) {
	l, ok := listeners.Load(address)
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return l.(*bufconn.Listener).DialContext(ctx)
}

// modelServer is a server in memory with a metrics page that a test can change.
type modelServer struct {
	http.Server

	address string
	scrapes atomic.Int64
	page    atomic.Pointer[http.HandlerFunc]

	mu     sync.Mutex
	open   map[net.Conn]bool
	opened int // connections since the start
}

func newModelServer(t *testing.T, page http.HandlerFunc) *modelServer {
	t.Helper()
	return startModelServer(t, page)
}

// startModelServer starts a server that has certificates and TLS, or neither.
func startModelServer(t *testing.T, page http.HandlerFunc, certificates ...tls.Certificate) *modelServer {
	t.Helper()
	s := &modelServer{address: fmt.Sprintf("127.0.0.1:%d", 1024+lastPort.Add(1)), open: map[net.Conn]bool{}}
	s.page.Store(&page)
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.scrapes.Add(1)
		(*s.page.Load())(w, r)
	})
	s.ConnState = s.connState
	l := bufconn.Listen(64 << 10)
	listeners.Store(s.address, l)
	done := make(chan error, 1)
	go func() {
		if certificates != nil {
			done <- s.Serve(tls.NewListener(l, &tls.Config{Certificates: certificates, ClientAuth: tls.RequestClientCert}))
			return
		}
		done <- s.Serve(l)
	}()
	t.Cleanup(func() {
		listeners.Delete(s.address)
		require.NoError(t, s.Close())
		assert.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return s
}

func (s *modelServer) connState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.open[c] = true
		s.opened++
	case http.StateClosed:
		delete(s.open, c)
	}
}

// connections returns the number of open connections, and of all since the start.
func (s *modelServer) connections() (open, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), s.opened
}

func (s *modelServer) closeConnections() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for c := range s.open {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (s *modelServer) endpoint() *endpoint.Endpoint {
	return endpoint.New(endpoint.Description{
		Identity: endpoint.Identity{Namespace: "ns", Pod: "pod", UID: "1", Address: netip.MustParseAddrPort(s.address)},
	}, time.Now(), nil)
}

// newCertificate returns the certificate of a server on the addresses of this machine, which is its own authority.
func newCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
