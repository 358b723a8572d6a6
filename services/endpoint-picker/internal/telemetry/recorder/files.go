package recorder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// fileCount is the number of files of a recording: the current one, and older ones with the suffixes .1 to .3. At each change of the file a
// quarter of the recording is lost.
const fileCount = 4

var errNotRegular = errors.New("it is not a regular file")

// output is an open file.
type output interface {
	io.Writer
	io.Closer

	Truncate(size int64) error
}

// files are the files of a recording. They never have more than maxBytes in all, and each has whole lines.
type files struct {
	path     string
	maxBytes int64
	open     func(path string) (output, error)

	current output // nil: not open
	size    int64  // of it
}

// openFile makes a file that only its owner can read.
func openFile(path string) (output, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// appendLines appends lines, which must be shorter than a file may be. After an error none of them is there.
func (f *files) appendLines(lines []byte) error {
	if f.current != nil && f.size+int64(len(lines)) > f.maxBytes/fileCount {
		f.closeFile()
	}
	if f.current == nil {
		if err := f.openNext(); err != nil {
			return err
		}
	}
	n, err := f.current.Write(lines)
	if err != nil {
		if n > 0 {
			_ = f.current.Truncate(f.size) // if that fails too, a reader meets a cut line and names it
		}
		f.closeFile()
		return err
	}
	f.size += int64(n)
	return nil
}

func (f *files) closeFile() {
	if f.current != nil {
		_ = f.current.Close() // the lines are with the kernel, and nobody waits for them
		f.current = nil
	}
}

// openNext makes room and opens a new file.
func (f *files) openNext() error {
	if err := f.rotateFiles(); err != nil {
		return err
	}
	opened, err := f.open(f.path)
	if err != nil {
		return err
	}
	f.current, f.size = opened, 0
	return nil
}

// rotateFiles renames the files to the next older name. It deletes the oldest one, and those for which there is no room: they were written
// with a higher limit.
func (f *files) rotateFiles() error {
	info, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return f.pruneFiles()
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("open %s: %w", f.path, errNotRegular)
	case info.Size() == 0:
		return os.Remove(f.path)
	}
	for i := fileCount - 1; i > 0; i-- {
		if err := os.Rename(f.olderPath(i-1), f.olderPath(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return f.pruneFiles()
}

// pruneFiles deletes the oldest files until a new one fits in beside the others.
func (f *files) pruneFiles() error {
	room := f.maxBytes - f.maxBytes/fileCount
	for i := 1; i < fileCount; i++ {
		info, err := os.Lstat(f.olderPath(i))
		if err != nil {
			continue // there is none, or removing it says why not
		}
		if room -= info.Size(); room >= 0 {
			continue
		}
		if err := os.Remove(f.olderPath(i)); err != nil {
			return err
		}
	}
	return nil
}

// olderPath returns the path of the i-th older file, and of the current one for 0.
func (f *files) olderPath(i int) string {
	if i == 0 {
		return f.path
	}
	return f.path + "." + strconv.Itoa(i)
}
