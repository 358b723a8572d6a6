// Package store holds the objects of one kind, encoded, and shows them as a list and as a stream of events.
//
// A reflector fills a Store with the upstream objects of one resource, namespace and selector. Readers get lists and cursors. A projection
// decides what readers see of an object: everything, a part of its endpoints, or nothing.
//
// Resource versions. A store whose projection changes objects has virtual ones, because the same upstream version then looks different
// before and after a change of the pool. The store issues them from one counter, `last`, that only rises:
//
//	upstream event at u   max(u × 10^5, last+1)
//	new projection        last+1
//	list and bookmark     max(upstream position × 10^5, last), and last rises to it
//
// Any other store shows the upstream versions, so that optimistic concurrency works.
//
// Invariants:
//   - A change is in the journal before a reader can see it.
//   - Objects are immutable after they are visible. Readers share them.
//   - Versions on one cursor never fall. A cursor either gets every event after its version, or ErrExpired.
package store

import (
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/wire"
)

// scale is the number of virtual versions per upstream version. It only matters after the loss of the counter: the next upstream version
// then starts above all values issued before. Versions fit into 63 bits up to the upstream version 9.2e13.
const scale = 100_000

// ErrExpired is returned to readers that ask for events that are no longer known. They must list again.
var ErrExpired = errors.New("the requested resourceVersion is too old")

// Object is one object as readers see it.
type Object struct {
	Key  string // namespace/name, or name
	RV   uint64
	Data []byte // in the format of the store, with RV as its resourceVersion
}

// EventType is the type of an event.
type EventType string

const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
)

// Event is a change of one object. Prev is the object before the change, nil for one that was invisible.
type Event struct {
	Type   EventType
	Object *Object
	Prev   *Object

	at time.Time
}

// Projection decides what readers see of an object. It returns false for an invisible object. Nodes are hashes of the nodes that the object
// names, for ReprojectNodes. A projection is called with the lock of the store.
type Projection func(key string, object []byte) (shown []byte, nodes []uint32, visible bool, err error)

// Journal keeps records. Append returns after they survive the death of the process.
type Journal interface {
	Append(records ...Record) error
}

// Observer counts.
type Observer interface {
	CountEvent(store string, t EventType)
	ObserveReprojection(store string, affected int, took time.Duration)
	CountHistoryReset(store string)
}

// Companion keeps state of its own for each object, such as endpoints that are held in service. The store persists the state with the
// object. A projection may change it. All methods are called with the lock of the store.
type Companion interface {
	// ObjectState returns the state of an object; empty if there is none.
	ObjectState(key string) []byte
	// RestoreObject is called before the first projection of an object.
	RestoreObject(key string, state []byte) error
	// DeleteObject is called for an object that is gone.
	DeleteObject(key string)
}

// Params are the arguments of New.
type Params struct {
	ID      string // resource, namespace and selectors
	Format  wire.Format
	Virtual bool // issue virtual versions
	// Discard removes invisible objects instead of keeping them for a later projection. The projection then decides by the key alone.
	Discard    bool
	Projection Projection // nil: readers see every object as it is
	Journal    Journal
	Observer   Observer
	Log        *zap.Logger
	// Companion keeps state beside objects; nil if there is none.
	Companion Companion
	// OnChange is called after changes of objects, with their encodings. It is called without the lock, one call at a time.
	OnChange func(changed map[string][]byte)
	// OnRemove is called with the lock after objects were removed.
	OnRemove func()
}

// Store holds the objects of one resource, namespace and selector.
type Store struct {
	params Params

	mu             sync.Mutex
	objects        map[string]*entry
	keys           []string // sorted keys of visible objects, nil after a change of the set
	rv             uint64   // upstream position
	last           uint64   // last virtual version
	logged         uint64   // last, as the journal knows it
	synced         bool
	newHistory     bool  // the next list is of another history
	denied         error // answer of the API server that replaces all reads
	epoch          uint64
	history        history
	changed        chan struct{} // closed on a change
	fetches        map[string]*bool
	restoredStates map[string][]byte // of the companion, until FinishRestore
	version        string            // apiVersion, as the API server says
	kind           string

	changeLock sync.Mutex // orders changes and OnChange
}

// entry is one upstream object.
type entry struct {
	rv        uint64
	value     []byte // as in the journal: a header, and the object
	nodes     []uint32
	hash      uint64 // of the content
	shown     *Object
	shownHash uint64 // hash of the comparable content of shown
	state     []byte // of the companion, as the journal knows it
}

// New returns an empty store that has not synced.
func New(p Params) *Store {
	return &Store{
		params: p, objects: map[string]*entry{}, restoredStates: map[string][]byte{}, changed: make(chan struct{}),
		fetches: map[string]*bool{},
	}
}

// ID returns the resource, namespace and selectors.
func (s *Store) ID() string { return s.params.ID }

// Format returns the encoding of the objects.
func (s *Store) Format() wire.Format { return s.params.Format }

// IsVirtual reports whether versions of this store are meaningless to the API server.
func (s *Store) IsVirtual() bool { return s.params.Virtual }

// IsSynced reports whether the store has all objects, of now or of before a restart.
func (s *Store) IsSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// Position returns the upstream version of the last change, 0 if the store is empty.
func (s *Store) Position() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		return 0
	}
	return s.rv
}

// MemorySize returns the number of objects and the bytes that they take.
func (s *Store) MemorySize() (objects, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.objects {
		bytes += len(e.value) + 4*len(e.nodes)
		if e.shown != nil && s.params.Projection != nil {
			bytes += len(e.shown.Data)
		}
	}
	return len(s.objects), bytes
}

// ObjectType returns the apiVersion and the kind of the objects, as the API server named them.
func (s *Store) ObjectType() (apiVersion, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.kind
}

// SetObjectType sets the apiVersion and the kind of the objects.
func (s *Store) SetObjectType(apiVersion, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.kind = apiVersion, kind
}

// DenyReads makes readers get an answer of the API server instead of objects: a right that was revoked is not served from memory. Nil
// allows reads.
func (s *Store) DenyReads(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (err == nil) == (s.denied == nil) {
		return
	}
	s.denied = err
	s.wakeReaders()
}

// wakeReaders wakes waiting readers. The caller has the lock.
func (s *Store) wakeReaders() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// issueVersion returns the version of an event of an object with upstream version u. The caller has the lock.
func (s *Store) issueVersion(u uint64) uint64 {
	if !s.params.Virtual {
		return u
	}
	s.last = max(u*scale, s.last+1)
	return s.last
}

// advertiseVersion returns the version of a list or a bookmark, and makes sure that it is never issued again. The caller has the lock.
func (s *Store) advertiseVersion() uint64 {
	if !s.params.Virtual {
		return s.rv
	}
	s.last = max(s.rv*scale, s.last)
	if s.last > s.logged {
		s.appendRecords(s.positionRecord())
	}
	return s.last
}

// appendRecords writes records to the journal. A journal that cannot write reports and heals itself: readers are served from memory.
func (s *Store) appendRecords(records ...Record) {
	if s.params.Journal == nil || len(records) == 0 {
		return
	}
	if err := s.params.Journal.Append(records...); err != nil {
		s.params.Log.Debug("Change is not on disk", zap.String("store", s.params.ID), zap.Error(err))
	}
	s.logged = s.last
}

// commitChanges makes changes visible: first in the journal, then in memory, then to readers. The caller has the lock.
func (s *Store) commitChanges(changes []change) {
	records := make([]Record, 0, len(changes)+1)
	for _, c := range changes {
		records = append(records, s.objectRecord(c))
		if r, changed := s.companionRecord(c, s.objects[c.key]); changed {
			records = append(records, r)
		}
	}
	records = append(records, s.positionRecord())
	s.appendRecords(records...)
	now, removed := time.Now(), false
	for i := range changes {
		c := &changes[i]
		old := s.objects[c.key]
		if c.next == nil {
			removed = removed || old != nil
			delete(s.objects, c.key)
		} else {
			s.objects[c.key] = c.next
		}
		if isVisible(old) != isVisible(c.next) {
			s.keys = nil
		}
		if c.event != nil {
			c.event.at = now
			s.history.addEvent(*c.event)
			s.params.Observer.CountEvent(s.params.ID, c.event.Type)
		}
	}
	s.history.trimEvents(now)
	s.wakeReaders()
	if removed && s.params.OnRemove != nil {
		s.params.OnRemove()
	}
}

func isVisible(e *entry) bool { return e != nil && e.shown != nil }

// callOnChange calls OnChange. The caller has changeLock, but not mu.
func (s *Store) callOnChange(changes []change) {
	if s.params.OnChange == nil || len(changes) == 0 {
		return
	}
	changed := make(map[string][]byte, len(changes))
	for _, c := range changes {
		if c.next == nil {
			changed[c.key] = nil
			continue
		}
		changed[c.key] = c.bytes
	}
	s.params.OnChange(changed)
}

// sortedKeys returns the keys of visible objects. The caller has the lock.
func (s *Store) sortedKeys() []string {
	if s.keys == nil {
		s.keys = make([]string, 0, len(s.objects))
		for key, e := range s.objects {
			if e.shown != nil {
				s.keys = append(s.keys, key)
			}
		}
		slices.Sort(s.keys)
	}
	return s.keys
}
