package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/journal"
	"fairlead.dev/services/edge-cache/internal/responsecache"
	"fairlead.dev/services/edge-cache/internal/store"
)

// recordIdentity is the type of the record with the UID of the cluster.
const recordIdentity uint16 = 5

// lockWait is how long a start waits until the previous process unlocks the directory. A process that was told to end needs a second, and
// on a slow disk as long as its last fsync. The time is shorter than the grace period of a pod, so a cache that gets no lock ends with a
// message.
const lockWait = 20 * time.Second

// DurableState is the journal to which stores and the response cache write.
type DurableState struct {
	*journal.Journal

	log        *zap.Logger
	erasureDue atomic.Bool // Secrets were removed, and are still on the disk
}

// eraseInterval is the time after which removed Secrets leave the disk. A tenant can name a Secret and forget it again as often as it
// likes: each interval costs at most one snapshot.
const eraseInterval = 20 * time.Second

// runErasures removes Secrets that are gone from the disk until ctx ends.
func (d *DurableState) runErasures(ctx context.Context) {
	ticker := time.NewTicker(eraseInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if d.erasureDue.Swap(false) {
				d.EraseDeleted()
			}
		}
	}
}

// OpenDurableState opens the journal in a data directory. keyFile has the encryption keys; empty: no encryption.
func OpenDurableState(dir, keyFile string, log *zap.Logger) (*DurableState, error) {
	fs, err := journal.OpenDir(filepath.Join(dir, "journal"))
	if err != nil {
		return nil, fmt.Errorf("open --data-dir: %w", err)
	}
	o := journal.Options{LockWait: lockWait, Log: log.Named("journal")}
	if keyFile != "" {
		if o.Keys, err = journal.ReadKeys(keyFile); err != nil {
			return nil, fmt.Errorf("read --encryption-key-file: %w", err)
		}
	}
	j, err := journal.Open(fs, o)
	if err != nil {
		return nil, fmt.Errorf("open --data-dir: %w", err)
	}
	d := &DurableState{Journal: j, log: log}
	d.erasureDue.Store(true) // what the process before this one removed
	return d, nil
}

// requestErasure notes that a Secret was removed, and is still on the disk.
func (d *DurableState) requestErasure() { d.erasureDue.Store(true) }

// restoreState fills the stores and the response cache. damaged is why the journal is not complete, nil if it is.
func (d *DurableState) restoreState(stores map[string]*store.Store, responses *responsecache.Cache) (identity string, damaged, err error) {
	err = d.Replay(func(r journal.Record) error {
		record := store.Record{Type: r.Type, Key: strings.Clone(r.Key), Value: bytes.Clone(r.Value)}
		switch r.Type {
		case recordIdentity:
			identity = string(record.Value)
			return nil
		case responsecache.RecordType:
			return responses.RestoreRecord(record)
		}
		id, _ := store.SplitKey(record.Key)
		if s := stores[id]; s != nil {
			return s.RestoreRecord(record)
		}
		return nil // of a store that the flags no longer ask for
	})
	if err != nil {
		return "", nil, fmt.Errorf("read the journal: %w", err)
	}
	if r := d.Recovery(); r.Damaged {
		damaged = errors.New("the journal is not complete: " + r.Reason)
		d.log.Warn("Journal is not complete", zap.String("reason", r.Reason), zap.Int64("lostBytes", r.LostBytes))
	}
	return identity, damaged, nil
}

func identityRecord(uid string) store.Record {
	return store.Record{Type: recordIdentity, Key: "cluster", Value: []byte(uid)}
}

// yieldState yields everything that the journal must hold.
func (m *Mirror) yieldState(yield func(store.Record) error) error {
	if uid := m.params.Connection.Identity(); uid != "" {
		if err := yield(identityRecord(uid)); err != nil {
			return err
		}
	}
	for _, c := range m.collections {
		if err := c.store.EachRecord(yield); err != nil {
			return err
		}
	}
	return m.params.Responses.EachRecord(yield)
}
