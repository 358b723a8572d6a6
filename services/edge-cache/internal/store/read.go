package store

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"time"
)

const (
	// historyEvents is the number of events that the history always has: a controller that restarts during a roll-out of 1 000 pods need
	// not list again.
	historyEvents = 1024
	// historyAge is the time for which more events are kept. Clients reconnect within a minute.
	historyAge = 75 * time.Second
	// historyLimit limits the history within historyAge.
	historyLimit = 32 * historyEvents
)

var (
	// ErrNotSynced is returned while the store has neither listed nor restored its objects.
	ErrNotSynced = errors.New("the objects are not known yet")
	// ErrFuture is returned for a version that the store has not reached in time.
	ErrFuture = errors.New("too large resource version")
)

// history is a list of the last events, with their numbers.
type history struct {
	events []Event
	first  uint64 // number of events[0]
	floor  uint64 // version of the last event that was forgotten: cursors cannot start below
}

func (h *history) addEvent(e Event) { h.events = append(h.events, e) }

func (h *history) nextNumber() uint64 { return h.first + uint64(len(h.events)) }

func (h *history) trimEvents(now time.Time) {
	n := 0
	for size := len(h.events); size-n > historyEvents; n++ {
		if size-n <= historyLimit && now.Sub(h.events[n].at) < historyAge {
			break
		}
	}
	if n == 0 {
		return
	}
	h.floor = h.events[n-1].Object.RV
	clear(h.events[:n])
	h.events = h.events[n:]
	h.first += uint64(n)
}

// numberAfter returns the number of the first event above a version.
func (h *history) numberAfter(rv uint64) uint64 {
	return h.first + uint64(sort.Search(len(h.events), func(i int) bool { return h.events[i].Object.RV > rv }))
}

// Snapshot is all objects at one version, sorted by key.
type Snapshot struct {
	Objects []*Object
	RV      uint64
}

// checkReadable returns an error if the store must not be read. The caller has the lock.
func (s *Store) checkReadable() error {
	switch {
	case s.denied != nil:
		return s.denied
	case !s.synced:
		return ErrNotSynced
	}
	return nil
}

// ListAt returns all visible objects as they were at a version of the history. It returns ErrExpired for older versions.
func (s *Store) ListAt(rv uint64) (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkReadable(); err != nil {
		return Snapshot{}, err
	}
	now := s.currentSnapshot()
	if rv < s.history.floor || rv > now.RV {
		return Snapshot{}, ErrExpired
	}
	objects := make(map[string]*Object, len(now.Objects))
	for _, o := range now.Objects {
		objects[o.Key] = o
	}
	for i := len(s.history.events) - 1; i >= 0 && s.history.events[i].Object.RV > rv; i-- {
		e := s.history.events[i]
		if e.Prev == nil {
			delete(objects, e.Object.Key)
		} else {
			objects[e.Object.Key] = e.Prev
		}
	}
	then := Snapshot{Objects: make([]*Object, 0, len(objects)), RV: rv}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		then.Objects = append(then.Objects, objects[key])
	}
	return then, nil
}

func (s *Store) currentSnapshot() Snapshot {
	keys := s.sortedKeys()
	objects := make([]*Object, len(keys))
	for i, key := range keys {
		objects[i] = s.objects[key].shown
	}
	return Snapshot{Objects: objects, RV: s.advertiseVersion()}
}

// FindObject returns one visible object, nil if there is none.
func (s *Store) FindObject(key string) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkReadable(); err != nil {
		return nil, err
	}
	if e := s.objects[key]; e != nil {
		return e.shown, nil
	}
	return nil, nil
}

// waitUntil waits until done, which is called with the lock after each change, returns true. It returns the error of ctx when that ends.
func (s *Store) waitUntil(ctx context.Context, done func() bool) error {
	for {
		s.mu.Lock()
		isDone, changed := done(), s.changed
		s.mu.Unlock()
		if isDone {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// WaitFor waits until the store has reached a version, at most until ctx ends. It returns ErrFuture and the version that it has reached.
func (s *Store) WaitFor(ctx context.Context, rv uint64) (current uint64, err error) {
	if s.waitUntil(ctx, func() bool {
		current, err = s.rv, s.checkReadable()
		if s.params.Virtual {
			current = max(s.rv*scale, s.last)
		}
		return err != nil || current >= rv
	}) != nil {
		err = ErrFuture
	}
	return current, err
}

// WaitSynced waits until the store has all objects, of now or of before a restart, and OnChange has returned for them. It returns the error
// of ctx when that ends.
func (s *Store) WaitSynced(ctx context.Context) error {
	if err := s.waitUntil(ctx, func() bool { return s.synced }); err != nil {
		return err
	}
	s.WaitForOnChange()
	return nil
}

// Versions are the upstream versions of all objects at one moment.
type Versions struct {
	RV      uint64 // of the moment
	Objects map[string]uint64
}

// IsBehind reports whether the store lacks a change up to that moment. An object with a later version stands for all its earlier ones.
func (s *Store) IsBehind(v Versions) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keysBehind(v)) > 0
}

// WaitForVersions waits until the store is not behind, at most until ctx ends. It compares all objects once, then only those that were
// behind with each change.
func (s *Store) WaitForVersions(ctx context.Context, v Versions) error {
	var keys []string
	return s.waitUntil(ctx, func() bool {
		keys = slices.DeleteFunc(keys, func(key string) bool { return !s.isKeyBehind(v, key) })
		if len(keys) == 0 || s.rv >= v.RV {
			keys = s.keysBehind(v) // an object may have come that was deleted before that moment
		}
		return len(keys) == 0
	})
}

// keysBehind returns the objects of which the store lacks a change. The caller has the lock.
func (s *Store) keysBehind(v Versions) []string {
	if s.rv >= v.RV {
		return nil
	}
	var behind []string
	for key := range v.Objects {
		if s.isKeyBehind(v, key) {
			behind = append(behind, key)
		}
	}
	for key := range s.objects {
		if _, exists := v.Objects[key]; !exists && s.isKeyBehind(v, key) {
			behind = append(behind, key)
		}
	}
	return behind
}

// isKeyBehind reports whether the store lacks a change of an object: a version, or its deletion. The caller has the lock.
func (s *Store) isKeyBehind(v Versions, key string) bool {
	e := s.objects[key]
	rv, exists := v.Objects[key]
	switch {
	case !exists:
		return e != nil && e.rv <= v.RV
	case e == nil:
		return s.wouldStore(key)
	}
	return e.rv < rv
}

// WaitForOnChange returns when OnChange has returned for all changes that readers can see.
func (s *Store) WaitForOnChange() {
	s.changeLock.Lock()
	defer s.changeLock.Unlock()
}

// wouldStore reports whether the store would keep an object with a key. The caller has the lock.
func (s *Store) wouldStore(key string) bool {
	if !s.params.Discard {
		return true
	}
	_, _, visible, err := s.params.Projection(key, nil)
	return visible || err != nil
}

// Cursor reads events in order. It is for one goroutine.
type Cursor struct {
	store *Store
	next  uint64
	epoch uint64
}

// ListAndWatch returns all objects, and a cursor for the events after them.
func (s *Store) ListAndWatch() (Snapshot, *Cursor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkReadable(); err != nil {
		return Snapshot{}, nil, err
	}
	return s.currentSnapshot(), &Cursor{store: s, next: s.history.nextNumber(), epoch: s.epoch}, nil
}

// WatchFrom returns a cursor for the events after a version. It returns ErrExpired if some of them are forgotten.
func (s *Store) WatchFrom(rv uint64) (*Cursor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkReadable(); err != nil {
		return nil, err
	}
	// A virtual version above all issued ones is from before a loss of the counter. Upstream versions can be ahead of this store.
	if rv < s.history.floor || s.params.Virtual && rv > max(s.last, s.rv*scale) {
		return nil, ErrExpired
	}
	return &Cursor{store: s, next: s.history.numberAfter(rv), epoch: s.epoch}, nil
}

// maxBatch limits the events of one Next.
const maxBatch = 256

// Next waits for events. It returns ErrExpired to a reader that is too slow, and the error of ctx when that ends.
func (c *Cursor) Next(ctx context.Context) (events []Event, err error) {
	ended := c.store.waitUntil(ctx, func() bool {
		events, err = c.readPending()
		return err != nil || len(events) > 0
	})
	return events, cmp.Or(err, ended)
}

// readPending returns the events that are there. The caller has the lock of the store.
func (c *Cursor) readPending() ([]Event, error) {
	s := c.store
	if s.denied != nil {
		return nil, s.denied
	}
	if c.epoch != s.epoch || c.next < s.history.first {
		return nil, ErrExpired
	}
	pending := s.history.events[c.next-s.history.first:]
	events := slices.Clone(pending[:min(len(pending), maxBatch)])
	c.next += uint64(len(events))
	return events, nil
}

// BookmarkVersion returns the version up to which the reader has seen all events, or false if there are more events to read first.
func (c *Cursor) BookmarkVersion() (uint64, bool) {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.epoch != s.epoch || c.next != s.history.nextNumber() || s.denied != nil {
		return 0, false
	}
	return s.advertiseVersion(), true
}

// EachRecord calls yield for everything that the journal must hold.
func (s *Store) EachRecord(yield func(Record) error) error {
	s.mu.Lock()
	records := make([]Record, 0, len(s.objects)+1)
	for key, e := range s.objects {
		records = append(records, s.objectRecord(change{key: key, next: e}))
		if len(e.state) > 0 {
			records = append(records, s.stateRecord(key, e.state))
		}
	}
	records = append(records, s.positionRecord())
	s.mu.Unlock()
	for _, r := range records {
		if err := yield(r); err != nil {
			return err
		}
	}
	return nil
}
