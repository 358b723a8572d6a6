package journal_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fairlead.dev/services/edge-cache/internal/journal"
)

// TestFullDisk fills the disk while the cache runs. The cache goes on, the journal says that it is degraded, and everything is on disk a
// minute after there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for seed := range seeds(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(10, uint64(seed)))
			disk := newFaultDisk()
			c := startCache(t, disk, small)
			for range random.IntN(100) {
				require.NoError(t, c.append(randomBatch(random, 400)...))
				time.Sleep(5 * time.Millisecond)
			}
			before := c.now.batch()
			disk.SetFree(int64(random.IntN(4 << 10)))
			failed := 0
			for range 200 {
				if err := c.append(randomBatch(random, 400)...); err != nil {
					require.ErrorIs(t, err, journal.ErrDegraded)
					failed++
				}
				time.Sleep(20 * time.Millisecond)
			}
			synctest.Wait() // a retry that is due now
			// The previous snapshot may have made room: then the journal is not degraded for long.
			if status := c.journal.Status(); status.Degraded {
				require.Contains(t, status.Reason, "no space left")
				require.ErrorIs(t, c.journal.Sync(), journal.ErrDegraded)
			}
			require.Positive(t, failed)
			s, batch, _ := replayed(t, disk.Clone(), small)
			c.requirePrefix(t, s, batch)
			require.GreaterOrEqual(t, batch, before, "what was there before stays")

			disk.SetUnbounded()
			time.Sleep(time.Minute)
			require.False(t, c.journal.Status().Degraded)
			require.NoError(t, c.append(randomBatch(random, 400)...))
			require.NoError(t, c.journal.Sync())
			s, _, _ = replayed(t, disk.PowerLoss(random), small)
			c.requireLatest(t, s)
			c.close(t)
		})
	}
}

// TestReadOnlyDisk starts on a disk that cannot be written: the state is there, and the journal repairs itself once the disk is writable.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(11, 0))
		disk, old := filledDisk(t, small, random)
		disk.SetReadOnly(true)
		c := openCache(t, disk, small)
		old.requireLatest(t, c.now)
		require.ErrorIs(t, c.journal.Start(c.source), journal.ErrDegraded)
		require.ErrorIs(t, c.append(randomBatch(random, 100)...), journal.ErrDegraded)
		time.Sleep(10 * time.Minute)
		require.True(t, c.journal.Status().Degraded)
		require.Contains(t, c.journal.Status().Reason, "read-only file system")
		disk.SetReadOnly(false)
		time.Sleep(time.Minute)
		require.False(t, c.journal.Status().Degraded)
		s, _, _ := replayed(t, disk.PowerLoss(random), small)
		c.requireLatest(t, s)
		c.close(t)
	})
}

// TestFailedSync gives up on a log whose fsync failed: the kernel drops such pages, so what was written before must be written again.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	for seed := range seeds(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(12, uint64(seed)))
			disk := newFaultDisk()
			disk.SetSync(func() { time.Sleep(10 * time.Millisecond) })
			c := startCache(t, disk, small)
			for i := range 150 {
				if i == 75 {
					disk.FailSync(syscall.EIO)
				}
				err := c.append(randomBatch(random, 400)...)
				require.True(t, err == nil || errors.Is(err, journal.ErrDegraded))
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			require.False(t, c.journal.Status().Degraded)
			require.Positive(t, c.journal.Status().Failures)
			s, _, _ := replayed(t, disk.PowerLoss(random), small)
			c.requireLatest(t, s)
			c.close(t)
		})
	}
}

// TestCompactionThatKeepsFailing bounds the log: on a disk that takes small writes only, the journal degrades before it has filled the
// disk.
func TestCompactionThatKeepsFailing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(13, 0))
		disk := newFaultDisk()
		j, err := journal.Open(disk, small)
		require.NoError(t, err)
		require.NoError(t, j.Start(func(func(journal.Record) error) error { return errors.New("no state today") }))
		degraded := false
		for range 2000 {
			degraded = degraded || errors.Is(j.Append(randomBatch(random, 400)...), journal.ErrDegraded)
			time.Sleep(10 * time.Millisecond)
		}
		require.True(t, degraded)
		require.Contains(t, j.Status().Reason, "no state today")
		require.Less(t, disk.UsedBytes(), 5*small.CompactBytes)
		require.NoError(t, j.Close())
	})
}

func TestSync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(14, 0))
		disk := newFaultDisk()
		disk.SetSync(func() { time.Sleep(50 * time.Millisecond) })
		c := startCache(t, disk, small)
		for range 20 {
			require.NoError(t, c.append(randomBatch(random, 100)...))
			began := time.Now()
			require.NoError(t, c.journal.Sync())
			require.LessOrEqual(t, time.Since(began), 100*time.Millisecond, "an fsync that runs, and one more")
			s, _, _ := replayed(t, disk.PowerLoss(random), small)
			c.requireLatest(t, s)
			time.Sleep(time.Duration(random.IntN(70)) * time.Millisecond)
		}
		require.NoError(t, c.append())
		require.Positive(t, c.journal.Status().SlowestSync)
		c.close(t)
		require.ErrorIs(t, c.journal.Sync(), journal.ErrClosed)
		require.ErrorIs(t, c.append(), journal.ErrClosed)
	})
}

// TestSettledJournal writes nothing: no fsync without a batch.
func TestSettledJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := startCache(t, newFaultDisk(), small)
		require.NoError(t, c.append())
		time.Sleep(time.Minute)
		before := c.journal.Status()
		time.Sleep(time.Hour)
		require.Equal(t, before, c.journal.Status())
		require.Zero(t, before.Unsynced)
		c.close(t)
	})
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	disk := newFaultDisk()
	disk.SetSync(runtime.Gosched)
	c := startCache(t, disk, small)
	var group sync.WaitGroup
	errs := make([]error, 4)
	for worker := range errs {
		group.Go(func() {
			random := rand.New(rand.NewPCG(15, uint64(worker)))
			for range 300 {
				errs[worker] = errors.Join(errs[worker], c.append(randomBatch(random, 400)...))
				if random.IntN(10) == 0 {
					errs[worker] = errors.Join(errs[worker], c.journal.Sync())
				}
				_ = c.journal.Status()
			}
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	c.close(t)
	s, _, _ := replayed(t, disk, small)
	c.requireLatest(t, s)
}

func TestRefusedRecords(t *testing.T) {
	t.Parallel()
	disk := newFaultDisk()
	c := startCache(t, disk, small)
	before := disk.UsedBytes()
	require.ErrorIs(t,
		c.journal.Append(journal.Record{Key: "fits"},
			journal.Record{Value: make([]byte, journal.MaxValue+1)}),
		journal.ErrTooLarge)
	require.ErrorIs(t, c.journal.Append(journal.Record{Key: strings.Repeat("k", journal.MaxKey+1)}), journal.ErrTooLarge)
	require.NoError(t, c.journal.Append())
	require.Equal(t, before, disk.UsedBytes())
	largest := journal.Record{
		Type: objectType, Key: strings.Repeat("k", journal.MaxKey), Value: make([]byte, journal.MaxValue),
	}
	require.NoError(t, c.append(largest, largest))
	c.close(t)
	s, _, recovery := replayed(t, disk, small)
	c.requireLatest(t, s)
	require.False(t, recovery.Damaged)
}

func TestOneOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := newFaultDisk()
		c := startCache(t, disk, small)
		_, err := journal.Open(disk, small)
		require.ErrorIs(t, err, journal.ErrLocked)
		go func() {
			time.Sleep(3 * time.Second)
			_ = c.journal.Close()
		}()
		next, err := journal.Open(disk, journal.Options{LockWait: 10 * time.Second})
		require.NoError(t, err)
		require.NoError(t, next.Close())
	})
}

// TestForeignFiles leaves files of other names alone, and does not take a copy for the original.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, c := filledDisk(t, small, rand.New(rand.NewPCG(16, 0)))
		disk.WriteFile("notes.txt", []byte("mine"))
		disk.WriteFile("snapshot-ffffffffffffffff", disk.ReadFile(newestFile(disk, "snapshot-")))
		disk.WriteFile("snapshot-0000000000000fff", disk.ReadFile(newestFile(disk, "snapshot-0000000000000")))
		disk.WriteFile("log-0000000000001000", disk.ReadFile(newestFile(disk, "log-")))
		s, _, _ := replayed(t, disk.Clone(), small)
		c.requireLatest(t, s)
		again := startCache(t, disk, small)
		for range 300 {
			require.NoError(t, again.append(randomBatch(rand.New(rand.NewPCG(16, 1)), 400)...))
			time.Sleep(time.Millisecond)
		}
		again.close(t)
		require.Contains(t, disk.FileNames(), "notes.txt")
		s, _, _ = replayed(t, disk, small)
		again.requireLatest(t, s)
	})
}
