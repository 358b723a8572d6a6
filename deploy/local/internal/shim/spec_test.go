package shim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSpec_IsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	want := &Spec{
		Root: "/r", Image: "/l", Files: map[string]string{"etc/passwd": "root:x:0:0:\n"},
		Mounts: []Mount{{Source: "/a", Target: "/b"}, {Source: "/c", Target: "/d", ReadOnly: true}},
		Args:   []string{"/app", "", "<&>\u2028 \"quoted\"\n"}, Env: []string{"A=b=c", "B="}, Cwd: "/w", Hostname: "web-0",
		UID: 1, GID: 2, Groups: []int{3, 4}, SetUser: true, ReadOnlyRoot: true, Capabilities: 5, NoNewPrivs: true,
		Masked: []string{"/m"}, ReadOnly: []string{"/n"}, Cgroups: map[string]string{"/sys/fs/cgroup": "/c"},
	}
	file := filepath.Join(t.TempDir(), "spec.json")
	require.NoError(t, want.Write(file))
	got, err := Read(file)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestSpec_IsForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "spec.json")
	require.NoError(t, (&Spec{}).Write(file))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode(), "it holds the container's environment")
}

func TestRead_NamesTheFileThatItCannotRead(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "spec.json")
	require.NoError(t, os.WriteFile(broken, []byte(`{"Args":`), 0o600))
	_, err := Read(broken)
	require.ErrorContains(t, err, "decode spec "+broken+": ")
	_, err = Read(broken + ".missing")
	require.ErrorIs(t, err, os.ErrNotExist)
}
