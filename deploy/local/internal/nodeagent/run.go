package nodeagent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RuntimeSocket is where the container runtime of a node answers, as containerd does.
const RuntimeSocket = "/run/containerd/containerd.sock"

// mountRun gives the machine a /run of its own, in memory, in which everything of the host's is visible except for its container runtime:
// what a node puts there is gone after a reboot, and no other node sees it.
func (m *Machine) mountRun() error {
	staging := filepath.Join(m.Dir(), "run")
	if err := os.MkdirAll(staging, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", staging, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	entries, err := os.ReadDir("/run")
	if err != nil {
		return err
	}
	hidden := filepath.Base(filepath.Dir(RuntimeSocket))
	for _, e := range entries {
		if e.Name() == hidden {
			continue
		}
		// Whatever ends meanwhile, or belongs to another user, is left out.
		if err := carry(e, staging); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return unix.Mount(staging, "/run", "", unix.MS_MOVE, "")
}

// carry makes an entry of /run visible in another folder.
func carry(e fs.DirEntry, folder string) error {
	from, to := filepath.Join("/run", e.Name()), filepath.Join(folder, e.Name())
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case e.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	default:
		if err := os.WriteFile(to, nil, 0o644); err != nil {
			return err
		}
	}
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}
