package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// devices every container has.
var devices = []string{"null", "zero", "full", "random", "urandom"}

// buildRoot makes the container's file system on s.Root and pivots into it.
func buildRoot(s *Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	if err := unix.Mount("tmpfs", s.Root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount root tmpfs: %w", err)
	}
	steps := []func(*Spec) error{makeSkeleton, bindLayers, writeFiles, makeDevices, mountProc, hidePaths, bindCgroups, bindMounts, pivot}
	for _, step := range steps {
		if err := step(s); err != nil {
			return err
		}
	}
	if s.ReadOnlyRoot {
		if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make root read-only: %w", err)
		}
	}
	return nil
}

func makeSkeleton(s *Spec) error {
	for _, d := range []string{"proc", "dev", "etc", "run", "var/run", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(s.Root, d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"tmp", "var/tmp", "dev/shm"} { // world-writable, whatever the umask
		p := filepath.Join(s.Root, d)
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(p, 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	return nil
}

func bindLayers(s *Spec) error {
	for _, layer := range s.Layers {
		entries, err := os.ReadDir(layer)
		if err != nil {
			return fmt.Errorf("read image: %w", err)
		}
		for _, e := range entries {
			if err := bind(s.Root, Mount{Source: filepath.Join(layer, e.Name()), Target: "/" + e.Name(), ReadOnly: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeFiles(s *Spec) error {
	for name, content := range s.Files {
		p := filepath.Join(s.Root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func makeDevices(s *Spec) error {
	for _, d := range devices {
		if err := bind(s.Root, Mount{Source: "/dev/" + d, Target: "/dev/" + d}); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(s.Root, "dev", link)); err != nil {
			return err
		}
	}
	return nil
}

func mountProc(s *Spec) error {
	if err := unix.Mount("proc", filepath.Join(s.Root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// hidePaths keeps the program from the machine's settings in /proc. Not every kernel has all paths that runtimes hide.
func hidePaths(s *Spec) error {
	for _, p := range s.ReadOnly {
		if err := hide(s.Root, p, Mount{Source: filepath.Join(s.Root, p), Target: p, ReadOnly: true}); err != nil {
			return err
		}
	}
	for _, p := range s.Masked {
		if err := hide(s.Root, p, Mount{Source: "/dev/null", Target: p, ReadOnly: true}); err != nil {
			return err
		}
	}
	return nil
}

// hide mounts on a path if it is there. A folder that is to be masked gets an empty one.
func hide(root, path string, m Mount) error {
	info, err := os.Stat(filepath.Join(root, path))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir() && m.Source == "/dev/null":
		if err := unix.Mount("tmpfs", filepath.Join(root, path), "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mask %s: %w", path, err)
		}
		return nil
	default:
		return bindOn(filepath.Join(root, path), m)
	}
}

// bindCgroups shows the program its limits, where a program looks for them. What the image has in /sys is covered.
func bindCgroups(s *Spec) error {
	if len(s.Cgroups) == 0 {
		return nil
	}
	sys := filepath.Join(s.Root, "sys")
	if err := os.MkdirAll(sys, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", sys, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755"); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	for target, dir := range s.Cgroups {
		if err := bind(s.Root, Mount{Source: dir, Target: target, ReadOnly: true}); err != nil {
			return err
		}
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("", sys, "", flags, ""); err != nil {
		return fmt.Errorf("make /sys read-only: %w", err)
	}
	return nil
}

// bindMounts makes the pod's mounts, outer directories before what lies in them.
func bindMounts(s *Spec) error {
	mounts := slices.Clone(s.Mounts)
	slices.SortStableFunc(mounts, func(a, b Mount) int { return len(a.Target) - len(b.Target) })
	for _, m := range mounts {
		if err := bind(s.Root, m); err != nil {
			return err
		}
	}
	return nil
}

func pivot(s *Spec) error {
	old := filepath.Join(s.Root, ".old")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(s.Root, old); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/.old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount old root: %w", err)
	}
	return os.Remove("/.old")
}

// bind makes the mount point below root and mounts on it.
func bind(root string, m Mount) error {
	dst := filepath.Join(root, m.Target)
	if err := makeMountPoint(m.Source, dst); err != nil {
		return fmt.Errorf("make mount point %s: %w", m.Target, err)
	}
	return bindOn(dst, m)
}

// bindOn mounts on dst, which is there.
func bindOn(dst string, m Mount) error {
	if err := unix.Mount(m.Source, dst, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", m.Source, m.Target, err)
	}
	if !m.ReadOnly {
		return nil
	}
	flags, err := lockedFlags(dst)
	if err != nil {
		return err
	}
	if err := unix.Mount("", dst, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|flags, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", m.Target, err)
	}
	return nil
}

func makeMountPoint(src, dst string) error {
	st, err := os.Stat(src)
	if err != nil {
		return err
	}
	if st.IsDir() {
		return os.MkdirAll(dst, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(dst, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// lockedFlags are the mount flags that a remount must repeat, because a user namespace may not take them away.
func lockedFlags(path string) (uintptr, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	var flags uintptr
	for _, f := range []struct{ have, want uintptr }{
		{unix.ST_NOSUID, unix.MS_NOSUID}, {unix.ST_NODEV, unix.MS_NODEV}, {unix.ST_NOEXEC, unix.MS_NOEXEC},
		{unix.ST_NOATIME, unix.MS_NOATIME}, {unix.ST_NODIRATIME, unix.MS_NODIRATIME}, {unix.ST_RELATIME, unix.MS_RELATIME},
	} {
		if uintptr(fs.Flags)&f.have != 0 {
			flags |= f.want
		}
	}
	return flags, nil
}
