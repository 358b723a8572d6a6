package journal

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// syncDelay is the longest time from a write to the start of its fsync. With an fsync of up to 100 ms a power loss loses at most 200 ms.
const syncDelay = 100 * time.Millisecond

// syncLoop makes batches durable. A batch that comes while an fsync runs waits for its end at most, then for the next fsync: its wait is
// max(syncDelay, one fsync) plus one fsync.
func (j *Journal) syncLoop() {
	defer j.background.Done()
	for {
		select {
		case <-j.stop:
			return
		case <-j.syncAtOnce:
		case <-j.wakeSync:
			if !j.waitForBatches() {
				return
			}
		}
		_ = j.syncNow() // the status has the error
	}
}

// waitForBatches lets batches gather until the oldest one has waited for syncDelay. It returns false when the journal closes.
func (j *Journal) waitForBatches() bool {
	j.mu.Lock()
	wait := syncDelay
	if j.appended > j.durable {
		wait -= time.Since(j.oldest)
	}
	j.mu.Unlock()
	select {
	case <-j.stop:
		return false
	case <-j.syncAtOnce:
	case <-time.After(wait):
	}
	return true
}

// syncNow makes durable what was appended before the call. Only one goroutine calls it at a time: the loop, then Close.
func (j *Journal) syncNow() error {
	j.mu.Lock()
	current, retired, dirNew := j.writer, j.retired, j.dirNew
	failures, target, want := j.status.Failures, j.appended, j.syncWant
	oldest, waiting, start := j.oldest, j.appended > j.durable, time.Now()
	j.mu.Unlock()
	err := j.syncFiles(current, retired, dirNew)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.status.Failures != failures {
		return ErrDegraded // the journal has given these files up
	}
	if err != nil {
		// The kernel drops pages that it could not write, and the next fsync reports success: no retry can be believed, and the log is
		// given up.
		j.failLocked(fmt.Errorf("fsync: %w", err))
		return fmt.Errorf("%w: %w", ErrDegraded, err)
	}
	if j.writer == current {
		j.dirNew = false
	}
	j.dropRetiredLocked(retired)
	j.status.Syncs++
	if waiting {
		j.status.SlowestSync = max(j.status.SlowestSync, time.Since(oldest))
	}
	j.durable, j.syncDone = target, want
	if j.appended > j.durable {
		j.oldest = start // or later: these batches came while the fsync ran
		j.wakeSync.Send()
	}
	j.synced.Broadcast()
	return nil
}

// syncFiles syncs all at once: one after the other, a rotation would double the time that a batch is not durable.
func (j *Journal) syncFiles(current *writer, retired []*writer, dirNew bool) error { //nolint:revive // what the journal holds
	syncs := make([]func() error, 0, len(retired)+2)
	for _, old := range retired {
		syncs = append(syncs, old.file.Sync)
	}
	if current != nil {
		syncs = append(syncs, current.file.Sync)
	}
	if dirNew {
		syncs = append(syncs, j.fs.SyncDir)
	}
	errs := make([]error, len(syncs))
	var group sync.WaitGroup
	for i, call := range syncs {
		group.Go(func() { errs[i] = call() })
	}
	group.Wait()
	return errors.Join(errs...)
}

// dropRetiredLocked closes logs whose content is durable.
func (j *Journal) dropRetiredLocked(durable []*writer) {
	for _, old := range durable {
		_ = old.file.Close() // after a successful fsync
	}
	j.retired = append([]*writer(nil), j.retired[len(durable):]...) // logs only retire at the end
}

// waitForSyncLocked waits for an fsync that begins after the call. failures is the count of errors that the caller saw: another error ends
// the wait.
func (j *Journal) waitForSyncLocked(failures uint64) error {
	j.syncWant++
	want := j.syncWant
	j.syncAtOnce.Send()
	for j.syncDone < want {
		switch {
		case j.status.Failures != failures:
			return fmt.Errorf("%w: %s", ErrDegraded, j.status.Reason)
		case j.closed:
			return ErrClosed
		}
		j.synced.Wait()
	}
	return nil
}
