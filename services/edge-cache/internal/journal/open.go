package journal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/wake"
)

// Names of the state that a journal starts from.
const (
	BaseSnapshot = "snapshot" // the newest snapshot, or the first log of a new directory
	BasePrevious = "previous" // an earlier snapshot, because the newest one is damaged
	BaseEmpty    = "empty"    // nothing
)

// Recovery is what Open found.
type Recovery struct {
	Base string
	// Damaged means that batches which were accepted may be missing: for another reason than a log that ends in the middle of a write.
	Damaged bool
	// LostBytes counts bytes after the last good batch.
	LostBytes int64
	// Reason says what is damaged or lost; empty if nothing is.
	Reason string
}

// chain is what Replay reads.
type chain struct {
	snapshot    uint64 // 0: none
	snapshotEnd int64
	logs        []segment
	// lastGen and lastEnd are what the next log continues.
	lastGen, lastEnd uint64
	// broken means that no log can continue this: the next one needs a snapshot of its own generation.
	broken bool
}

type segment struct {
	gen uint64
	end int64
}

// Open locks a directory, verifies its files and decides what Replay delivers. It fails only if the directory belongs to another process
// (ErrLocked), is encrypted with a key that was not given (ErrKey), or cannot be read at all.
func Open(fs FS, o Options) (*Journal, error) {
	o.CompactBytes, o.Log = cmp.Or(o.CompactBytes, 8<<20), cmp.Or(o.Log, zap.NewNop())
	unlock, err := lockDirectory(fs, o)
	if err != nil {
		return nil, err
	}
	j := &Journal{
		fs: fs, options: o, log: o.Log, unlock: unlock,
		wakeSync: wake.NewSignal(), syncAtOnce: wake.NewSignal(), wakeCompact: wake.NewSignal(), stop: make(chan struct{}),
	}
	j.synced = sync.NewCond(&j.mu)
	if err := j.findState(); err != nil {
		return nil, errors.Join(err, unlock())
	}
	r := j.recovery
	if r.Damaged || r.LostBytes > 0 {
		j.log.Warn("Recovered the journal without a part of it", zap.String("base", r.Base), zap.Bool("damaged", r.Damaged),
			zap.Int64("lostBytes", r.LostBytes), zap.String("reason", r.Reason))
	}
	return j, nil
}

// lockPoll is the time between attempts to lock the directory: an old pod that ends unlocks it within seconds. Open polls, because a flock
// that blocks cannot be interrupted at the end of LockWait.
const lockPoll = 100 * time.Millisecond

func lockDirectory(fs FS, o Options) (func() error, error) {
	begin := time.Now()
	for waits := 0; ; waits++ {
		unlock, err := fs.Lock()
		if err == nil || !errors.Is(err, ErrLocked) || time.Since(begin) >= o.LockWait {
			return unlock, err
		}
		if waits == 0 {
			o.Log.Info("Waiting for the lock of the data directory", zap.Duration("limit", o.LockWait))
		}
		time.Sleep(lockPoll)
	}
}

// Recovery returns what Open found.
func (j *Journal) Recovery() Recovery { return j.recovery }

// Replay calls apply for the records that Open found, in order. A record is valid during the call only.
func (j *Journal) Replay(apply func(Record) error) error {
	j.mu.Lock()
	refused := j.started || j.closed
	j.mu.Unlock()
	if refused {
		return ErrClosed
	}
	if j.chain.snapshot != 0 {
		if err := j.deliverRecords(snapshotName(j.chain.snapshot), j.chain.snapshotEnd, apply); err != nil {
			return fmt.Errorf("replay journal: %w", err)
		}
	}
	for _, s := range j.chain.logs {
		if err := j.deliverRecords(logName(s.gen), s.end, apply); err != nil {
			return fmt.Errorf("replay journal: %w", err)
		}
	}
	return nil
}

// candidates are the files of a directory while Open chooses among them.
type candidates struct {
	j         *Journal
	snapshots []uint64 // newest first
	logs      map[uint64]scanResult
	lost      map[uint64]int64 // sizes of logs that cannot be replayed
	gens      []uint64         // of logs that have a valid header, oldest first
	problems  []string
	keyErr    error
}

func (j *Journal) findState() error {
	c, err := j.findCandidates()
	if err != nil {
		return err
	}
	chosen, base, snapshot := c.chooseChain()
	if c.keyErr != nil {
		return c.keyErr // before anything of it is replaced
	}
	j.chain = chosen
	j.recovery.Base = base
	j.base.gen, j.base.size = max(chosen.snapshot, 1), chosen.snapshotEnd
	outdated := chosen.snapshot != 0 && j.isOutdated(snapshot.header)
	for _, s := range chosen.logs {
		j.base.logs++
		j.base.log += c.logs[s.gen].size
		outdated = outdated || j.isOutdated(c.logs[s.gen].header)
	}
	if outdated {
		j.erase.requested++
	}
	c.reportRecovery(chosen, base)
	return nil
}

// isOutdated means that a file has not the encryption that is configured now.
func (j *Journal) isOutdated(h header) bool {
	if len(j.options.Keys) == 0 {
		return h.Sealed
	}
	return !h.Sealed || h.KeyID != j.options.Keys.currentID()
}

// maxGeneration leaves room to count on. A larger number in a name is not from a journal.
const maxGeneration = 1 << 60

func (j *Journal) findCandidates() (*candidates, error) {
	names, err := j.fs.List()
	if err != nil {
		return nil, fmt.Errorf("list journal directory: %w", err)
	}
	c := &candidates{j: j, logs: map[uint64]scanResult{}, lost: map[uint64]int64{}}
	j.nextGen = 1
	for _, name := range names {
		snapshot, log := parseName(strings.TrimSuffix(name, tmpSuffix), snapshotPrefix), parseName(name, logPrefix)
		if snapshot > maxGeneration || log > maxGeneration {
			continue
		}
		j.nextGen = max(j.nextGen, snapshot+1, log+1)
		switch {
		case snapshot != 0 && !strings.HasSuffix(name, tmpSuffix):
			c.snapshots = append(c.snapshots, snapshot)
		case log != 0:
			c.addLog(log)
		}
	}
	slices.Sort(c.snapshots)
	slices.Reverse(c.snapshots)
	c.gens = slices.Sorted(maps.Keys(c.logs))
	return c, nil
}

func (c *candidates) addLog(gen uint64) {
	s, err := c.verifyFile(logName(gen), kindLog, gen)
	if err != nil {
		c.problems = append(c.problems, err.Error())
		c.lost[gen] = s.size
		return
	}
	c.logs[gen] = s
}

// verifyFile verifies that a file is what its name says: a copy under another name does not count.
func (c *candidates) verifyFile(name string, kind uint8, gen uint64) (scanResult, error) {
	s, err := c.j.scanFile(name)
	if errors.Is(err, ErrKey) {
		c.keyErr = fmt.Errorf("open %s: %w", name, err)
	}
	if err == nil && (s.header.Kind != kind || s.header.Gen != gen) {
		err = errBadHeader
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// chooseChain returns the newest state of one moment:
//
//  1. the newest snapshot that is whole and whose log reaches as far as the snapshot does
//  2. the first log, if the directory still has it
//  3. the newest snapshot that is whole: its values are good, but not of one moment
//  4. nothing
func (c *candidates) chooseChain() (chain, string, scanResult) {
	var lastResort *chain
	var lastScan scanResult
	base := BaseSnapshot
	for _, gen := range c.snapshots {
		s, err := c.verifyFile(snapshotName(gen), kindSnapshot, gen)
		if err == nil && !s.complete {
			if err = s.damage; err == nil {
				err = fmt.Errorf("%s ends after %d bytes, without its footer", snapshotName(gen), s.size)
			}
		}
		if err != nil {
			c.problems = append(c.problems, err.Error())
			base = BasePrevious
			continue
		}
		result := chain{snapshot: gen, snapshotEnd: s.good}
		if c.followLogs(&result, gen) && uint64(c.logs[gen].good) >= s.footer.LogEnd {
			return result, base, s
		}
		c.problems = append(c.problems, fmt.Sprintf("%s does not reach as far as its snapshot", logName(gen)))
		if lastResort == nil {
			lastResort, lastScan = &chain{snapshot: gen, snapshotEnd: s.good, broken: true}, s
		}
		base = BasePrevious
	}
	result := chain{}
	if c.followLogs(&result, 1) {
		return result, base, scanResult{}
	}
	if lastResort != nil {
		return *lastResort, BaseSnapshot, lastScan
	}
	return chain{broken: c.j.nextGen > 1}, BaseEmpty, scanResult{}
}

// followLogs adds the logs from a generation on. It returns false if the first one is missing.
func (c *candidates) followLogs(result *chain, gen uint64) bool {
	current, ok := c.logs[gen]
	if !ok {
		return false
	}
	for {
		next, found := c.findSuccessor(current)
		if !found {
			break
		}
		result.logs = append(result.logs, segment{gen: current.header.Gen, end: int64(next.header.PrevEnd)})
		current = next
	}
	result.logs = append(result.logs, segment{gen: current.header.Gen, end: current.good})
	result.lastGen, result.lastEnd = current.header.Gen, uint64(current.good)
	return true
}

// findSuccessor finds the log that continues another one. There can be two, if one was unreadable for a while: the later one continues what
// was replayed then.
func (c *candidates) findSuccessor(of scanResult) (scanResult, bool) {
	for _, gen := range slices.Backward(c.gens) {
		s := c.logs[gen]
		if gen > of.header.Gen && s.header.PrevGen == of.header.Gen && s.header.PrevEnd <= uint64(of.good) &&
			s.header.PrevEnd >= headerSize {
			return s, true
		}
	}
	return scanResult{}, false
}

// reportRecovery fills Recovery: what is lost is what no chosen log holds.
func (c *candidates) reportRecovery(chosen chain, base string) {
	r := &c.j.recovery
	r.Damaged = base == BasePrevious || chosen.broken
	if last, ok := c.logs[chosen.lastGen]; ok {
		r.LostBytes = last.size - last.good
		if last.damage != nil {
			c.problems = append(c.problems, last.damage.Error())
		} else if r.LostBytes > 0 {
			c.problems = append(c.problems, fmt.Sprintf("%s ends in the middle of a batch", logName(chosen.lastGen)))
		}
	}
	c.reportLostLogs(chosen)
	if r.Damaged || r.LostBytes > 0 {
		r.Reason = strings.Join(c.problems, "; ")
	}
}

// reportLostLogs adds the sizes of all logs that are newer than the last chosen one to LostBytes. It skips logs without batches:
// the process can have stopped while it created such a log, so nothing is lost.
func (c *candidates) reportLostLogs(chosen chain) {
	for _, gen := range c.gens {
		if size := c.logs[gen].size; gen > chosen.lastGen && size > headerSize {
			c.lost[gen] = size
			c.problems = append(c.problems, fmt.Sprintf("%s does not continue %s", logName(gen), logName(chosen.lastGen)))
		}
	}
	for gen, size := range c.lost {
		if gen > chosen.lastGen && size > headerSize {
			c.j.recovery.Damaged = true
			c.j.recovery.LostBytes += size - headerSize
		}
	}
}
