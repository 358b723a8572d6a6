package journal_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/edge-cache/internal/journal"
)

// seeds is how many random histories a test runs: n in the long form, a twentieth otherwise.
func seeds(n int) int { return testlane.Repetitions(max(n/20, 1), n) }

// Small values, so that a history has several compactions.
var small = journal.Options{CompactBytes: 8 << 10}

// TestPowerLossLosesAtMost200Milliseconds loses power at random moments of random histories, several lives long, while compactions run.
// What replays is a state that the cache had, and has every batch that was 200 ms old. The disk needs up to 100 ms for an fsync.
func TestPowerLossLosesAtMost200Milliseconds(t *testing.T) {
	t.Parallel()
	compactions := uint64(0)
	for seed := range seeds(400) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(seed)))
			disk := newFaultDisk()
			for life := range 3 {
				wait := time.Duration(random.IntN(100)) * time.Millisecond
				disk.SetSync(func() { time.Sleep(wait) })
				c := startCache(t, disk, small)
				c.setPause(time.Duration(random.IntN(20)) * time.Millisecond)
				compactions += c.liveUntilPowerLoss(t, random, disk)
				next := disk.PowerLoss(random)
				s, batch, _ := replayed(t, next.Clone(), small)
				c.requirePrefix(t, s, batch)
				require.GreaterOrEqual(t, batch, c.lastBefore(time.Now().Add(-200*time.Millisecond)), "seed %d, life %d", seed, life)
				c.close(t)
				disk = next
			}
		})
	}
	require.Greater(t, compactions, uint64(seeds(400)), "power must be lost beside compactions too")
}

// liveUntilPowerLoss appends at random moments and checks now and then what a power loss would leave. The history begins at batch 0 of this
// life.
func (c *cache) liveUntilPowerLoss(t *testing.T, random *rand.Rand, disk *faultDisk) uint64 {
	// Batches of an earlier life have numbers too: this life's history starts with the state that replayed.
	first := c.now.batch()
	c.history = append(make([]state, first), maps.Clone(c.now))
	c.times = make([]time.Time, first+1)
	for range 20 + random.IntN(150) {
		time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
		require.NoError(t, c.append(randomBatch(random, 400)...))
		if random.IntN(20) == 0 {
			s, batch, _ := replayed(t, disk.PowerLoss(random), small)
			c.requirePrefix(t, s, batch)
			require.GreaterOrEqual(t, batch, c.lastBefore(time.Now().Add(-200*time.Millisecond)))
		}
	}
	return c.journal.Status().Compactions
}

// lastBefore returns the number of the last batch that was appended at or before a time.
func (c *cache) lastBefore(at time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := 0
	for i, appended := range c.times {
		if !appended.After(at) {
			last = i
		}
	}
	return last
}

// TestKillLosesNothing ends the process at random moments: the files keep what was written, and all batches replay.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	for seed := range seeds(100) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(2, uint64(seed)))
			disk := newFaultDisk()
			for range 4 {
				wait := time.Duration(random.IntN(300)) * time.Millisecond
				disk.SetSync(func() { time.Sleep(wait) })
				c := startCache(t, disk, small)
				c.setPause(time.Duration(random.IntN(20)) * time.Millisecond)
				for range random.IntN(150) {
					time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
					require.NoError(t, c.append(randomBatch(random, 400)...))
				}
				disk = disk.Clone()
				s, _, recovery := replayed(t, disk.Clone(), small)
				c.requireLatest(t, s)
				require.Equal(t, journal.Recovery{Base: journal.BaseSnapshot}, recovery)
				c.close(t)
			}
		})
	}
}

// filledDisk returns a disk with two snapshots and logs on top, and the cache that wrote it.
func filledDisk(t *testing.T, o journal.Options, random *rand.Rand) (*faultDisk, *cache) {
	t.Helper()
	disk := newFaultDisk()
	c := startCache(t, disk, o)
	for c.journal.Status().Compactions < 3 {
		require.NoError(t, c.append(randomBatch(random, 400)...))
		time.Sleep(time.Millisecond)
	}
	for range 20 {
		require.NoError(t, c.append(randomBatch(random, 100)...))
	}
	c.close(t)
	return disk, c
}

// TestFlippedBits flips one bit in turn in every file, at many places. What replays is a state that the cache had; the newest one, or the
// journal says what is lost.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(3, 0))
		original, c := filledDisk(t, small, random)
		names := original.FileNames()
		require.GreaterOrEqual(t, len(names), 4, "two snapshots, two logs: %v", names)
		for _, name := range names {
			for range seeds(400) {
				disk := original.Clone()
				offset := random.IntN(disk.FileSize(name))
				disk.FlipBits(name, offset, 1<<random.IntN(8))
				s, batch, recovery := replayed(t, disk, small)
				c.requirePrefix(t, s, batch)
				if batch < c.now.batch() {
					require.True(t, recovery.Damaged || recovery.LostBytes > 0, "flip in %s at %d: %+v", name, offset, recovery)
					require.NotEmpty(t, recovery.Reason)
				}
			}
		}
	})
}

// TestTruncatedFiles cuts every file at many places.
func TestTruncatedFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(4, 0))
		original, c := filledDisk(t, small, random)
		for _, name := range original.FileNames() {
			for range seeds(200) {
				disk := original.Clone()
				disk.TruncateFile(name, random.IntN(disk.FileSize(name)))
				s, batch, _ := replayed(t, disk, small)
				c.requirePrefix(t, s, batch)
			}
		}
	})
}

// TestDamagedSnapshot replays the previous snapshot and every log since then: nothing is lost. The next start has a whole snapshot again.
func TestDamagedSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, c := filledDisk(t, small, rand.New(rand.NewPCG(5, 0)))
		newest := newestFile(disk, "snapshot-")
		disk.FlipBits(newest, disk.FileSize(newest)/2, 0x10)
		s, _, recovery := replayed(t, disk.Clone(), small)
		c.requireLatest(t, s)
		require.Equal(t, journal.BasePrevious, recovery.Base)
		require.True(t, recovery.Damaged)
		require.Contains(t, recovery.Reason, newest)

		again := startCache(t, disk, small)
		for again.journal.Status().Compactions == 0 {
			require.NoError(t, again.append(randomBatch(rand.New(rand.NewPCG(5, 1)), 400)...))
			time.Sleep(10 * time.Millisecond)
		}
		again.close(t)
		_, _, recovery = replayed(t, disk, small)
		require.Equal(t, journal.BaseSnapshot, recovery.Base)
	})
}

// TestDamagedHeaderOfALog has the log of a second start, which continues that of the first: without its header, its batches are lost.
func TestDamagedHeaderOfALog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, first := filledDisk(t, small, rand.New(rand.NewPCG(7, 0)))
		second := startCache(t, disk, small)
		require.NoError(t, second.append(randomBatch(rand.New(rand.NewPCG(7, 1)), 100)...))
		second.close(t)
		newest := newestFile(disk, "log-")
		for bit := range journal.HeaderSize * 8 {
			damaged := disk.Clone()
			damaged.FlipBits(newest, bit/8, 1<<(bit%8))
			s, _, recovery := replayed(t, damaged, small)
			first.requireLatest(t, s)
			require.True(t, recovery.Damaged, "bit %d: %+v", bit, recovery)
			require.Positive(t, recovery.LostBytes)
			require.Contains(t, recovery.Reason, newest)
		}
	})
}

func newestFile(disk *faultDisk, prefix string) string {
	newest := ""
	for _, name := range disk.FileNames() {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix {
			newest = name
		}
	}
	return newest
}

// TestNothingUsable starts empty, says so, and becomes whole with the first snapshot.
func TestNothingUsable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, _ := filledDisk(t, small, rand.New(rand.NewPCG(6, 0)))
		for _, name := range disk.FileNames() {
			disk.FlipBits(name, 20, 0xff) // in the header
		}
		c := startCache(t, disk, small)
		require.Empty(t, c.now)
		require.Equal(t, journal.BaseEmpty, c.journal.Recovery().Base)
		require.True(t, c.journal.Recovery().Damaged)
		_ = c.append(randomBatch(rand.New(rand.NewPCG(6, 1)), 100)...) // it may come before the snapshot
		time.Sleep(5 * time.Second)
		require.False(t, c.journal.Status().Degraded)
		s, _, recovery := replayed(t, disk.Clone(), small)
		c.requireLatest(t, s)
		require.False(t, recovery.Damaged)
		c.close(t)
	})
}

// TestLargeBatchIsAtomic cuts a batch of several frames.
func TestLargeBatchIsAtomic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := newFaultDisk()
		c := startCache(t, disk, journal.Options{})
		require.NoError(t, c.append())
		before := disk.FileSize("log-0000000000000001")
		var relist []journal.Record
		for i := range 50 {
			relist = append(relist, journal.Record{Type: objectType, Key: fmt.Sprint(i), Value: make([]byte, 100<<10)})
		}
		require.NoError(t, c.append(relist...))
		after := disk.FileSize("log-0000000000000001")
		require.Greater(t, after-before, 5_000_000)
		for cut := before; cut < after; cut += 250_000 {
			torn := disk.Clone()
			torn.TruncateFile("log-0000000000000001", cut)
			_, batch, _ := replayed(t, torn, journal.Options{})
			require.Equal(t, 1, batch, "cut at %d", cut)
		}
		s, _, _ := replayed(t, disk.Clone(), journal.Options{})
		c.requireLatest(t, s)
		c.close(t)
	})
}

// TestRestartsLeaveNoFiles restarts many times, each time with one batch.
func TestRestartsLeaveNoFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := newFaultDisk()
		random := rand.New(rand.NewPCG(7, 0))
		for range 100 {
			c := startCache(t, disk, small)
			require.NoError(t, c.append(randomBatch(random, 10)...))
			time.Sleep(time.Second)
			disk = disk.Clone()
			s, _, _ := replayed(t, disk.Clone(), small)
			c.requireLatest(t, s)
			c.close(t)
			require.LessOrEqual(t, len(disk.FileNames()), 22, "two snapshots and at most nine logs on each: %v", disk.FileNames())
		}
	})
}

// TestDiskUse appends a hundred times the state. The directory stays within its bound all the time.
func TestDiskUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := newFaultDisk()
		disk.SetSync(func() { time.Sleep(5 * time.Millisecond) })
		o := journal.Options{CompactBytes: 64 << 10}
		c := startCache(t, disk, o)
		random := rand.New(rand.NewPCG(8, 0))
		largest, stateSize := int64(0), int64(0)
		for range 4000 {
			require.NoError(t, c.append(randomBatch(random, 8<<10)...))
			largest, stateSize = max(largest, disk.UsedBytes()), max(stateSize, c.now.size())
			time.Sleep(10 * time.Millisecond)
		}
		bound := 5*max(stateSize, o.CompactBytes) + 100<<10 // and what comes during three compactions of some 20 ms: 1 MB a second
		require.Less(t, largest, bound, "of a state of %d bytes", stateSize)
		require.Greater(t, c.journal.Status().Compactions, uint64(20))
		c.close(t)
	})
}
