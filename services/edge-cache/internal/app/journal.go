package app

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

	"fairlead.dev/services/edge-cache/internal/config"
	"fairlead.dev/services/edge-cache/internal/journal"
	"fairlead.dev/services/edge-cache/internal/responsecache"
	"fairlead.dev/services/edge-cache/internal/store"
)

// recordIdentity is the type of the record with the UID of the cluster.
const recordIdentity uint16 = 5

// lockWait is how long a start waits for the process before it to give the directory up. A process that was told to end needs a second, and one on a slow disk as
// long as its last fsync. The time is shorter than the grace period of a pod, so a cache that waits in vain ends with a message.
const lockWait = 20 * time.Second

// durableJournal is the journal, as stores write to it.
type durableJournal struct {
	journal *journal.Journal
	log     *zap.Logger
	secrets atomic.Bool // some were removed, and are still on the disk
}

// eraseInterval is the time after which removed Secrets leave the disk. A tenant can name a Secret and forget it again as often as it likes: each interval
// costs at most one snapshot.
const eraseInterval = 20 * time.Second

// runErasures removes Secrets that are gone from the disk until ctx ends.
func (d *durableJournal) runErasures(ctx context.Context) {
	ticker := time.NewTicker(eraseInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if d.secrets.Swap(false) {
				d.journal.EraseDeleted()
			}
		}
	}
}

// openJournal opens the journal of the data directory.
func openJournal(cfg *config.Config, log *zap.Logger) (*durableJournal, error) {
	fs, err := journal.OpenDir(filepath.Join(cfg.Data.Dir, "journal"))
	if err != nil {
		return nil, fmt.Errorf("open --data-dir: %w", err)
	}
	o := journal.Options{LockWait: lockWait, Log: log.Named("journal")}
	if cfg.Data.KeyFile != "" {
		if o.Keys, err = journal.ReadKeys(cfg.Data.KeyFile); err != nil {
			return nil, fmt.Errorf("read --encryption-key-file: %w", err)
		}
	}
	j, err := journal.Open(fs, o)
	if err != nil {
		return nil, fmt.Errorf("open --data-dir: %w", err)
	}
	d := &durableJournal{journal: j, log: log}
	d.secrets.Store(true) // what the process before this one removed
	return d, nil
}

// Append implements store.Journal.
func (d *durableJournal) Append(records ...store.Record) error {
	batch := make([]journal.Record, len(records))
	for i, r := range records {
		batch[i] = toJournal(r)
	}
	return d.journal.Append(batch...)
}

func toJournal(r store.Record) journal.Record {
	if r.Value == nil {
		return journal.Record{Op: journal.Delete, Type: r.Type, Key: r.Key}
	}
	return journal.Record{Op: journal.Put, Type: r.Type, Key: r.Key, Value: r.Value}
}

// restoredState is what the journal holds.
type restoredState struct {
	identity string
	damaged  error
}

// restoreState fills the stores and the documents.
func (d *durableJournal) restoreState(stores map[string]*store.Store, docs *responsecache.Cache) (restoredState, error) {
	var out restoredState
	err := d.journal.Replay(func(r journal.Record) error {
		record := store.Record{Type: r.Type, Key: strings.Clone(r.Key)}
		if r.Op == journal.Put {
			record.Value = bytes.Clone(r.Value)
			if record.Value == nil {
				record.Value = []byte{}
			}
		}
		switch r.Type {
		case recordIdentity:
			out.identity = string(record.Value)
			return nil
		case responsecache.RecordType:
			return docs.RestoreRecord(record)
		}
		id, _ := store.SplitKey(record.Key)
		if s := stores[id]; s != nil {
			return s.RestoreRecord(record)
		}
		return nil // of a store that the flags no longer ask for
	})
	if err != nil {
		return out, fmt.Errorf("read the journal: %w", err)
	}
	if r := d.journal.Recovery(); r.Damaged {
		out.damaged = errors.New("the journal is not complete: " + r.Reason)
		d.log.Warn("Journal is not complete", zap.String("reason", r.Reason), zap.Int64("lostBytes", r.LostBytes))
	}
	return out, nil
}

func identityRecord(uid string) store.Record {
	return store.Record{Type: recordIdentity, Key: "cluster", Value: []byte(uid)}
}

// stateSource returns everything that the journal must hold.
func (d *durableJournal) stateSource(c *caches, docs *responsecache.Cache, identity func() string) journal.Source {
	return func(yield func(journal.Record) error) error {
		put := func(r store.Record) error { return yield(toJournal(r)) }
		if uid := identity(); uid != "" {
			if err := put(identityRecord(uid)); err != nil {
				return err
			}
		}
		for _, o := range c.all {
			if err := o.store.EachRecord(put); err != nil {
				return err
			}
		}
		return docs.EachRecord(put)
	}
}
