package store

import (
	"fmt"
	"math"

	"fairlead.dev/services/edge-cache/internal/wire"
)

// change is one change that is not yet visible.
type change struct {
	key   string
	next  *entry // nil: the object is gone
	event *Event
	bytes []byte // for OnChange
}

// incoming is an object from upstream.
type incoming struct {
	key    string
	rv     uint64
	hash   uint64
	value  []byte
	logged bool   // the journal has the value
	object []byte // stripped; nil if it must be read from value
}

// parseObject returns an upstream object without managedFields and the last applied configuration.
func (s *Store) parseObject(object []byte) (*incoming, error) {
	key, rv, err := s.parseVersion(object)
	if err != nil {
		return nil, err
	}
	stripped, err := wire.StripMetadata(s.params.Format, object)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", key, err)
	}
	return &incoming{key: key, rv: rv, hash: hashContent(stripped), object: stripped}, nil
}

// parseVersion returns the key and the version of an upstream object.
func (s *Store) parseVersion(object []byte) (key string, rv uint64, err error) {
	if key, rv, err = wire.ParseVersion(s.params.Format, object); err != nil {
		return "", 0, err
	}
	if err = s.checkVersion(rv); err != nil {
		return "", 0, fmt.Errorf("object %s: %w", key, err)
	}
	return key, rv, nil
}

// checkVersion returns an error for an upstream version whose virtual version would overflow, and so fall.
func (s *Store) checkVersion(rv uint64) error {
	if s.params.Virtual && rv >= math.MaxInt64/scale-1 {
		return fmt.Errorf("resourceVersion %d is too large", rv)
	}
	return nil
}

// planChange returns the change that makes an incoming object visible. The caller has the lock.
func (s *Store) planChange(in *incoming) (change, error) {
	object := in.object
	if object == nil {
		var err error
		if object, err = unpackObject(in.value); err != nil {
			return change{}, err
		}
	}
	next := &entry{rv: in.rv, hash: in.hash, value: in.value}
	old := s.objects[in.key]
	c := change{key: in.key, next: next}
	if s.params.OnChange != nil {
		c.bytes = object
	}
	shown, visible := object, true
	if s.params.Projection != nil {
		var err error
		if shown, next.nodes, visible, err = s.params.Projection(in.key, object); err != nil {
			return change{}, fmt.Errorf("object %s: %w", in.key, err)
		}
	}
	if err := s.showObject(&c, old, shown, visible); err != nil {
		return change{}, err
	}
	if !visible && s.params.Discard {
		c.next = nil
		return c, nil
	}
	if next.value == nil {
		next.value = s.packObject(object)
	}
	s.writeHeader(next, in.logged)
	return c, nil
}

// showObject adds the event of a change. The case table:
//
//	before     now        event
//	invisible  visible    ADDED
//	visible    visible    MODIFIED, or nothing if a projection looks the same
//	visible    invisible  DELETED
//
//nolint:revive // visible is a result of the projection
func (s *Store) showObject(c *change, old *entry, shown []byte, visible bool) error {
	var prev *Object
	if old != nil {
		prev = old.shown
	}
	if !visible {
		if prev != nil {
			return s.hideObject(c, prev, c.next.rv)
		}
		return nil
	}
	shownHash := uint64(0)
	if s.params.Projection != nil {
		content, err := wire.ComparableContent(shown)
		if err != nil {
			return err
		}
		shownHash = hashShown(content)
		if prev != nil && shownHash == old.shownHash {
			c.next.shown, c.next.shownHash = prev, shownHash
			return s.completeData(prev, shown)
		}
	}
	rv := s.issueVersion(c.next.rv)
	if s.params.Virtual {
		var err error
		if shown, err = wire.WithResourceVersion(s.params.Format, shown, rv); err != nil {
			return err
		}
	}
	c.next.shown, c.next.shownHash = &Object{Key: c.key, RV: rv, Data: shown}, shownHash
	c.event = &Event{Type: Added, Object: c.next.shown, Prev: prev}
	if prev != nil {
		c.event.Type = Modified
	}
	return nil
}

// completeData adds the encoding to an object that comes from the journal, where only its version is.
func (s *Store) completeData(o *Object, shown []byte) error {
	if o.Data != nil {
		return nil
	}
	var err error
	o.Data, err = wire.WithResourceVersion(s.params.Format, shown, o.RV)
	return err
}

// hideObject adds a DELETED event with the last visible state and the version of the deletion.
func (s *Store) hideObject(c *change, prev *Object, u uint64) error {
	rv := s.issueVersion(u)
	data, err := wire.WithResourceVersion(s.params.Format, prev.Data, rv)
	if err != nil {
		return err
	}
	c.event = &Event{Type: Deleted, Object: &Object{Key: c.key, RV: rv, Data: data}, Prev: prev}
	return nil
}
