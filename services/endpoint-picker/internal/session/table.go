// Package session remembers which model server the requests of a session go to, under a name that its clients give it.
//
// A session is forgotten when nobody has used it for a while, and the one that was used longest ago when there are too
// many. Nothing is shared between pickers: a session whose requests come through several of them should carry its server
// itself, in a header.
package session

import (
	"container/list"
	"sync"
	"time"
)

// most is how many sessions are remembered: a few tens of megabytes.
const most = 100_000

// Table is the sessions of a pool.
type Table struct {
	mu    sync.Mutex
	byID  map[string]*list.Element
	order list.List // of *entry, the one used longest ago first
}

type entry struct {
	id, server string
	used       time.Time
}

// NewTable returns a Table without sessions.
func NewTable() *Table { return &Table{byID: map[string]*list.Element{}} }

// Server returns where a session goes that was used within the time to live; empty if it is not known.
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

// Bind says where a session goes from now on.
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

// Sweep forgets the sessions that were last used before the given time.
func (t *Table) Sweep(before time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := t.order.Front(); e != nil && e.Value.(*entry).used.Before(before); e = t.order.Front() {
		t.remove(e)
	}
}

// Len returns how many sessions are remembered.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.order.Len()
}

func (t *Table) remove(e *list.Element) {
	delete(t.byID, t.order.Remove(e).(*entry).id)
}
