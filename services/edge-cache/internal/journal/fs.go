package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// FS is the directory of a journal. Type faultDisk implements it for tests.
type FS interface {
	// Open opens a file for reading.
	Open(name string) (File, error)
	// Create creates a file, for writing at its end. The file must not exist.
	Create(name string) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	// List returns the names of all files.
	List() ([]string, error)
	// SyncDir makes creations, renames and removals durable.
	SyncDir() error
	// Lock makes the caller the only owner of the directory until it calls unlock or ends. It returns ErrLocked if there is another owner.
	Lock() (unlock func() error, err error)
}

// File is an open file.
type File interface {
	io.Reader
	io.Writer
	io.Closer
	// Sync makes the content durable.
	Sync() error
	// Size returns the present length.
	Size() (int64, error)
}

// osFS is a directory of the operating system. Names are resolved inside it: a symbolic link cannot lead out.
type osFS struct {
	root *os.Root
	dir  *os.File // for fsync and for the lock
}

// OpenDir opens a directory, and makes it if it does not exist. Only its owner can read it: mode 0700. Files have mode 0600.
// The directory should be a folder of its own inside a volume: kubelet may widen the mode of the volume itself (fsGroup).
func OpenDir(dir string) (FS, error) {
	// A read-only disk has to start too, so an error of Mkdir or Chmod counts only if the directory is not usable as it is.
	mkdirErr := os.MkdirAll(dir, 0o700)
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal directory: %w", errors.Join(mkdirErr, err))
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil && !errors.Is(err, syscall.EROFS) {
			return nil, fmt.Errorf("journal directory %s is open to other users (mode %04o); give the journal a directory of its own: %w",
				dir, info.Mode().Perm(), err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal directory: %w", err)
	}
	handle, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open journal directory: %w", err), root.Close())
	}
	return &osFS{root: root, dir: handle}, nil
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Open refuses what is not a plain file: a FIFO in its place would block the start for ever.
func (d *osFS) Open(name string) (File, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil && !errors.Is(err, syscall.EROFS) {
			return nil, errors.Join(fmt.Errorf("narrow mode of %s: %w", name, err), f.Close())
		}
	}
	return osFile{f}, nil
}

func (d *osFS) Create(name string) (File, error) {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (d *osFS) Rename(from, to string) error { return d.root.Rename(from, to) }

func (d *osFS) Remove(name string) error { return d.root.Remove(name) }

func (d *osFS) List() ([]string, error) {
	dir, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	return names, errors.Join(err, dir.Close())
}

func (d *osFS) SyncDir() error { return d.dir.Sync() }

// Lock locks the directory itself: that works on a read-only disk, leaves no file behind, and ends with the process.
func (d *osFS) Lock() (func() error, error) {
	err := syscall.Flock(int(d.dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, fmt.Errorf("lock journal directory: %w", err)
	}
	return func() error { return errors.Join(d.dir.Close(), d.root.Close()) }, nil
}
