package decision

import (
	"net/netip"
	"sync"
)

// overdraft is the maximum use of a resource in relation to its limit. A client that joins while others use the whole limit
// still gets its share: the second one a half of the limit, the third one a third. At 1 one client could lock out all others;
// at 4 many clients together could use twice as much.
const overdraft = 2

// shares limits the use of a resource by all clients together. Up to the limit a client can use as much as it wants. Beyond
// it, only clients below their share get more, which is the limit divided by the number of clients. It is safe for concurrent
// use.
type shares struct {
	limit int64

	mu      sync.Mutex
	total   int64
	used    map[netip.Addr]int64 // more than 0
	refused int64
}

func newShares(limit int64) *shares { return &shares{limit: limit, used: map[netip.Addr]int64{}} }

// take counts n units for a client, or reports that it cannot have them.
func (s *shares) take(client netip.Addr, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.used[client]
	if s.total+n > s.limit {
		clients := int64(len(s.used))
		if used == 0 {
			clients++
		}
		if used+n > s.limit/clients || s.total+n > overdraft*s.limit {
			s.refused++
			return false
		}
	}
	s.total += n
	s.used[client] = used + n
	return true
}

// give returns n units of a client.
func (s *shares) give(client netip.Addr, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total -= n
	if s.used[client] -= n; s.used[client] <= 0 {
		delete(s.used, client)
	}
}

// usage returns the units in use, and the number of refusals.
func (s *shares) usage() (total, refused int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.refused
}
