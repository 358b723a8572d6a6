package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"strings"

	"fairlead.dev/services/edge-cache/internal/journal"
)

// Types of records in the journal.
const (
	RecordObject   uint16 = 1
	RecordPosition uint16 = 2
	// RecordState is the state of a companion.
	RecordState uint16 = 7
)

// Record is a record of the journal. A nil Value deletes the key.
type Record = journal.Record

// The value of an object: upstream version, shown version (0: invisible), hash of what is shown, encoding, content. The header has a fixed
// size, so that the same bytes serve as the memory and as the record.
const (
	offsetShownVersion = 8
	offsetShownHash    = 16
	offsetPacking      = 24
	headerSize         = 25

	keySeparator = "\x00"
)

var seed = maphash.MakeSeed()

func hashContent(object []byte) uint64 { return maphash.Bytes(seed, object) }

// hashShown is the same in every process.
func hashShown(content []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(content)
	return h.Sum64()
}

// encodeHeader returns the header of the value of an entry, without the encoding.
func (e *entry) encodeHeader() [offsetPacking]byte {
	var h [offsetPacking]byte
	binary.LittleEndian.PutUint64(h[:], e.rv)
	if e.shown != nil {
		binary.LittleEndian.PutUint64(h[offsetShownVersion:], e.shown.RV)
	}
	binary.LittleEndian.PutUint64(h[offsetShownHash:], e.shownHash)
	return h
}

// writeHeader writes the header. Without a projection, the shown object shares the bytes of the value. The journal may read a value that it
// has: the value is copied before its header changes.
func (s *Store) writeHeader(e *entry, logged bool) { //nolint:revive // logged is a property of the value
	if h := e.encodeHeader(); !bytes.HasPrefix(e.value, h[:]) {
		if logged {
			e.value = bytes.Clone(e.value)
		}
		copy(e.value, h[:])
	}
	if e.shown != nil && s.params.Projection == nil {
		e.shown.Data = e.value[headerSize:]
	}
}

func (s *Store) objectRecord(c change) Record {
	r := Record{Type: RecordObject, Key: s.params.ID + keySeparator + c.key}
	if c.next != nil {
		r.Value = c.next.value
	}
	return r
}

// companionRecord returns the record of the companion's state of a changed object, unless the journal has it. The caller has the lock.
func (s *Store) companionRecord(c change, old *entry) (Record, bool) {
	if s.params.Companion == nil {
		return Record{}, false
	}
	var before, now []byte
	if old != nil {
		before = old.state
	}
	if c.next == nil {
		s.params.Companion.DeleteObject(c.key)
	} else {
		now = s.params.Companion.ObjectState(c.key)
		c.next.state = now
	}
	if bytes.Equal(before, now) {
		return Record{}, false
	}
	return s.stateRecord(c.key, now), true
}

func (s *Store) stateRecord(key string, state []byte) Record {
	if len(state) == 0 {
		state = nil // deletes
	}
	return Record{Type: RecordState, Key: s.params.ID + keySeparator + key, Value: state}
}

// positionRecord has what the store must know after a restart to go on where it was.
func (s *Store) positionRecord() Record {
	value := make([]byte, 0, 64)
	value = binary.AppendUvarint(value, s.rv)
	value = binary.AppendUvarint(value, s.last)
	synced := byte(0)
	if s.synced {
		synced = 1
	}
	value = append(value, synced)
	value = append(value, s.version+keySeparator+s.kind...)
	return Record{Type: RecordPosition, Key: s.params.ID, Value: value}
}

// SplitKey returns the store and the rest of the key of a record.
func SplitKey(key string) (store, rest string) {
	store, rest, _ = strings.Cut(key, keySeparator)
	return store, rest
}

// RestoreRecord adds a record of the journal. It must not be called after FinishRestore.
func (s *Store) RestoreRecord(r Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Type == RecordPosition {
		return s.restorePosition(r.Value)
	}
	_, key := SplitKey(r.Key)
	if r.Type == RecordState {
		s.restoredStates[key] = r.Value
		return nil
	}
	if r.Value == nil {
		delete(s.objects, key)
		return nil
	}
	if len(r.Value) < headerSize {
		return fmt.Errorf("record of %s is too short", key)
	}
	s.objects[key] = &entry{
		rv: binary.LittleEndian.Uint64(r.Value), value: r.Value, shownHash: binary.LittleEndian.Uint64(r.Value[offsetShownHash:]),
		shown: &Object{Key: key, RV: binary.LittleEndian.Uint64(r.Value[offsetShownVersion:])},
	}
	return nil
}

func (s *Store) restorePosition(value []byte) error {
	rv, n := binary.Uvarint(value)
	if n <= 0 {
		return errors.New("record of the position is malformed")
	}
	last, m := binary.Uvarint(value[n:])
	if m <= 0 || len(value) < n+m+1 {
		return errors.New("record of the position is malformed")
	}
	s.rv, s.last, s.synced = rv, last, value[n+m] == 1
	s.version, s.kind = SplitKey(string(value[n+m+1:]))
	return nil
}

// FinishRestore ends the restoration. If the journal lost records, damaged is the reason to issue versions above all that it may have lost.
func (s *Store) FinishRestore(damaged error) error {
	return s.reportChanges(func() ([]change, error) { return s.reprojectRestored(damaged) })
}

// reprojectRestored returns a change for each restored object. The caller has the lock.
func (s *Store) reprojectRestored(damaged error) ([]change, error) {
	states := s.restoredStates
	s.restoredStates = map[string][]byte{}
	if !s.synced {
		clear(s.objects)
		return nil, nil
	}
	if err := s.restoreStates(states); err != nil {
		return nil, err
	}
	for _, e := range s.objects {
		s.last = max(s.last, e.shown.RV)
		s.rv = max(s.rv, e.rv)
	}
	if damaged != nil && s.params.Virtual {
		s.last = max(s.last, (s.rv+1)*scale) + scale
	}
	var changes, restored []change
	for key, e := range s.objects {
		c, err := s.reprojectEntry(key, e)
		if err != nil {
			return nil, err
		}
		if c.event != nil || c.next == nil {
			changes = append(changes, c)
		}
		restored = append(restored, c)
	}
	s.commitChanges(changes)
	s.history = history{}
	s.history.floor = s.advertiseVersion()
	return restored, nil
}

func (s *Store) restoreStates(states map[string][]byte) error {
	for key, state := range states {
		e := s.objects[key]
		if e == nil || len(state) == 0 || s.params.Companion == nil {
			continue
		}
		e.state = state
		if err := s.params.Companion.RestoreObject(key, state); err != nil {
			return fmt.Errorf("restore %s: %w", key, err)
		}
	}
	return nil
}

// reprojectEntry shows a restored object with the version that the readers saw, or with a new version if it looks different now.
func (s *Store) reprojectEntry(key string, e *entry) (change, error) {
	object, err := unpackObject(e.value)
	if err != nil {
		return change{}, fmt.Errorf("restore %s: %w", key, err)
	}
	if s.params.Projection == nil {
		e.hash, e.shown.Data = hashContent(object), e.value[headerSize:]
		return change{key: key, next: e, bytes: object}, nil
	}
	if e.shown.RV == 0 {
		e.shown = nil
	}
	c, err := s.planChange(&incoming{key: key, rv: e.rv, hash: hashContent(object), value: e.value, logged: true, object: object})
	if err != nil {
		return change{}, fmt.Errorf("restore %s: %w", key, err)
	}
	if c.event == nil && c.next != nil {
		c.next.state = e.state
		s.objects[key] = c.next
	}
	return c, nil
}
