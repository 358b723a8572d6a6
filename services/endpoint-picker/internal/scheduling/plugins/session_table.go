package plugins

import (
	"container/list"
	"hash/maphash"
	"sync"
	"time"
	"unique"
)

const (
	// maxSessions is the maximum number of sessions. With the entries' fixed size it bounds the memory: 100 000 take
	// about 20 MiB.
	maxSessions = 100_000
	// sweepBatch is the maximum number of removed sessions in one call of bind, so that no request waits longer than about
	// 20 µs for the others. Twice as many double that; half as many suffice too, while each call adds at most one session.
	sweepBatch = 128
)

// sessionTable stores the endpoint of each session, by an identifier that clients give the session.
//
// A session expires when it has not been used for a while. When there are too many, the least recently used one is removed.
// Clients choose the identifiers, of any length. So the table holds hashes of them, with a random seed: two sessions with one
// hash share an endpoint, and nobody can find such identifiers. The names of endpoints are stored once.
//
// Pickers share nothing: a session with requests through several pickers should carry its endpoint itself, in a header.
//
// LRUExpireCache of k8s.io/apimachinery does not fit: it never removes expired entries that nobody asks for, so
// evictionSweepSeconds would have no effect, and it allocates for each key.
type sessionTable struct {
	ttl, sweep time.Duration
	seed       maphash.Seed

	mu      sync.Mutex
	byHash  map[uint64]*list.Element
	order   list.List // of *sessionEntry, least recently used first
	sweptAt time.Time // the end of the last sweep
}

// sessionServer names an endpoint.
type sessionServer struct {
	name string // "namespace/pod"
	port uint16
}

type sessionEntry struct {
	hash   uint64
	server unique.Handle[sessionServer]
	used   time.Time
}

func newSessionTable(ttl, sweep time.Duration) *sessionTable {
	return &sessionTable{ttl: ttl, sweep: sweep, seed: maphash.MakeSeed(), byHash: map[uint64]*list.Element{}}
}

// findSession returns the endpoint of a session that was used within the time to live.
func (t *sessionTable) findSession(id string, now time.Time) (sessionServer, bool) {
	hash := maphash.String(t.seed, id)
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byHash[hash]
	if e == nil {
		return sessionServer{}, false
	}
	s := e.Value.(*sessionEntry)
	if t.isExpired(s, now) {
		t.removeElement(e)
		return sessionServer{}, false
	}
	return s.server.Value(), true
}

// bindSession sets the endpoint of a session.
func (t *sessionTable) bindSession(id string, server sessionServer, now time.Time) {
	entry := sessionEntry{maphash.String(t.seed, id), unique.Make(server), now}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeExpired(now)
	if e := t.byHash[entry.hash]; e != nil {
		*e.Value.(*sessionEntry) = entry
		t.order.MoveToBack(e)
		return
	}
	if t.order.Len() == maxSessions {
		t.removeElement(t.order.Front())
	}
	t.byHash[entry.hash] = t.order.PushBack(&entry)
}

// removeExpired removes expired sessions if the last sweep ended long enough ago. A sweep may take several calls.
func (t *sessionTable) removeExpired(now time.Time) {
	if now.Sub(t.sweptAt) < t.sweep {
		return
	}
	for range sweepBatch {
		oldest := t.order.Front()
		if oldest == nil || !t.isExpired(oldest.Value.(*sessionEntry), now) {
			t.sweptAt = now
			return
		}
		t.removeElement(oldest)
	}
}

func (t *sessionTable) isExpired(s *sessionEntry, now time.Time) bool { return now.Sub(s.used) > t.ttl }

func (t *sessionTable) removeElement(e *list.Element) {
	delete(t.byHash, t.order.Remove(e).(*sessionEntry).hash)
}
