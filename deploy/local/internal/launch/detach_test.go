package launch

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestDetach_ClusterRunsOnUntilItIsStopped(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cluster")
	var out, progress bytes.Buffer
	require.NoError(t, Detach(dir, []string{upCommand, dir, serves}, &out, &progress))
	var r report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r), "the Ready line")
	raw, err := os.ReadFile(filepath.Join(dir, lockName))
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(raw))
	require.NoError(t, err)
	require.NoError(t, unix.Kill(pid, 0), "it runs on")
	require.ErrorContains(t, Detach(dir, []string{upCommand, dir, serves}, io.Discard, io.Discard), "a cluster is running in "+dir)

	require.NoError(t, Stop(t.Context(), dir))
	assert.NoDirExists(t, dir)
	_, err = unix.Wait4(pid, nil, 0, nil)
	require.NoError(t, err)
	require.ErrorIs(t, Stop(t.Context(), dir), ErrNotRunning)
}

func TestDetach_TellsWhyTheClusterDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var progress bytes.Buffer
	require.ErrorIs(t, Detach(dir, []string{upCommand, dir, exits1}, io.Discard, &progress), ErrFailed)
	assert.Contains(t, progress.String(), "no room")
	require.ErrorIs(t, Stop(t.Context(), dir), ErrNotRunning)
	assert.NoDirExists(t, dir, "what was left is removed")
}
