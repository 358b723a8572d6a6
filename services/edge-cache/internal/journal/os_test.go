package journal_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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
	directory, err := journal.OS(dir)
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

// TestKilledProcess kills a process a hundred times while it writes to a real directory. Every batch whose Append returned is there, and each process continues from
// the state of the last one. JOURNAL_KILLS=1000 is the long form.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	kills := seeds(100)
	if n, err := strconv.Atoi(os.Getenv("JOURNAL_KILLS")); err == nil {
		kills = n
	}
	dir := filepath.Join(t.TempDir(), "journal")
	random := rand.New(rand.NewPCG(20, 0))
	seen := 0
	for range kills {
		seen = max(seen, killOnce(t, dir, time.Duration(random.IntN(30_000))*time.Microsecond))
		directory, err := journal.OS(dir)
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

func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "journal")
	directory, err := journal.OS(dir)
	require.NoError(t, err)
	c := startCache(t, directory, small)
	for range 200 {
		require.NoError(t, c.append(randomBatch(rand.New(rand.NewPCG(21, 0)), 400)...))
	}

	other, err := journal.OS(dir)
	require.NoError(t, err)
	_, err = journal.Open(other, small)
	require.ErrorIs(t, err, journal.ErrLocked)

	requireMode(t, dir, 0o700)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, entry := range entries {
		requireMode(t, filepath.Join(dir, entry.Name()), 0o600)
	}
	c.close(t)

	// As kubelet does with fsGroup.
	require.NoError(t, os.Chmod(dir, 0o770))
	for _, entry := range entries {
		_ = os.Chmod(filepath.Join(dir, entry.Name()), 0o660) // a compaction may have removed it
	}
	again, err := journal.OS(dir)
	require.NoError(t, err)
	s, _, _ := replayed(t, again, small)
	c.requireLatest(t, s)
	requireMode(t, dir, 0o700)
	for _, entry := range entries {
		if _, err := os.Stat(filepath.Join(dir, entry.Name())); err == nil {
			requireMode(t, filepath.Join(dir, entry.Name()), 0o600)
		}
	}
}

func requireMode(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, mode.String(), info.Mode().Perm().String(), path)
}

// TestHostileDirectory has a link and a FIFO where files should be.
func TestHostileDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	require.NoError(t, os.Mkdir(dir, 0o700))
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("not to be read, not to be written"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "snapshot-0000000000000005")))
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "log-0000000000000006")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "log-0000000000000005"), 0o600))
	directory, err := journal.OS(dir)
	require.NoError(t, err)
	c := startCache(t, directory, small)
	require.Eventually(t, func() bool { return !c.journal.Status().Degraded }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, c.append(randomBatch(rand.New(rand.NewPCG(22, 0)), 400)...))
	c.close(t)
	content, err := os.ReadFile(secret)
	require.NoError(t, err)
	require.Equal(t, "not to be read, not to be written", string(content))
}

func TestUnusableDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := journal.OS(filepath.Join(file, "journal"))
	require.ErrorContains(t, err, "open journal directory")
}

func writeKeys(t *testing.T, keys ...string) journal.Keys {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(keys, "\n")+"\n"), 0o600))
	k, err := journal.ReadKeys(path)
	require.NoError(t, err)
	return k
}
