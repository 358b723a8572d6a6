package httpproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	// dialTimeout is the time for a connection to a model server: enough for a lost SYN, which is sent again after a second.
	dialTimeout = 2 * time.Second
	// maxResponseHeader is the maximum size of a response's headers: Envoy's is 60 KiB.
	maxResponseHeader = 64 << 10
	// writeBuffer is the buffer of a connection to a model server, the size of one write of a body.
	writeBuffer = 8 << 10
	// forgetAfter is the time after which what was learned of a server is forgotten, and the server too if it has no
	// connection.
	forgetAfter = 10 * time.Minute
)

// errUnconnected means that no connection to a model server could be made.
var errUnconnected = errors.New("no connection to the model server")

// An upstream sends requests to model servers. It is safe for concurrent use.
type upstream struct {
	transport *http.Transport
	limit     int64 // of the connections to one server; 0 for none

	mu      sync.RWMutex
	servers map[string]*server // by address
}

// A server is a model server that requests are sent to.
type server struct {
	address     string
	requests    atomic.Int64
	connections atomic.Int64
	lastUsed    endpoint.AtomicMonotonic // when a request was last sent
	keepAlive   keepAlive
	tls         atomic.Pointer[tls.Config] // nil for plain HTTP
}

func newUpstream(limit int, dial func(ctx context.Context, network, address string) (net.Conn, error)) *upstream {
	u := &upstream{limit: int64(limit), servers: map[string]*server{}}
	u.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			raw, err := dial(ctx, network, address)
			if err != nil {
				return nil, errors.Join(errUnconnected, err)
			}
			s := u.serverAt(address)
			if secure := s.tls.Load(); secure != nil {
				client := tls.Client(raw, secure)
				if err := client.HandshakeContext(ctx); err != nil {
					_ = raw.Close()
					return nil, errors.Join(errUnconnected, err)
				}
				raw = client
			}
			return newServerConn(raw, s), nil
		},
		DisableCompression:     true, // bodies pass unchanged
		MaxIdleConnsPerHost:    1 << 20,
		MaxConnsPerHost:        limit,
		IdleConnTimeout:        defaultKeepAlive,
		MaxResponseHeaderBytes: maxResponseHeader,
		WriteBufferSize:        writeBuffer,
	}
	return u
}

// serverAt returns the server with an address.
func (u *upstream) serverAt(address string) *server {
	u.mu.RLock()
	s := u.servers[address]
	u.mu.RUnlock()
	if s != nil {
		return s
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if s = u.servers[address]; s == nil {
		u.forgetUnused()
		s = &server{address: address}
		s.lastUsed.Store(endpoint.ToMonotonic(time.Now()))
		u.servers[address] = s
	}
	return s
}

// forgetUnused forgets servers that were not used for long. The caller holds mu.
func (u *upstream) forgetUnused() {
	before := endpoint.ToMonotonic(time.Now()).Add(-forgetAfter)
	maps.DeleteFunc(u.servers, func(_ string, s *server) bool {
		return s.lastUsed.Load() < before && s.requests.Load() == 0 && s.connections.Load() == 0
	})
}

// reserveServer counts a request to a server. It returns nil if the server has as many as it may have connections.
func (u *upstream) reserveServer(e *endpoint.Endpoint) *server {
	s := u.serverAt(e.Address())
	if n := s.requests.Add(1); u.limit > 0 && n > u.limit {
		s.requests.Add(-1)
		return nil
	}
	s.lastUsed.Store(endpoint.ToMonotonic(time.Now()))
	s.tls.Store(e.Description().TLS)
	return s
}

// ServerStats are figures of one model server.
type ServerStats struct {
	Address     string
	Connections int
}

// serverStats returns the servers with connections, by address.
func (u *upstream) serverStats() []ServerStats {
	u.mu.RLock()
	defer u.mu.RUnlock()
	var all []ServerStats
	for _, s := range u.servers {
		if n := s.connections.Load(); n > 0 {
			all = append(all, ServerStats{Address: s.address, Connections: int(n)})
		}
	}
	slices.SortFunc(all, func(a, b ServerStats) int { return strings.Compare(a.Address, b.Address) })
	return all
}

// announcedTimeout returns the idle timeout in a Keep-Alive header, 0 if there is none.
func announcedTimeout(header string) time.Duration {
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if strings.EqualFold(name, "timeout") {
			if seconds, err := strconv.ParseUint(value, 10, 16); err == nil {
				return time.Duration(seconds) * time.Second
			}
		}
	}
	return 0
}
