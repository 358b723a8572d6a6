package imagestore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// reserved top-level names are made for each container: an image that brought them would hide what the kubelet mounts.
var reserved = []string{"dev", "etc", "proc", "run", "tmp", "var"}

// File is one file of an image to be added.
type File struct {
	Source string // on this machine; a directory is added whole
	Target string // absolute path in the image
}

// Add copies files into a new image and makes ref lead to it. Symbolic links are kept inside a directory and followed
// when they are a File themselves.
func (s *Store) Add(ref string, files []File, cfg Config) (*Image, error) {
	r, err := ParseReference(ref)
	if err != nil {
		return nil, err
	}
	if err := checkTargets(files); err != nil {
		return nil, fmt.Errorf("add %s: %w", r, err)
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "blobs"), 0o755); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(filepath.Join(s.dir, "blobs"), ".adding-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp) // gone already when all went well
	img, err := s.fill(tmp, files, cfg)
	if err != nil {
		return nil, fmt.Errorf("add %s: %w", r, err)
	}
	if err := os.Rename(tmp, s.blob(img.Digest)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("add %s: %w", r, err)
	}
	if err := s.tag(r, img.Digest); err != nil {
		return nil, fmt.Errorf("tag %s: %w", r, err)
	}
	return s.Resolve(r.String())
}

// Tag makes ref lead to the image that another reference leads to.
func (s *Store) Tag(existing, ref string) error {
	img, err := s.Resolve(existing)
	if err != nil {
		return err
	}
	r, err := ParseReference(ref)
	if err != nil {
		return err
	}
	return s.tag(r, img.Digest)
}

func checkTargets(files []File) error {
	if len(files) == 0 {
		return errors.New("an image needs a file")
	}
	for _, f := range files {
		if !path.IsAbs(f.Target) || path.Clean(f.Target) != f.Target {
			return fmt.Errorf("%q is not an absolute path in the image", f.Target)
		}
	}
	return nil
}

// checkReserved refuses a path, at the top of an image or in a folder that is added whole, which would hide what every
// container has.
func checkReserved(target string) error {
	top, _, _ := strings.Cut(strings.TrimPrefix(target, "/"), "/")
	if slices.Contains(reserved, top) {
		return fmt.Errorf("%s: /%s is made for each container, an image must not bring it", target, top)
	}
	return nil
}

// fill builds the image in dir and computes its digest: over the sorted paths, modes and contents, and the configuration.
func (s *Store) fill(dir string, files []File, cfg Config) (*Image, error) {
	if err := os.Chmod(dir, 0o755); err != nil { // MkdirTemp made it private, and containers have users of their own
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(dir, "root"), 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Join(dir, "root")) // no link in the image leads a file out of it
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := root.Chmod(".", 0o755); err != nil {
		return nil, err
	}
	sum := sha256.New()
	var size int64
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Target, b.Target) })
	for _, f := range files {
		n, err := addTree(sum, root, f)
		if err != nil {
			return nil, err
		}
		size += n
	}
	raw, err := json.Marshal(record{Config: cfg, Size: size})
	if err != nil {
		return nil, err
	}
	sum.Write(raw)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o644); err != nil {
		return nil, err
	}
	return &Image{Digest: digestPrefix + hex.EncodeToString(sum.Sum(nil)), Size: size}, nil
}

func addTree(sum hash.Hash, root *os.Root, f File) (size int64, err error) {
	source, err := filepath.EvalSymlinks(f.Source)
	if err != nil {
		return 0, err
	}
	err = filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, p)
		if err != nil {
			return err
		}
		n, err := addEntry(sum, p, d, root, path.Join(f.Target, filepath.ToSlash(rel)))
		size += n
		return err
	})
	return size, err
}

func addEntry(sum hash.Hash, source string, d fs.DirEntry, root *os.Root, target string) (int64, error) {
	info, err := d.Info()
	if err != nil {
		return 0, err
	}
	if err := checkReserved(target); err != nil {
		return 0, err
	}
	fmt.Fprintf(sum, "%s\x00%o\x00", target, info.Mode())
	dst := path.Join(".", target)
	if err := makeDirs(root, path.Dir(dst)); err != nil {
		return 0, err
	}
	switch {
	case d.IsDir():
		return 0, makeDirs(root, dst)
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := os.Readlink(source)
		if err != nil {
			return 0, err
		}
		fmt.Fprintf(sum, "%s\x00", link)
		return 0, root.Symlink(link, dst)
	case info.Mode().IsRegular():
		fmt.Fprintf(sum, "%d\x00", info.Size()) // where its content ends
		return copyFile(sum, source, root, dst, info.Mode().Perm()|0o444)
	default:
		return 0, fmt.Errorf("%s is neither file, directory nor link", source)
	}
}

// makeDirs makes a directory and those above it, for all to read whatever the umask: containers have users of their own.
func makeDirs(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := makeDirs(root, path.Dir(dir)); err != nil {
		return err
	}
	if err := root.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return root.Chmod(dir, 0o755)
}

func copyFile(sum hash.Hash, source string, root *os.Root, dst string, mode fs.FileMode) (int64, error) {
	in, err := os.Open(source)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := root.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.MultiWriter(out, sum), in)
	return n, errors.Join(err, out.Chmod(mode), out.Close()) // the umask may have taken rights away
}

// tag writes the reference beside and renames it, so that a reader sees the old digest or the new one.
func (s *Store) tag(r Reference, digest string) error {
	file := s.ref(r)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(s.dir, ".tag-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(digest + "\n")
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
