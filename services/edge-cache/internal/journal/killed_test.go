//go:build long

package journal_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fairlead.dev/services/edge-cache/internal/journal"
)

// killedDirectory names the directory of a child process that a test kills.
const killedDirectory = "JOURNAL_KILLED_DIRECTORY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedDirectory); dir != "" {
		if err := appendUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// appendUntilKilled writes batches, and prints the number of each after Append has returned: as a cache sends an event to its clients.
func appendUntilKilled(dir string) error {
	directory, err := journal.OpenDir(dir)
	if err != nil {
		return err
	}
	j, err := journal.Open(directory, journal.Options{CompactBytes: 16 << 10, LockWait: 5 * time.Second})
	if err != nil {
		return err
	}
	if r := j.Recovery(); r.Damaged {
		return errors.New(r.Reason)
	}
	c := &cache{journal: j, now: state{}}
	if err := j.Replay(c.now.apply); err != nil {
		return err
	}
	c.history, c.times = make([]state, c.now.batch()+1), nil
	if err := j.Start(c.source); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(os.Getpid()), 0))
	out := bufio.NewWriter(os.Stdout)
	for {
		if err := c.append(randomBatch(random, 400)...); err != nil {
			return err
		}
		c.history[len(c.history)-1] = nil // the child has no use for it
		fmt.Fprintln(out, c.now.batch())
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

// TestKilledProcess kills a process a thousand times while it writes to a real directory. Every batch whose Append returned is there, and
// each process continues from the state of the last one. TestKillLosesNothing and TestKilledCacheLosesNothing of the whole cache are its
// short forms.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	const kills = 1000
	dir := filepath.Join(t.TempDir(), "journal")
	random := rand.New(rand.NewPCG(20, 0))
	seen := 0
	for range kills {
		seen = max(seen, killOnce(t, dir, time.Duration(random.IntN(30_000))*time.Microsecond))
		directory, err := journal.OpenDir(dir)
		require.NoError(t, err)
		_, batch, recovery := replayed(t, directory, journal.Options{LockWait: 5 * time.Second})
		require.False(t, recovery.Damaged, "%+v", recovery)
		require.GreaterOrEqual(t, batch, seen, "a batch that the process reported is lost")
	}
	require.Greater(t, seen, kills)
}

// killOnce kills a child some time after its first batch, and returns the last batch that it reported.
func killOnce(t *testing.T, dir string, after time.Duration) int {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), killedDirectory+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "the child wrote nothing")
	timer := time.AfterFunc(after, func() { _ = child.Process.Kill() })
	defer timer.Stop()
	last := lines.Text()
	for lines.Scan() {
		last = lines.Text()
	}
	_ = child.Wait() // it was killed
	batch, err := strconv.Atoi(last)
	require.NoError(t, err)
	return batch
}
