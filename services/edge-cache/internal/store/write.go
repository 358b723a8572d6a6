package store

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// ErrWentBack is returned for events that are older than the position of the store: the API server lost its history or lies. The reflector
// must list again.
var ErrWentBack = errors.New("the API server sent an event that is older than the last one")

// PutObject applies an ADDED or MODIFIED event of a watch.
func (s *Store) PutObject(object []byte) error {
	in, err := s.parseObject(object)
	if err != nil {
		return err
	}
	return s.applyChanges(func() ([]change, error) {
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
	c, err := s.planChange(in)
	return []change{c}, err
}

// RemoveObject applies a DELETED event of a watch.
func (s *Store) RemoveObject(object []byte) error {
	key, rv, err := s.parseVersion(object)
	if err != nil {
		return err
	}
	return s.applyChanges(func() ([]change, error) {
		if rv < s.rv {
			return nil, fmt.Errorf("deleted object %s at %d: %w", key, rv, ErrWentBack)
		}
		s.rv = rv
		if deleted := s.fetches[key]; deleted != nil {
			*deleted = true
		}
		c, found, err := s.planRemoval(key, rv)
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
		err = s.hideObject(&c, old.shown, rv)
	}
	return c, true, err
}

// ApplyBookmark moves the position without a change.
func (s *Store) ApplyBookmark(rv uint64) error {
	if err := s.checkVersion(rv); err != nil {
		return fmt.Errorf("bookmark: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rv < s.rv {
		return fmt.Errorf("bookmark at %d: %w", rv, ErrWentBack)
	}
	if rv > s.rv {
		s.rv = rv
		s.wakeReaders()
	}
	return nil
}

// applyChanges plans and commits changes, and reports them.
func (s *Store) applyChanges(plan func() ([]change, error)) error {
	return s.reportChanges(func() ([]change, error) {
		changes, err := plan()
		if err == nil {
			s.commitChanges(changes)
		}
		return changes, err
	})
}

// reportChanges reports the changes that apply returns, unless it fails. apply is called with the lock.
func (s *Store) reportChanges(apply func() ([]change, error)) error {
	s.changeLock.Lock()
	defer s.changeLock.Unlock()
	s.mu.Lock()
	changes, err := apply()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.callOnChange(changes)
	return nil
}

// AddFetched adds an object that was read alone, because a projection wants it now. read is called without the lock. It returns nil for an
// object that does not exist.
func (s *Store) AddFetched(key string, read func() ([]byte, error)) error {
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
	in, err := s.parseObject(object)
	if err != nil {
		return err
	}
	return s.applyChanges(func() ([]change, error) {
		if deleted { // the watch was faster than the read
			return nil, nil
		}
		return s.planNewer(in)
	})
}

// ExpectNewHistory announces that the next list is of another cluster, or of the same cluster at an earlier time: its versions say nothing
// about those before.
func (s *Store) ExpectNewHistory() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newHistory = true
}

// ReprojectNodes projects the objects again that name one of the nodes. It returns the number of these objects.
func (s *Store) ReprojectNodes(nodes ...uint32) (int, error) {
	return s.reprojectWhere(func(_ string, e *entry) bool {
		return slices.ContainsFunc(nodes, func(n uint32) bool {
			_, found := slices.BinarySearch(e.nodes, n)
			return found
		})
	})
}

// ReprojectKeys projects objects again.
func (s *Store) ReprojectKeys(keys ...string) (int, error) {
	wanted := sets.New(keys...)
	return s.reprojectWhere(func(key string, _ *entry) bool { return wanted.Has(key) })
}

func (s *Store) reprojectWhere(affected func(key string, e *entry) bool) (int, error) {
	begin, count := time.Now(), 0
	err := s.applyChanges(func() ([]change, error) {
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
			c, err := s.planChange(&incoming{key: key, rv: e.rv, hash: e.hash, value: e.value, logged: true})
			if err != nil {
				return nil, err
			}
			if c.event != nil || c.next == nil {
				changes = append(changes, c)
			}
		}
		return changes, nil
	})
	if count > 0 {
		s.params.Observer.ObserveReprojection(s.params.ID, count, time.Since(begin))
	}
	return count, err
}

// ExpectsNewHistory reports whether the next list is of another history.
func (s *Store) ExpectsNewHistory() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newHistory
}
