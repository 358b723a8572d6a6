package launch

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
)

// claimed claims a folder until the test ends. One that was given up is held a moment longer by a process that another
// test is just forking.
func claimed(t *testing.T, dir string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		unlock, err := claim(dir)
		require.NoError(collect, err)
		t.Cleanup(unlock)
	}, kubetest.Patience, tick)
}

// write makes a file and the folders above it.
func write(t *testing.T, file string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte("content"), 0o644))
	return file
}

// names are what a folder holds.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestClaim_MakesTheFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "down")
	claimed(t, dir)
	assert.Equal(t, []string{lockName}, names(t, dir))
}

func TestClaim_RefusesAFolderInUseAndLeavesItAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unlock, err := claim(dir)
	require.NoError(t, err)
	state := write(t, filepath.Join(dir, "etcd", "data"))

	for range 2 { // a refusal changes nothing
		_, err = claim(dir)
		require.EqualError(t, err, "a cluster is running in "+dir+" already; stop it, or name another folder")
		assert.FileExists(t, state)
	}
	unlock()
	claimed(t, dir)
	assert.NoFileExists(t, state)
}

func TestClaim_RefusesAFolderThatHoldsNoClusterAndLeavesItAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "letters", "one"))
	_, err := claim(dir)
	require.EqualError(t, err, dir+" is not empty and contains no cluster; name another folder for the state")
	assert.Equal(t, []string{"letters"}, names(t, dir))
	assert.Equal(t, []string{"one"}, names(t, filepath.Join(dir, "letters")))
}

func TestClaim_RefusesAFile(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "file"))
	_, err := claim(file)
	require.ErrorContains(t, err, file+": not a directory")
	assert.FileExists(t, file)
}

func TestClaim_RemovesWhatAKilledClusterLeft(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	kept := write(t, filepath.Join(elsewhere, "kept"))

	// Another process claims the folder, fills it and is killed.
	cmd := exec.Command("/proc/self/exe", claimCommand, dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it was, unless the test failed before
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "claimed: <nil>\n", line)
	write(t, filepath.Join(dir, "nodes", "node-1", "pods", "a"))
	write(t, filepath.Join(dir, "localkube.sock"))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "link")))
	_, err = claim(dir)
	require.ErrorContains(t, err, "running in "+dir+" already")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	claimed(t, dir)
	assert.Equal(t, []string{lockName}, names(t, dir))
	assert.FileExists(t, kept, "a link was followed")
}
