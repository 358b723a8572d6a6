package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead.dev/services/edge-cache/internal/wire"
)

// ErrWentBack is returned for events that are older than the position of the store: the API server lost its history or lies. The reflector
// must list again.
var ErrWentBack = errors.New("the API server sent an event that is older than the last one")

// Put applies an ADDED or MODIFIED event of a watch.
func (s *Store) Put(object []byte) error {
	in, err := s.parse(object)
	if err != nil {
		return err
	}
	return s.change(func() ([]change, error) {
		if in.rv < s.rv {
			return nil, fmt.Errorf("object %s at %d: %w", in.key, in.rv, ErrWentBack)
		}
		changes, err := s.planNewer(in)
		if err == nil {
			s.rv = in.rv
		}
		return changes, err
	})
}

// planNewer returns the change of an object, unless the store knows a newer state of it. The caller has the lock.
func (s *Store) planNewer(in *incoming) ([]change, error) {
	if old := s.objects[in.key]; old != nil && in.rv <= old.rv {
		return nil, nil
	}
	c, err := s.plan(in)
	return []change{c}, err
}

// Remove applies a DELETED event of a watch.
func (s *Store) Remove(object []byte) error {
	meta, err := wire.ParseMeta(s.params.Format, object)
	if err != nil {
		return err
	}
	rv, err := wire.ParseRV(meta.ResourceVersion)
	if err != nil {
		return fmt.Errorf("deleted object %s: %w", meta.Key(), err)
	}
	if err := s.fits(rv); err != nil {
		return fmt.Errorf("deleted object %s: %w", meta.Key(), err)
	}
	return s.change(func() ([]change, error) {
		if rv < s.rv {
			return nil, fmt.Errorf("deleted object %s at %d: %w", meta.Key(), rv, ErrWentBack)
		}
		s.rv = rv
		if deleted := s.fetches[meta.Key()]; deleted != nil {
			*deleted = true
		}
		c, found, err := s.planRemoval(meta.Key(), rv)
		if !found || err != nil {
			return nil, err
		}
		return []change{c}, nil
	})
}

// planRemoval returns the change that removes an object. The caller has the lock.
func (s *Store) planRemoval(key string, rv uint64) (c change, found bool, err error) {
	old := s.objects[key]
	if old == nil || old.rv > rv {
		return change{}, false, nil
	}
	c = change{key: key}
	if old.shown != nil {
		err = s.hide(&c, old.shown, rv)
	}
	return c, true, err
}

// Bookmark moves the position without a change.
func (s *Store) Bookmark(rv uint64) error {
	if err := s.fits(rv); err != nil {
		return fmt.Errorf("bookmark: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rv < s.rv {
		return fmt.Errorf("bookmark at %d: %w", rv, ErrWentBack)
	}
	if rv > s.rv {
		s.rv = rv
		s.wake()
	}
	return nil
}

// change plans and commits changes, and reports them.
func (s *Store) change(plan func() ([]change, error)) error {
	s.apply.Lock()
	defer s.apply.Unlock()
	s.mu.Lock()
	changes, err := plan()
	if err == nil {
		s.commit(changes)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.notify(changes)
	return nil
}

// Fetched adds an object that was read alone, because a projection wants it now. read is called without the lock. It returns nil for an
// object that does not exist.
func (s *Store) Fetched(key string, read func() ([]byte, error)) error {
	deleted := false
	s.mu.Lock()
	s.fetches[key] = &deleted
	s.mu.Unlock()
	object, err := read()
	defer func() {
		s.mu.Lock()
		delete(s.fetches, key)
		s.mu.Unlock()
	}()
	if err != nil || object == nil {
		return err
	}
	in, err := s.parse(object)
	if err != nil {
		return err
	}
	return s.change(func() ([]change, error) {
		if deleted { // the watch was faster than the read
			return nil, nil
		}
		return s.planNewer(in)
	})
}

// Replacement collects the objects of a list. Readers see nothing of it until it is committed.
type Replacement struct {
	store   *Store
	seen    map[string]struct{}
	pending map[string]*incoming
	crowded bool // removed objects have no versions of their own
}

// Replace begins a replacement of all objects.
func (s *Store) Replace() *Replacement {
	return &Replacement{store: s, seen: map[string]struct{}{}, pending: map[string]*incoming{}}
}

// Len returns the number of objects.
func (r *Replacement) Len() int { return len(r.seen) }

// Add adds an object. An object that the store has already takes no memory.
func (r *Replacement) Add(object []byte) error {
	in, err := r.store.parse(object)
	if err != nil {
		return err
	}
	r.seen[in.key] = struct{}{}
	delete(r.pending, in.key)
	r.store.mu.Lock()
	old := r.store.objects[in.key]
	same := old != nil && old.rv == in.rv && old.hash == in.hash
	r.store.mu.Unlock()
	if same {
		return nil
	}
	if r.store.params.Discard && !r.visible(in) {
		delete(r.seen, in.key)
		return nil
	}
	in.value = r.store.pack(in.object)
	in.object = nil
	r.pending[in.key] = in
	return nil
}

// Drop removes an object.
func (r *Replacement) Drop(object []byte) error {
	meta, err := wire.ParseMeta(r.store.params.Format, object)
	if err != nil {
		return err
	}
	delete(r.seen, meta.Key())
	delete(r.pending, meta.Key())
	return nil
}

func (r *Replacement) visible(in *incoming) bool {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	_, _, visible, err := r.store.params.Projection(in.key, in.object)
	return visible || err != nil // Commit reports the error
}

// Commit replaces all objects by the added ones, as the difference: readers see an event for each object that is new, changed or gone. If
// versions fell, the API server lost its history or is another one: readers of upstream versions get ErrExpired instead of events. Virtual
// versions keep rising, so their readers stay.
func (r *Replacement) Commit(rv uint64) error {
	s := r.store
	if err := s.fits(rv); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	s.apply.Lock()
	defer s.apply.Unlock()
	s.mu.Lock()
	changes, err := r.commit(rv)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.notify(changes)
	return nil
}

func (r *Replacement) commit(rv uint64) ([]change, error) {
	s := r.store
	silent := !s.synced || !s.params.Virtual && (s.replaced || r.wentBack(rv))
	if s.params.Virtual && s.last == 0 {
		// The counter is not readable, and may have had any value that the old position gave it.
		s.last = (rv + 1) * scale
	}
	changes, err := r.plan(rv)
	if err != nil {
		return nil, err
	}
	silent = silent || r.crowded
	if silent {
		for i := range changes {
			changes[i].event = nil
		}
	}
	wasSynced := s.synced
	s.rv, s.synced, s.replaced = rv, true, false
	s.commit(changes)
	if silent {
		s.epoch++
		s.history = history{floor: s.advertise()}
		if wasSynced && s.params.Observer != nil {
			s.params.Observer.Gone(s.params.ID)
		}
	}
	return changes, nil
}

// wentBack reports whether the list or a changed object is older than the position.
func (r *Replacement) wentBack(rv uint64) bool {
	if rv < r.store.rv {
		return true
	}
	for _, in := range r.pending {
		if in.rv <= r.store.rv {
			return true
		}
	}
	return false
}

// plan returns changed objects in the order of their versions, and then the removed ones. Upstream versions of removed objects are not known:
// they get the highest ones below the version of the list that no changed object has. Equal versions would lose events of a reader whose
// connection ends between them.
func (r *Replacement) plan(rv uint64) ([]change, error) {
	s := r.store
	pending := make([]*incoming, 0, len(r.pending))
	for _, in := range r.pending {
		pending = append(pending, in)
	}
	slices.SortFunc(pending, func(a, b *incoming) int { return cmp.Or(cmp.Compare(a.rv, b.rv), cmp.Compare(a.key, b.key)) })
	changes := make([]change, 0, len(pending))
	for _, in := range pending {
		c, err := s.plan(in)
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	var gone []string
	for key := range s.objects {
		if _, kept := r.seen[key]; !kept {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	versions := r.versions(rv, len(gone))
	for i, key := range gone {
		c := change{key: key}
		if old := s.objects[key]; old.shown != nil {
			if err := s.hide(&c, old.shown, versions[i]); err != nil {
				return nil, err
			}
		}
		changes = append(changes, c)
	}
	if !s.params.Virtual {
		slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.version(), b.version()) })
	}
	return changes, nil
}

// version returns the version of the event of a change, 0 if it has none.
func (c change) version() uint64 {
	if c.event == nil {
		return 0
	}
	return c.event.Object.RV
}

// versions returns ascending versions for removed objects, up to rv. Virtual versions are always distinct.
func (r *Replacement) versions(rv uint64, count int) []uint64 {
	all := make([]uint64, count)
	if r.store.params.Virtual {
		for i := range all {
			all[i] = rv
		}
		return all
	}
	taken := make(map[uint64]struct{}, len(r.pending))
	for _, in := range r.pending {
		taken[in.rv] = struct{}{}
	}
	free := rv
	for i := count - 1; i >= 0; i-- {
		for _, is := taken[free]; is; _, is = taken[free] {
			free--
		}
		if free <= r.store.rv {
			r.crowded = true
			free = rv // nobody sees it
		}
		all[i] = free
		free--
	}
	return all
}

// Reset announces that the next list is of another cluster, or of the same cluster at an earlier time: its versions say nothing about those
// before.
func (s *Store) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaced = true
}

// Refilter projects the objects again that name one of the nodes. It returns the number of these objects.
func (s *Store) Refilter(nodes ...uint32) (int, error) {
	return s.reprojectWhere(func(_ string, e *entry) bool {
		return slices.ContainsFunc(nodes, func(n uint32) bool {
			_, found := slices.BinarySearch(e.nodes, n)
			return found
		})
	})
}

// RefilterKeys projects objects again.
func (s *Store) RefilterKeys(keys ...string) (int, error) {
	wanted := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		wanted[key] = struct{}{}
	}
	return s.reprojectWhere(func(key string, _ *entry) bool {
		_, found := wanted[key]
		return found
	})
}

// RefilterAll projects all objects again.
func (s *Store) RefilterAll() (int, error) {
	return s.reprojectWhere(func(string, *entry) bool { return true })
}

func (s *Store) reprojectWhere(affected func(key string, e *entry) bool) (int, error) {
	begin, count := time.Now(), 0
	err := s.change(func() ([]change, error) {
		keys := make([]string, 0, 16)
		for key, e := range s.objects {
			if affected(key, e) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		count = len(keys)
		changes := make([]change, 0, len(keys))
		for _, key := range keys {
			e := s.objects[key]
			c, err := s.plan(&incoming{key: key, rv: e.rv, hash: e.hash, value: e.value})
			if err != nil {
				return nil, err
			}
			if c.event != nil || c.next == nil {
				changes = append(changes, c)
			}
		}
		return changes, nil
	})
	if s.params.Observer != nil && count > 0 {
		s.params.Observer.Refiltered(s.params.ID, count, time.Since(begin))
	}
	return count, err
}

// Replaced reports whether the next list is of another history.
func (s *Store) Replaced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaced
}
