// Package journal keeps the state of a cache on disk: a snapshot plus append logs in one directory.
//
// Records are opaque to the journal: a type, a key and a value. Input: batches of records by Append, in order, and the whole state by a
// Source when the journal compacts or repairs itself. Output: at the next start, Replay delivers a state that the cache had at some moment.
//
// Invariants:
//   - Append writes to the file before it returns. A killed process loses nothing that Append accepted.
//   - fsync follows within syncDelay plus the time of one fsync that is already running. A power loss loses at most that much.
//   - A batch is atomic: Replay delivers all its records or none.
//   - Replay delivers a prefix of what was appended: if batch n is there, so are all batches before it.
//   - A damaged snapshot does not stop the journal: it replays the snapshot before it, and the logs since then.
//   - A full or read-only disk does not stop the caller: Append returns ErrDegraded, and the journal writes a new snapshot when the disk
//     accepts it.
//   - Memory: one frame (1 MiB, or one record if that is larger) per reader and per writer. Disk: about five times the state, see
//     compact.go.
//
// A directory holds files of generations:
//
//	snapshot-0000000000000007     the state when generation 7 began; logs before it are not needed
//	log-0000000000000007          batches since then
//	log-0000000000000008          batches after a restart; a log is never appended to by two processes
//	snapshot-….tmp                a snapshot in the making
//
// The snapshot before the newest one stays, together with its logs, unless EraseDeleted asks for its removal.
package journal

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/wake"
)

// Bounds of a record. The API server accepts objects of 1.5 MiB by default (etcd's limit for a request); a record is refused at about ten
// times that.
const (
	MaxKey   = 4 << 10
	MaxValue = 16 << 20
)

// FormatVersion is the version of the files. A journal of a later version reads as damaged: the cache starts empty and fills from the API
// server.
const FormatVersion = 1

var (
	// ErrDegraded means that records are not on disk. The caller goes on; the journal repairs itself from its Source.
	ErrDegraded = errors.New("journal: not written to disk")
	// ErrTooLarge means that a key or a value exceeds its bound. Nothing of the batch was written.
	ErrTooLarge = errors.New("journal: record too large")
	// ErrLocked means that another process owns the directory.
	ErrLocked = errors.New("journal: directory is in use by another process")
	// ErrKey means that no given key opens the files.
	ErrKey = errors.New("journal: encrypted with a key that was not given")
	// ErrClosed means that the journal was closed or not started.
	ErrClosed = errors.New("journal: closed")
)

// Record is one change of one key. Type and Key together name what changes. A nil Value removes the key; an empty one does not.
type Record struct {
	Type  uint16
	Key   string
	Value []byte
}

// Source yields the whole state as records with values. The journal calls it from a goroutine of its own, beside calls of Append. Every
// value must have been appended before, and must be at least as new as the last Append that returned before the call. Values of different
// keys need not be of one moment: the log since the beginning of the call is replayed on top. Source must not call the journal. It returns
// the error of yield.
type Source func(yield func(Record) error) error

// Options are settings of a journal. The zero value of a field means the value in its comment.
type Options struct {
	// Keys encrypt and decrypt; none means no encryption.
	Keys Keys
	// CompactBytes is the size of logs that causes a compaction, if the snapshot is not larger: 8 MiB.
	CompactBytes int64
	// LockWait is how long Open waits for another owner of the directory to end: 0.
	LockWait time.Duration
	// Log receives what happened to the disk: a no-op logger.
	Log *zap.Logger
}

// Journal owns one directory. Its methods are safe for concurrent use.
type Journal struct {
	fs       FS
	options  Options
	log      *zap.Logger
	unlock   func() error
	recovery Recovery
	chain    chain // what Replay reads

	mu       sync.Mutex
	synced   *sync.Cond // on mu: syncDone, status.Failures or closed changed
	started  bool
	closed   bool
	source   Source
	writer   *writer   // the log that takes batches; nil while there is none
	retired  []*writer // earlier logs that wait for their last fsync
	dirNew   bool      // a file was created or renamed since the last fsync of the directory
	appended uint64    // batches written
	durable  uint64    // batches known to survive a power loss
	oldest   time.Time // when the first batch that is not durable was written, or earlier
	syncWant uint64    // requests for an immediate fsync
	syncDone uint64    // those that are fulfilled
	base     base      // what the log stands on
	nextGen  uint64
	attempt  uint64 // generation of a snapshot that failed: the next attempt needs no other log
	erase    erasure
	status   Status

	wakeSync    wake.Signal
	syncAtOnce  wake.Signal
	wakeCompact wake.Signal
	stop        chan struct{}
	background  sync.WaitGroup
}

// base is the snapshot that the current log stands on, and the logs between them.
type base struct {
	gen  uint64
	size int64 // of the snapshot
	logs int   // number of finished logs since then
	log  int64 // their bytes
}

// Status is what metrics and the readiness text say about the journal.
type Status struct {
	Degraded      bool
	Since         time.Time // when it became degraded
	Reason        string    // why it is degraded, or why the last compaction failed; empty if neither
	SnapshotBytes int64
	LogBytes      int64
	Unsynced      time.Duration // age of the oldest batch that a power loss would lose
	SlowestSync   time.Duration // the longest time from a write to the end of its fsync
	Syncs         uint64
	Compactions   uint64
	Failures      uint64 // errors of the disk; a snapshot that sees it change is dropped
}

// Start begins a new log and the work in the background. The state of source must be what Replay delivered. The error is ErrDegraded if the
// disk does not accept the log: the journal runs, and tries again.
func (j *Journal) Start(source Source) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.started || j.closed {
		return ErrClosed
	}
	j.started, j.source = true, source
	if j.chain.broken {
		// A log on top of what is on disk would not replay.
		j.failLocked(fmt.Errorf("the files cannot be continued: %s", j.recovery.Reason))
	} else if err := j.rotateLocked(false); err != nil {
		j.failLocked(fmt.Errorf("create log: %w", err))
	}
	j.background.Add(2)
	go j.syncLoop()
	go j.compactLoop()
	j.wakeCompact.Send()
	if j.status.Degraded && !j.chain.broken {
		return fmt.Errorf("%w: %s", ErrDegraded, j.status.Reason)
	}
	return nil
}

// Append writes a batch. It returns when the batch is in the file, before fsync. A batch may have any size.
func (j *Journal) Append(batch ...Record) error {
	for i := range batch {
		if err := batch[i].validate(); err != nil {
			return err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || !j.started {
		return ErrClosed
	}
	if len(batch) == 0 {
		return nil
	}
	if j.writer == nil {
		return fmt.Errorf("%w: %s", ErrDegraded, j.status.Reason)
	}
	if err := j.writer.writeBatch(batch); err != nil {
		j.failLocked(fmt.Errorf("write log: %w", err))
		return fmt.Errorf("%w: %w", ErrDegraded, err)
	}
	if j.appended++; j.appended == j.durable+1 {
		j.oldest = time.Now()
		j.wakeSync.Send()
	}
	return j.checkLogSizeLocked()
}

// checkLogSizeLocked asks for a compaction, and gives up on the log when compactions keep failing: the disk must not fill with logs that
// nobody can compact.
func (j *Journal) checkLogSizeLocked() error {
	size, limit := j.logSizeLocked()
	if size > limit {
		j.wakeCompact.Send()
	}
	if size > maxLogFactor*limit && j.status.Reason != "" {
		j.failLocked(fmt.Errorf("logs exceed %d bytes and the last compaction failed: %s", maxLogFactor*limit, j.status.Reason))
	}
	if j.status.Degraded {
		return fmt.Errorf("%w: %s", ErrDegraded, j.status.Reason)
	}
	return nil
}

// logSizeLocked returns the size of the logs, and the size that causes a compaction.
func (j *Journal) logSizeLocked() (size, limit int64) {
	size = j.base.log
	if j.writer != nil {
		size += j.writer.size
	}
	return size, max(j.options.CompactBytes, j.base.size)
}

// maxLogFactor bounds logs while compactions fail: the directory has at most twice its usual size, and a single slow compaction does not
// degrade the journal.
const maxLogFactor = 4

func (r *Record) validate() error {
	if len(r.Key) > MaxKey || len(r.Value) > MaxValue {
		return fmt.Errorf("%w: key of %d bytes, value of %d bytes, limits %d and %d", ErrTooLarge, len(r.Key), len(r.Value), MaxKey,
			MaxValue)
	}
	return nil
}

// failLocked makes the journal degraded: the log is abandoned, because after a failed write or fsync its content on disk is unknown.
func (j *Journal) failLocked(err error) {
	j.status.Failures++
	j.abandonLocked()
	if !j.status.Degraded {
		j.status.Degraded = true
		j.status.Since = time.Now()
		j.log.Warn("Persistence degraded: serving from memory, and repairing the journal with a new snapshot as soon as the disk "+
			"accepts it", zap.Error(err))
	}
	j.status.Reason = err.Error()
	j.synced.Broadcast()
	j.wakeCompact.Send()
}

func (j *Journal) abandonLocked() {
	if j.writer != nil {
		_ = j.writer.file.Close() // its content no longer counts
		j.writer = nil
	}
	for _, old := range j.retired {
		_ = old.file.Close()
	}
	j.retired = nil
}

// Status returns the present state.
func (j *Journal) Status() Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.status
	s.SnapshotBytes = j.base.size
	s.LogBytes, _ = j.logSizeLocked()
	if j.appended > j.durable && !s.Degraded {
		s.Unsynced = time.Since(j.oldest)
	}
	return s
}

// Close syncs the log and unlocks the directory.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	started := j.started
	j.synced.Broadcast()
	j.mu.Unlock()
	var err error
	if started {
		close(j.stop)
		j.background.Wait()
		err = j.syncNow()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.abandonLocked()
	return errors.Join(err, j.unlock())
}
