package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// A compaction replaces logs by a snapshot: a new log begins, the source yields the state, and the snapshot counts once it is durable and
// the log is durable as far as the snapshot may have seen it. Then everything older than the previous snapshot goes.
//
// Disk: two snapshots, the logs of both (each at most CompactBytes or the size of its snapshot, and what comes while the next snapshot is
// written), and one snapshot in the making: about five times the state if that is larger than CompactBytes.

const (
	// maxLogs bounds the number of logs: each restart creates one.
	maxLogs = 8
	// First and longest pause after a failed compaction. The disk may have room again at any time, and an attempt on a full disk is one
	// small write.
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// erasure counts the requests to remove what was deleted from the disk. A snapshot fulfills those that were there when its log began.
type erasure struct{ requested, attempt, done uint64 }

// EraseDeleted removes values that were deleted before from the disk, by a new snapshot without the one before it. It does not wait for
// that.
func (j *Journal) EraseDeleted() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.erase.requested++
	j.wakeCompact.Send()
}

func (j *Journal) compactLoop() {
	defer j.background.Done()
	pause := minRetry
	for {
		select {
		case <-j.stop:
			return
		case <-j.wakeCompact:
		}
		if !j.compactionDue() {
			continue
		}
		err := j.writeCompaction()
		if err == nil {
			pause = minRetry
			continue
		}
		select {
		case <-j.stop:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxRetry)
		j.wakeCompact.Send()
	}
}

func (j *Journal) compactionDue() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	size, limit := j.logSizeLocked()
	return j.status.Degraded || j.erase.done != j.erase.requested || j.base.logs >= maxLogs ||
		size > limit
}

// writeCompaction writes a snapshot and removes what it replaces. After an error the journal is as before, and degraded if it was.
func (j *Journal) writeCompaction() error {
	start := time.Now()
	gen, failures, err := j.beginSnapshot()
	if err == nil {
		var size int64
		if size, err = j.writeSnapshot(gen, failures); err == nil {
			j.finishSnapshot(gen, failures, size)
			j.log.Debug("Wrote a snapshot", zap.Uint64("generation", gen), zap.Int64("bytes", size),
				zap.Duration("duration", time.Since(start)))
			return nil
		}
	}
	if errors.Is(err, ErrClosed) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) {
		j.mu.Lock()
		base := j.base.gen
		j.mu.Unlock()
		j.removeFiles(base, gen) // the previous snapshot is a second copy: it makes room for this one
	}
	j.abortSnapshot(gen, err)
	return err
}

// beginSnapshot creates a log for the batches that come while the snapshot is written, unless an earlier attempt created it: a snapshot is
// complete with the whole log of its generation replayed on top, whatever part of that log it has seen.
func (j *Journal) beginSnapshot() (gen, failures uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return 0, 0, ErrClosed
	}
	if j.status.Degraded {
		j.abandonLocked()
	}
	if j.writer == nil || j.writer.gen != j.attempt || j.erase.attempt != j.erase.requested {
		if err := j.rotateLocked(j.writer == nil); err != nil {
			return 0, j.status.Failures, fmt.Errorf("create log: %w", err)
		}
	}
	j.attempt, j.erase.attempt = j.writer.gen, j.erase.requested
	return j.writer.gen, j.status.Failures, nil
}

// writeSnapshot makes the snapshot of a generation durable.
func (j *Journal) writeSnapshot(gen, failures uint64) (size int64, err error) {
	tmp := snapshotName(gen) + tmpSuffix
	_ = j.fs.Remove(tmp) // of an earlier attempt
	w, err := j.createFile(tmp, newHeader(kindSnapshot, gen))
	if err != nil {
		return 0, fmt.Errorf("create snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			_ = w.file.Close()
			_ = j.fs.Remove(tmp)
		}
	}()
	f := footer{}
	if f.Records, err = j.writeState(w, failures); err != nil {
		return 0, err
	}
	j.mu.Lock()
	if j.status.Failures == failures {
		f.LogEnd = uint64(j.writer.size)
		err = j.waitForSyncLocked(failures)
	} else {
		err = fmt.Errorf("%w: %s", ErrDegraded, j.status.Reason)
	}
	j.mu.Unlock()
	if err != nil {
		return 0, err
	}
	w.buffer, _ = binary.Append(append(w.buffer, make([]byte, frameHeader)...), binary.LittleEndian, f) // it has a fixed size
	if err = w.endFrame(flagFooter); err != nil {
		return 0, fmt.Errorf("write snapshot: %w", err)
	}
	if err = w.file.Sync(); err != nil {
		return 0, fmt.Errorf("fsync snapshot: %w", err)
	}
	if err = w.file.Close(); err != nil {
		return 0, fmt.Errorf("close snapshot: %w", err)
	}
	if err = j.fs.Rename(tmp, snapshotName(gen)); err != nil {
		return 0, fmt.Errorf("rename snapshot: %w", err)
	}
	if err = j.fs.SyncDir(); err != nil {
		return 0, fmt.Errorf("fsync journal directory: %w", err)
	}
	return w.size, nil
}

// writeState writes what the source yields.
func (j *Journal) writeState(w *writer, failures uint64) (records uint64, err error) {
	written := w.size
	err = j.source(func(r Record) error {
		if r.Value == nil {
			return errors.New("journal: the source yielded a removal")
		}
		if err := r.validate(); err != nil {
			return err
		}
		if err := w.addRecord(&r); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
		records++
		if w.size == written {
			return nil
		}
		written = w.size
		return j.checkInterrupted(failures)
	})
	if err == nil && len(w.buffer) > 0 {
		if err = w.endFrame(0); err != nil {
			err = fmt.Errorf("write snapshot: %w", err)
		}
	}
	return records, errors.Join(err, j.checkInterrupted(failures))
}

// checkInterrupted returns an error if the snapshot is of no use: the journal closes, or the log beside it failed.
func (j *Journal) checkInterrupted(failures uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return ErrClosed
	case j.status.Failures != failures:
		return fmt.Errorf("%w: %s", ErrDegraded, j.status.Reason)
	}
	return nil
}

// finishSnapshot makes a durable snapshot the base, and removes what only earlier ones needed.
func (j *Journal) finishSnapshot(gen, failures uint64, size int64) {
	j.mu.Lock()
	previous := j.base.gen
	if j.chain.broken || j.erase.done != j.erase.attempt {
		previous = gen // what is there is of no use, or must not stay readable
	}
	j.chain.broken, j.erase.done = false, j.erase.attempt
	j.base, j.attempt = base{gen: gen, size: size}, 0
	j.status.Compactions++
	if j.status.Failures == failures {
		if j.status.Degraded {
			j.log.Info("Persistence repaired", zap.Duration("degraded", time.Since(j.status.Since)))
		}
		j.status.Degraded, j.status.Since, j.status.Reason = false, time.Time{}, ""
	}
	j.mu.Unlock()
	j.removeFiles(previous, gen)
}

// abortSnapshot notes why there is no snapshot. A log that continues nothing is worthless without it.
func (j *Journal) abortSnapshot(gen uint64, err error) {
	j.mu.Lock()
	degraded := j.status.Degraded
	if degraded {
		j.abandonLocked()
	} else {
		j.log.Warn("Compaction failed; the log grows until one succeeds", zap.Error(err))
	}
	j.status.Reason = err.Error()
	j.mu.Unlock()
	if degraded && gen != 0 {
		_ = j.fs.Remove(logName(gen))
	}
}

// removeFiles removes snapshots and logs of generations before oldest, and unfinished snapshots other than that of gen. An error leaves a
// file for the next time.
func (j *Journal) removeFiles(oldest, gen uint64) {
	names, err := j.fs.List()
	if err != nil {
		return
	}
	for _, name := range names {
		plain := strings.TrimSuffix(name, tmpSuffix)
		g := max(parseName(plain, snapshotPrefix), parseName(plain, logPrefix))
		if g != 0 && (g < oldest || plain != name && g != gen) {
			_ = j.fs.Remove(name)
		}
	}
}
