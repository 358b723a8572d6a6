// A ServerSource has the model servers of URLs, for a picker without Kubernetes. An address is one endpoint. A name is resolved again and
// again, and each of its addresses is an endpoint:
//
//	the name                                what happens
//	has other addresses                     they are the endpoints, at most maxAddresses; the next look-up follows after refreshInterval
//	cannot be resolved, or has no usable    a warning; the last addresses stay, if there are any; it is tried again, after firstRetry at
//	address                                 first and after twice as long each time, up to lastRetry
//	has IPv4 and IPv6 addresses             the IPv4 addresses count: others would be the same servers, twice
//
// Two URLs with one address are one endpoint, that of the first URL.

package discovery

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	refreshInterval       = 5 * time.Second
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// lookupTimeout is longer than the 5 s after which resolvers ask the next DNS server.
	lookupTimeout = 10 * time.Second
	// syncPatience is how long the endpoints of other URLs wait at the start for a name that is not resolved.
	syncPatience = 2 * time.Second
	// maxAddresses is the number of addresses of a name that become endpoints.
	maxAddresses = 256
)

var errNoAddress = errors.New("the name has no address that a host can have")

// A lookup resolves a name, as net.Resolver.LookupNetIP does.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// ServerParams are the parameters of NewServerSource.
type ServerParams struct {
	Log     *zap.Logger
	Servers []Server    // each address once
	TLS     *tls.Config // of connections to servers with TLS, without their names
}

// ServerSource is a list of model servers.
type ServerSource struct {
	log     *zap.Logger
	servers []Server
	lookup  lookup
	changed func()

	mu        sync.Mutex
	secure    []*tls.Config  // of each server, nil without TLS
	addresses [][]netip.Addr // of each server
	resolving sync.WaitGroup // the first look-ups
}

// NewServerSource returns a ServerSource. Run resolves its names.
func NewServerSource(p ServerParams) *ServerSource {
	s := &ServerSource{
		log: p.Log, servers: p.Servers, secure: make([]*tls.Config, len(p.Servers)), lookup: net.DefaultResolver.LookupNetIP,
		addresses: make([][]netip.Addr, len(p.Servers)), changed: func() {},
	}
	s.SetTLS(p.TLS)
	for i, server := range p.Servers {
		if ip, err := netip.ParseAddr(server.Host); err == nil {
			s.addresses[i] = []netip.Addr{ip}
		} else {
			s.resolving.Add(1)
		}
	}
	return s
}

// OnChange registers the function to call when the endpoints change. Call it before Run.
func (s *ServerSource) OnChange(changed func()) { s.changed = changed }

// SetTLS sets how new connections to servers with TLS are secured, without the names of the servers.
func (s *ServerSource) SetTLS(c *tls.Config) {
	s.mu.Lock()
	for i, server := range s.servers {
		if server.TLS {
			s.secure[i] = c.Clone()
			s.secure[i].ServerName = server.Host
		}
	}
	s.mu.Unlock()
	s.changed()
}

// Run resolves the names until ctx ends.
func (s *ServerSource) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for i := range s.servers {
		if s.addresses[i] == nil { // a name: nothing else has resolved it yet
			running.Go(func() { s.followName(ctx, i) })
		}
	}
}

// WaitForSync waits until each name was looked up once, but not for long.
func (s *ServerSource) WaitForSync(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.resolving.Wait()
	}()
	select {
	case <-done:
	case <-time.After(syncPatience):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// ReadPool returns the endpoints of all addresses, sorted by address.
func (s *ServerSource) ReadPool() ([]endpoint.Description, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var endpoints []endpoint.Description
	for i, server := range s.servers {
		for _, ip := range s.addresses[i] {
			name := server.Host
			if name != ip.String() {
				name += "-" + ip.String() // the endpoints of a name need different names
			}
			endpoints = append(endpoints, endpoint.Description{
				Identity: endpoint.Identity{Namespace: defaultNamespace, Pod: name, Address: netip.AddrPortFrom(ip, server.Port)},
				TLS:      s.secure[i],
			})
		}
	}
	slices.SortStableFunc(endpoints, func(a, b endpoint.Description) int { return a.Address.Compare(b.Address) })
	return slices.CompactFunc(endpoints, func(a, b endpoint.Description) bool { return a.Address == b.Address }), nil
}

// followName resolves the name of a server until ctx ends.
func (s *ServerSource) followName(ctx context.Context, i int) {
	log := s.log.With(zap.String("server", s.servers[i].Address()))
	lookedUp := sync.OnceFunc(s.resolving.Done)
	defer lookedUp()
	var wait, retry time.Duration // retry is zero while the name is resolved
	for {
		addresses, err := s.resolveName(ctx, s.servers[i].Host)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if retry == 0 {
				log.Warn("Could not resolve model server, trying again", zap.Error(err))
			}
			retry = min(max(2*retry, firstRetry), lastRetry)
			wait = retry
		default:
			if s.setAddresses(i, addresses) || retry > 0 {
				log.Info("Resolved model server", zap.Stringers("addresses", addresses))
			}
			retry, wait = 0, refreshInterval
		}
		lookedUp()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// resolveName returns the usable addresses of a name, sorted.
func (s *ServerSource) resolveName(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, err := s.lookup(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	addresses = slices.DeleteFunc(addresses, func(ip netip.Addr) bool { return !isHostAddress(ip) })
	if slices.ContainsFunc(addresses, netip.Addr.Is4) {
		addresses = slices.DeleteFunc(addresses, netip.Addr.Is6)
	}
	if len(addresses) == 0 {
		return nil, errNoAddress
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	addresses = slices.Compact(addresses)
	if len(addresses) > maxAddresses {
		s.log.Debug("Ignored addresses of a name beyond the limit", zap.String("name", name), zap.Int("addresses", len(addresses)))
		addresses = addresses[:maxAddresses]
	}
	return addresses, nil
}

// setAddresses makes these the addresses of a server. It reports whether they are others than before.
func (s *ServerSource) setAddresses(i int, addresses []netip.Addr) bool {
	s.mu.Lock()
	same := slices.Equal(s.addresses[i], addresses)
	s.addresses[i] = addresses
	s.mu.Unlock()
	if !same {
		s.changed()
	}
	return !same
}
