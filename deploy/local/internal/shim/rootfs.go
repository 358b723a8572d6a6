package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// devices exist in every container.
var devices = []string{"null", "zero", "full", "random", "urandom"}

// buildRoot creates the container's file system and enters it: an overlay with the image as its lower directory. The
// container's writes stay in memory and end with it.
//
// All steps after the overlay happen after the change of root, when the image's symbolic links lead only to the image. The
// machine is then below s.old.
func buildRoot(s *Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	if err := unix.Mount("tmpfs", s.Root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount root tmpfs: %w", err)
	}
	steps := []func(*Spec) error{
		resolveSources, mountOverlay, pivot, makeDevices, mountProc, hidePaths, bindCgroups, writeFiles, bindMounts, leaveOld,
	}
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

// resolveSources resolves the symbolic links of this machine, because after the change of root they would lead elsewhere.
func resolveSources(s *Spec) error {
	for i, m := range s.Mounts {
		source, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			return fmt.Errorf("read volume of %s: %w", m.Target, err)
		}
		s.Mounts[i].Source = source
	}
	return nil
}

func mountOverlay(s *Spec) error {
	upper, work, merged := filepath.Join(s.Root, "upper"), filepath.Join(s.Root, "work"), filepath.Join(s.Root, "merged")
	for _, d := range []string{upper, work, merged} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if _, err := os.Stat(s.Image); err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	// userxattr: in a user namespace overlayfs cannot use its trusted attributes.
	options := "userxattr,lowerdir=" + overlayEscaper.Replace(s.Image) + ",upperdir=" + overlayEscaper.Replace(upper) + ",workdir=" +
		overlayEscaper.Replace(work)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay of the image (needs overlayfs in user namespaces, Linux 5.11): %w", err)
	}
	s.Root = merged
	return nil
}

var overlayEscaper = strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`)

// writeFiles replaces files of the image, without following links in it.
func writeFiles(s *Spec) error {
	for name, content := range s.Files {
		p := filepath.Join("/", name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// makeDevices mounts a /dev over the image's.
func makeDevices(s *Spec) error {
	if err := os.MkdirAll("/dev", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID, "mode=0755"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, d := range devices {
		if err := s.bind(Mount{Source: "/dev/" + d, Target: "/dev/" + d}); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, "/dev/"+link); err != nil {
			return err
		}
	}
	if err := os.Mkdir("/dev/shm", 0o755); err != nil {
		return err
	}
	return os.Chmod("/dev/shm", 0o777|os.ModeSticky) // independent of the umask
}

func mountProc(*Spec) error {
	if err := os.MkdirAll("/proc", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// hidePaths hides the machine's settings in /proc from the program. Not every kernel has all paths that runtimes hide.
func hidePaths(s *Spec) error {
	for _, p := range s.ReadOnly {
		if err := hide(p, p); err != nil {
			return err
		}
	}
	for _, p := range s.Masked {
		if err := hide("/dev/null", p); err != nil {
			return err
		}
	}
	return nil
}

// hide mounts a source on a path, read-only, if the path exists. A masked folder is replaced by an empty one.
func hide(source, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir() && source != path:
		if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mask %s: %w", path, err)
		}
		return nil
	default:
		return bindReadOnly(source, path)
	}
}

// bindCgroups shows the program its limits in the usual place. It covers the image's /sys.
func bindCgroups(s *Spec) error {
	if len(s.Cgroups) == 0 {
		return nil
	}
	if err := os.MkdirAll("/sys", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/sys", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755"); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	for target, dir := range s.Cgroups {
		if err := s.bind(Mount{Source: dir, Target: target, ReadOnly: true}); err != nil {
			return err
		}
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("", "/sys", "", flags, ""); err != nil {
		return fmt.Errorf("make /sys read-only: %w", err)
	}
	return nil
}

// bindMounts creates the pod's mounts, outer directories before inner ones.
func bindMounts(s *Spec) error {
	mounts := slices.Clone(s.Mounts)
	slices.SortStableFunc(mounts, func(a, b Mount) int { return len(a.Target) - len(b.Target) })
	for _, m := range mounts {
		if err := s.bind(m); err != nil {
			return err
		}
	}
	return nil
}

// pivot enters the root. The image cannot know the name of the old one.
func pivot(s *Spec) error {
	old, err := os.MkdirTemp(s.Root, ".old-")
	if err != nil {
		return err
	}
	if err := unix.PivotRoot(s.Root, old); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	s.old = "/" + filepath.Base(old)
	return os.Chdir("/")
}

func leaveOld(s *Spec) error {
	if err := unix.Unmount(s.old, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount old root: %w", err)
	}
	return os.Remove(s.old)
}

// bind creates the mount point and mounts the machine's source on it.
func (s *Spec) bind(m Mount) error {
	source := filepath.Join(s.old, m.Source)
	if err := makeMountPoint(source, m.Target); err != nil {
		return fmt.Errorf("make mount point %s: %w", m.Target, err)
	}
	if m.ReadOnly {
		return bindReadOnly(source, m.Target)
	}
	return bind(source, m.Target)
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}
	return nil
}

func bindReadOnly(source, target string) error {
	if err := bind(source, target); err != nil {
		return err
	}
	flags, err := lockedFlags(target)
	if err != nil {
		return err
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|flags, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
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

// lockedFlags are the mount flags that a remount must repeat, because a user namespace cannot remove them.
func lockedFlags(path string) (uintptr, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	var flags uintptr
	for _, f := range []struct{ have, want uintptr }{
		{unix.ST_NOSUID, unix.MS_NOSUID}, {unix.ST_NODEV, unix.MS_NODEV}, {unix.ST_NOEXEC, unix.MS_NOEXEC},
		{unix.ST_NOATIME, unix.MS_NOATIME}, {unix.ST_NODIRATIME, unix.MS_NODIRATIME}, {unix.ST_RELATIME, unix.MS_RELATIME},
	} {
		if uintptr(st.Flags)&f.have != 0 {
			flags |= f.want
		}
	}
	return flags, nil
}
