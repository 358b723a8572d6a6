package journal_test

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/edge-cache/internal/journal"
)

func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "journal")
	directory, err := journal.OpenDir(dir)
	require.NoError(t, err)
	c := startCache(t, directory, small)
	for range 200 {
		require.NoError(t, c.append(randomBatch(rand.New(rand.NewPCG(21, 0)), 400)...))
	}

	other, err := journal.OpenDir(dir)
	require.NoError(t, err)
	_, err = journal.Open(other, small)
	require.ErrorIs(t, err, journal.ErrLocked)
	c.close(t) // a compaction renames and removes files

	requireMode(t, dir, 0o700)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, entry := range entries {
		requireMode(t, filepath.Join(dir, entry.Name()), 0o600)
	}

	// As kubelet does with fsGroup.
	require.NoError(t, os.Chmod(dir, 0o770))
	for _, entry := range entries {
		require.NoError(t, os.Chmod(filepath.Join(dir, entry.Name()), 0o660))
	}
	again, err := journal.OpenDir(dir)
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
	directory, err := journal.OpenDir(dir)
	require.NoError(t, err)
	c := startCache(t, directory, small)
	require.Eventually(t, func() bool { return !c.journal.Status().Degraded }, kubetest.Patience, 10*time.Millisecond)
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
	_, err := journal.OpenDir(filepath.Join(file, "journal"))
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
