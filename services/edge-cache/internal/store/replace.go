package store

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"fairlead.dev/services/edge-cache/internal/wire"
)

// Replacement collects the objects of a list. Readers see nothing of it until it is committed.
type Replacement struct {
	store          *Store
	seen           sets.Set[string]
	pending        map[string]*incoming
	noFreeVersions bool // removed objects have no versions of their own
}

// BeginReplacement begins a replacement of all objects.
func (s *Store) BeginReplacement() *Replacement {
	return &Replacement{store: s, seen: sets.New[string](), pending: map[string]*incoming{}}
}

// Len returns the number of objects.
func (r *Replacement) Len() int { return len(r.seen) }

// AddObject adds an object. An object that the store has already takes no memory.
func (r *Replacement) AddObject(object []byte) error {
	in, err := r.store.parseObject(object)
	if err != nil {
		return err
	}
	r.seen.Insert(in.key)
	delete(r.pending, in.key)
	r.store.mu.Lock()
	old := r.store.objects[in.key]
	same := old != nil && old.rv == in.rv && old.hash == in.hash
	r.store.mu.Unlock()
	if same {
		return nil
	}
	if r.store.params.Discard && !r.isVisible(in) {
		r.seen.Delete(in.key)
		return nil
	}
	in.value = r.store.packObject(in.object)
	in.object = nil
	r.pending[in.key] = in
	return nil
}

// DropObject removes an object.
func (r *Replacement) DropObject(object []byte) error {
	meta, err := wire.ParseMeta(r.store.params.Format, object)
	if err != nil {
		return err
	}
	r.seen.Delete(meta.ObjectKey())
	delete(r.pending, meta.ObjectKey())
	return nil
}

func (r *Replacement) isVisible(in *incoming) bool {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	_, _, visible, err := r.store.params.Projection(in.key, in.object)
	return visible || err != nil // Commit reports the error
}

// Commit replaces all objects by the added ones, as the difference: readers see an event for each object that is new, changed or gone. If
// versions fell, the API server lost its history or is another one: readers of upstream versions get ErrExpired instead of events. Virtual
// versions keep rising, so their readers stay.
func (r *Replacement) Commit(rv uint64) error {
	if err := r.store.checkVersion(rv); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	return r.store.reportChanges(func() ([]change, error) { return r.commitObjects(rv) })
}

func (r *Replacement) commitObjects(rv uint64) ([]change, error) {
	s := r.store
	silent := !s.synced || !s.params.Virtual && (s.newHistory || r.wentBack(rv))
	if s.params.Virtual && s.last == 0 {
		// The counter is not readable, and may have had any value that the old position gave it.
		s.last = (rv + 1) * scale
	}
	changes, err := r.planChanges(rv)
	if err != nil {
		return nil, err
	}
	silent = silent || r.noFreeVersions
	if silent {
		for i := range changes {
			changes[i].event = nil
		}
	}
	wasSynced := s.synced
	s.rv, s.synced, s.newHistory = rv, true, false
	s.commitChanges(changes)
	if silent {
		s.epoch++
		s.history = history{floor: s.advertiseVersion()}
		if wasSynced {
			s.params.Observer.CountHistoryReset(s.params.ID)
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

// planChanges returns changed objects in the order of their versions, and then the removed ones. Upstream versions of removed objects are
// not known: they get the highest ones below the version of the list that no changed object has. Equal versions would lose events of a
// reader whose connection ends between them.
func (r *Replacement) planChanges(rv uint64) ([]change, error) {
	s := r.store
	pending := slices.SortedFunc(maps.Values(r.pending), func(a, b *incoming) int {
		return cmp.Or(cmp.Compare(a.rv, b.rv), cmp.Compare(a.key, b.key))
	})
	changes := make([]change, 0, len(pending))
	for _, in := range pending {
		c, err := s.planChange(in)
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	var gone []string
	for key := range s.objects {
		if !r.seen.Has(key) {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	versions := r.removalVersions(rv, len(gone))
	for i, key := range gone {
		c := change{key: key}
		if old := s.objects[key]; old.shown != nil {
			if err := s.hideObject(&c, old.shown, versions[i]); err != nil {
				return nil, err
			}
		}
		changes = append(changes, c)
	}
	if !s.params.Virtual {
		slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.eventVersion(), b.eventVersion()) })
	}
	return changes, nil
}

// eventVersion returns the version of the event of a change, 0 if it has none.
func (c change) eventVersion() uint64 {
	if c.event == nil {
		return 0
	}
	return c.event.Object.RV
}

// removalVersions returns ascending versions for removed objects, up to rv. Virtual versions are always distinct.
func (r *Replacement) removalVersions(rv uint64, count int) []uint64 {
	versions := slices.Repeat([]uint64{rv}, count)
	if r.store.params.Virtual {
		return versions
	}
	taken := sets.New[uint64]()
	for _, in := range r.pending {
		taken.Insert(in.rv)
	}
	free := rv
	for i := count - 1; i >= 0; i-- {
		for taken.Has(free) {
			free--
		}
		if free <= r.store.rv {
			r.noFreeVersions = true
			free = rv // no reader sees it: the events are dropped
		}
		versions[i] = free
		free--
	}
	return versions
}
