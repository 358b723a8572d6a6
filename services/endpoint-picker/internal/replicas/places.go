package replicas

import (
	"net/netip"
	"sync"
)

// places are the places of clients of one pool: limit in all, of which a client has perClient at most. Loopback addresses are those of
// the sidecar of a service mesh, which all replicas share.
type places struct {
	limit, perClient int

	mu       sync.Mutex
	inUse    int
	ofClient map[netip.Addr]int
}

func newPlaces(limit, perClient int) *places {
	return &places{limit: limit, perClient: perClient, ofClient: map[netip.Addr]int{}}
}

// takePlace takes a place for a client. It returns false if there is none.
func (p *places) takePlace(client netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inUse >= p.limit || p.ofClient[client] >= p.perClient && !client.IsLoopback() {
		return false
	}
	p.inUse++
	p.ofClient[client]++
	return true
}

// freePlace returns a place.
func (p *places) freePlace(client netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse--
	if p.ofClient[client]--; p.ofClient[client] == 0 {
		delete(p.ofClient, client)
	}
}
