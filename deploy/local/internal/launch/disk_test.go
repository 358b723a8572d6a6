package launch

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"fairlead.dev/deploy/local/internal/nstest"
)

// disk is an empty one of a given size.
func disk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, unix.Mount("disk", dir, "tmpfs", 0, "size="+size))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, 0)) })
	return dir
}

func TestClaim_RefusesAFolderWithoutRoom(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		unlock, err := claim(disk(t, "256m"))
		require.NoError(t, err)
		unlock()
		_, err = claim(disk(t, "200m"))
		require.ErrorContains(t, err, "200 MB are free in ")
	})
}

func TestAwait_EndsAClusterWhoseDiskIsFull(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		dir := disk(t, "80m")
		cmd := exec.Command("sleep", "600")
		require.NoError(t, cmd.Start())
		require.NoError(t, os.WriteFile(dir+"/log", make([]byte, 20<<20), 0o600))
		require.ErrorContains(t, await(t.Context(), cmd, dir), "the disk is full: 60 MB are free in "+dir)
		require.NotNil(t, cmd.ProcessState, "it was waited for")
		assert.Equal(t, -1, cmd.ProcessState.ExitCode(), "and killed")
	})
}

func TestAwait_TellsWhetherTheEndWasMeant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		require.NoError(t, cmd.Start())
		return cmd
	}
	require.ErrorIs(t, await(t.Context(), start("false"), dir), ErrFailed)
	require.EqualError(t, await(t.Context(), start("true"), dir), "the cluster ended unexpectedly")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, await(ctx, start("sleep", "600"), dir))
}
