package recorder

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newFiles(path string, maxBytes int64) *files {
	return &files{path: path, maxBytes: maxBytes, open: openFile}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// names returns the files of a folder, sorted.
func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

func TestRotation(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	f := newFiles(filepath.Join(folder, "r"), 4*20)
	for _, line := range []string{"a\n", strings.Repeat("b", 17) + "\n", "c\n", strings.Repeat("d", 19) + "\n", "e\n", strings.Repeat("f", 19) + "\n"} {
		require.NoError(t, f.appendLines([]byte(line)))
	}
	f.closeFile()
	assert.Equal(t, []string{"r", "r.1", "r.2", "r.3"}, names(t, folder), "the file with a and b was deleted")
	assert.Equal(t, strings.Repeat("f", 19)+"\n", readFile(t, f.path))
	assert.Equal(t, "e\n", readFile(t, f.olderPath(1)))
	assert.Equal(t, "c\n", readFile(t, f.olderPath(3)))
	info, err := os.Stat(f.path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestFilesNeverExceedTheirLimit(t *testing.T) {
	t.Parallel()
	const most = 4000
	folder := t.TempDir()
	for range 3 { // starts of the program
		f := newFiles(filepath.Join(folder, "r"), most)
		for n := range 100 {
			require.NoError(t, f.appendLines(bytes.Repeat([]byte("x"), 1+n*37%999)))
			total := 0
			for _, name := range names(t, folder) {
				total += len(readFile(t, filepath.Join(folder, name)))
			}
			require.LessOrEqual(t, total, most)
		}
		f.closeFile()
	}
}

func TestLowerLimitDeletesOldFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	f := newFiles(filepath.Join(folder, "r"), 100)
	for _, path := range []string{f.path, f.olderPath(1), f.olderPath(2)} {
		require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("x"), 60), 0o600))
	}
	require.NoError(t, f.appendLines([]byte("new\n")))
	f.closeFile()
	assert.Equal(t, []string{"r", "r.1"}, names(t, folder), "one file of 60 bytes fits in beside a new one of 25")
	assert.Equal(t, "new\n", readFile(t, f.path))
}

func TestEmptyFilesAreNotKept(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for range 3 {
		f := newFiles(filepath.Join(folder, "r"), 100)
		require.NoError(t, f.openNext())
		f.closeFile()
	}
	assert.Equal(t, []string{"r"}, names(t, folder))
}

func TestFilesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "file"), []byte("x"), 0o600))
	require.NoError(t, os.Symlink("/dev/full", filepath.Join(folder, "link")))
	for path, want := range map[string]string{
		"absent/r": "no such file or directory",
		"file/r":   "not a directory",
		".":        "not a regular file",
		"link":     "not a regular file",
	} {
		require.ErrorContains(t, newFiles(filepath.Join(folder, path), 100).appendLines([]byte("x\n")), want, path)
	}
	assert.Equal(t, []string{"file", "link"}, names(t, folder))
}

// full is a file on a disk with room for a number of bytes.
type full struct {
	output

	room *int
}

func (f full) Write(b []byte) (int, error) {
	n := min(len(b), *f.room)
	*f.room -= n
	if n, err := f.output.Write(b[:n]); err != nil {
		return n, err
	}
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// onFullDisk lets files have a number of bytes.
func (f *files) onFullDisk(room *int) {
	f.open = func(path string) (output, error) {
		opened, err := openFile(path)
		return full{output: opened, room: room}, err
	}
}

func TestFullDiskLeavesWholeLines(t *testing.T) {
	t.Parallel()
	folder, room := t.TempDir(), 10
	f := newFiles(filepath.Join(folder, "r"), 1000)
	f.onFullDisk(&room)
	require.NoError(t, f.appendLines([]byte("first\n")))
	for range 5 {
		require.ErrorIs(t, f.appendLines([]byte("second\n")), syscall.ENOSPC)
	}
	assert.Equal(t, []string{"r", "r.1"}, names(t, folder), "the attempts leave one empty file")
	assert.Empty(t, readFile(t, f.path))
	assert.Equal(t, "first\n", readFile(t, f.olderPath(1)))
	room = 100
	require.NoError(t, f.appendLines([]byte("third\n")))
	f.closeFile()
	assert.Equal(t, "third\n", readFile(t, f.path))
}
