package addressfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/addressfile"
)

func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "addresses.json")
	_, err := addressfile.Read(path)
	require.ErrorIs(t, err, fs.ErrNotExist)

	for _, address := range []string{"127.0.0.1:40000", "[::]:1"} { // the second replaces the first
		require.NoError(t, addressfile.Write(path, map[string]string{"health": address, "disabled": ""}))
		got, err := addressfile.Read(path)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"health": address}, got)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1, "no other file is left")
}

func TestWriteFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.ErrorIs(t, addressfile.Write(filepath.Join(dir, "missing", "addresses"), nil), fs.ErrNotExist)

	folder := filepath.Join(dir, "folder")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "full"), 0o700))
	require.ErrorContains(t, addressfile.Write(folder, nil), "write addresses: ")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1, "no other file is left")
}

func TestReadFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "addresses")
	require.NoError(t, os.WriteFile(path, []byte("none"), 0o600))
	_, err := addressfile.Read(path)
	require.ErrorContains(t, err, path)
}
