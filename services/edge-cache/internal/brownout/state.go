package brownout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// ObjectState returns the record of a slice for the journal: its held endpoints. A slice without held endpoints has no record.
func (k *Tracker) ObjectState(key string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.slices[key]
	if s == nil || len(s.held) == 0 {
		return nil
	}
	b, _ := binary.Append(nil, binary.LittleEndian, s.held) // numbers have a fixed size
	return b
}

// maxRestored is the largest number of endpoints of a slice that the API server accepts.
const maxRestored = 1000

// RestoreObject takes what ObjectState returned in an earlier process. It comes before the first AdjustConditions of the slice.
func (k *Tracker) RestoreObject(key string, state []byte) error {
	if len(state)%8 != 0 || len(state) > 8*maxRestored {
		return errors.New("restore held endpoints: the record is malformed")
	}
	s := &slice{restored: true, held: make([]uint64, len(state)/8)}
	if _, err := binary.Decode(state, binary.LittleEndian, s.held); err != nil {
		return fmt.Errorf("restore held endpoints: %w", err)
	}
	slices.Sort(s.held)
	s.ready = slices.Clone(s.held)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(s.held) > 0 {
		k.slices[key] = s
	}
	return nil
}
