// Package session stores the model server of each session, by a name that clients give the session.
//
// A session expires when it has not been used for a while. When there are too many, the least recently used one is removed.
// Pickers share nothing: a session with requests through several pickers should carry its server itself, in a header.
package session

import (
	"container/list"
	"sync"
	"time"
)

// most is the maximum number of sessions: a few tens of megabytes.
const most = 100_000

// Table contains the sessions of a pool.
type Table struct {
	mu    sync.Mutex
	byID  map[string]*list.Element
	order list.List // of *entry, least recently used first
}

type entry struct {
	id, server string
	used       time.Time
}

// NewTable returns an empty Table.
func NewTable() *Table { return &Table{byID: map[string]*list.Element{}} }

// Server returns the server of a session that was used within the time to live; empty if unknown.
func (t *Table) Server(id string, now time.Time, ttl time.Duration) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[id]
	if e == nil {
		return ""
	}
	s := e.Value.(*entry)
	if now.Sub(s.used) > ttl {
		t.remove(e)
		return ""
	}
	return s.server
}

// Bind sets the server of a session.
func (t *Table) Bind(id, server string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byID[id]; e != nil {
		*e.Value.(*entry) = entry{id, server, now}
		t.order.MoveToBack(e)
		return
	}
	if t.order.Len() == most {
		t.remove(t.order.Front())
	}
	t.byID[id] = t.order.PushBack(&entry{id, server, now})
}

// Sweep removes the sessions that were last used before the given time.
func (t *Table) Sweep(before time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := t.order.Front(); e != nil && e.Value.(*entry).used.Before(before); e = t.order.Front() {
		t.remove(e)
	}
}

// Len returns the number of sessions.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.order.Len()
}

func (t *Table) remove(e *list.Element) {
	delete(t.byID, t.order.Remove(e).(*entry).id)
}
