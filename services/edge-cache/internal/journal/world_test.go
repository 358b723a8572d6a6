package journal_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/edge-cache/internal/journal"
)

// state is what a cache holds: values by type and key.
type state map[string]string

func (s state) apply(r journal.Record) error {
	key := fmt.Sprintf("%d/%s", r.Type, r.Key)
	if r.Value == nil {
		delete(s, key)
	} else {
		s[key] = string(r.Value)
	}
	return nil
}

// cache is a caller of a journal: it appends, then changes its memory, and remembers every state it had.
type cache struct {
	journal *journal.Journal
	pause   func()      // called between two values that source yields, if set
	fail    atomic.Bool // source fails

	mu      sync.Mutex
	now     state
	history []state     // by number of batches
	times   []time.Time // when a batch was appended
}

const (
	keys       = 24
	batchType  = 9
	objectType = 1
)

// openCache starts a cache from a directory.
func openCache(t *testing.T, fs journal.FS, o journal.Options) *cache {
	t.Helper()
	j, err := journal.Open(fs, o)
	require.NoError(t, err)
	c := &cache{journal: j, now: state{}}
	require.NoError(t, j.Replay(c.now.apply))
	c.history, c.times = []state{maps.Clone(c.now)}, []time.Time{{}}
	return c
}

func startCache(t *testing.T, fs journal.FS, o journal.Options) *cache {
	t.Helper()
	c := openCache(t, fs, o)
	if err := c.journal.Start(c.source); err != nil {
		require.ErrorIs(t, err, journal.ErrDegraded)
	}
	return c
}

func (c *cache) source(yield func(journal.Record) error) error {
	if c.fail.Load() {
		return errors.New("no state today")
	}
	c.mu.Lock()
	now, pause := maps.Clone(c.now), c.pause
	c.mu.Unlock()
	for key := range now {
		if pause != nil {
			pause()
		}
		c.mu.Lock()
		value, ok := c.now[key] // the newest value: the state that is yielded is not of one moment
		c.mu.Unlock()
		if !ok {
			continue
		}
		if err := yield(journal.Record{Type: typeOf(key), Key: key[2:], Value: []byte(value)}); err != nil {
			return err
		}
	}
	return nil
}

// setPause makes snapshots take longer.
func (c *cache) setPause(pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pause = func() { time.Sleep(pause) }
}

func typeOf(key string) uint16 { return uint16(key[0] - '0') }

// append writes a batch as the cache does: to the journal first.
func (c *cache) append(batch ...journal.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := binary.LittleEndian.AppendUint64(nil, uint64(len(c.history)))
	batch = append(batch, journal.Record{Type: batchType, Key: "batch", Value: number})
	err := c.journal.Append(batch...)
	if err != nil && !errors.Is(err, journal.ErrDegraded) {
		return err
	}
	for _, r := range batch {
		_ = c.now.apply(r)
	}
	c.history = append(c.history, maps.Clone(c.now))
	c.times = append(c.times, time.Now())
	return err
}

// randomBatch changes some keys; values of up to size bytes.
func randomBatch(random *rand.Rand, size int) []journal.Record {
	var batch []journal.Record
	for range 1 + random.IntN(4) {
		r := journal.Record{Type: objectType, Key: fmt.Sprintf("ns/%d", random.IntN(keys))}
		if random.IntN(4) > 0 {
			r.Value = make([]byte, random.IntN(size+1))
			for i := range r.Value {
				r.Value[i] = byte(random.Uint32())
			}
		}
		batch = append(batch, r)
	}
	return batch
}

// replayed opens a directory and returns its state and the number of the last batch in it.
func replayed(t *testing.T, fs journal.FS, o journal.Options) (state, int, journal.Recovery) {
	t.Helper()
	j, err := journal.Open(fs, o)
	require.NoError(t, err)
	s := state{}
	require.NoError(t, j.Replay(s.apply))
	require.NoError(t, j.Close())
	return s, s.batch(), j.Recovery()
}

func (s state) batch() int {
	value, ok := s[fmt.Sprintf("%d/batch", batchType)]
	if !ok {
		return 0
	}
	return int(binary.LittleEndian.Uint64([]byte(value)))
}

// requirePrefix checks that a replayed state is one that the cache had.
func (c *cache) requirePrefix(t *testing.T, s state, batch int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Less(t, batch, len(c.history))
	require.Equal(t, c.history[batch], s, "the state after batch %d of %d", batch, len(c.history)-1)
}

func (c *cache) requireLatest(t *testing.T, s state) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Equal(t, c.now, s)
}

func (c *cache) close(t *testing.T) {
	t.Helper()
	assert.NoError(t, c.journal.Close())
}

func (s state) size() int64 {
	total := 0
	for key, value := range s {
		total += len(key) + len(value)
	}
	return int64(total)
}
