package imagestore

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
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

	securejoin "github.com/cyphar/filepath-securejoin"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Whiteouts remove files of lower layers: https://github.com/opencontainers/image-spec/blob/v1.1.1/layer.md#whiteouts.
const (
	whiteout       = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

var errTooLarge = errors.New("the image is too large")

// limits bound the unpacked size of an image, independent of the size of its archive.
type limits struct {
	layers, entries int
	bytes           int64
}

// defaultLimits are several times the largest images in use: model servers with CUDA have about 100 layers, 200 000 files and
// 20 GB.
func defaultLimits() limits { return limits{layers: 512, entries: 1 << 20, bytes: 64 << 30} }

// unpacker applies layers to the directory root. It resolves every path as if root were /, so that no name or link leaves
// it.
type unpacker struct {
	root     string
	left     limits
	maxBytes int64
	size     int64
	// added contains the paths of the current layer and their directories: its opaque whiteouts keep them.
	added map[string]bool
}

// unpack creates root, applies the layers of an image to it, and returns the size of the files. The content of each layer
// must have its digest in diffIDs.
func unpack(root string, img v1.Image, diffIDs []v1.Hash, bounds limits) (int64, error) {
	layers, err := img.Layers()
	if err != nil {
		return 0, err
	}
	if len(layers) > bounds.layers {
		return 0, fmt.Errorf("it has %d layers, more than %d", len(layers), bounds.layers)
	}
	if len(layers) != len(diffIDs) {
		return 0, fmt.Errorf("it has %d layers, and %d in its configuration", len(layers), len(diffIDs))
	}
	u := &unpacker{root: root, left: bounds, maxBytes: bounds.bytes}
	if err := u.makeDir(root, 0o755); err != nil {
		return 0, err
	}
	for i, l := range layers {
		if err := u.layer(l, diffIDs[i]); err != nil {
			return 0, fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	return u.size, nil
}

func (u *unpacker) layer(l v1.Layer, want v1.Hash) error {
	content, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer content.Close()
	in := &verifiedReader{in: content, sum: sha256.New(), left: &u.left.bytes}
	u.added = map[string]bool{}
	archive := tar.NewReader(in)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := u.entry(h, archive); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // the digest includes data after the end of the archive
		return err
	}
	if got := hex.EncodeToString(in.sum.Sum(nil)); got != want.Hex {
		return fmt.Errorf("its content has digest sha256:%s, want %s", got, want)
	}
	return nil
}

// verifiedReader hashes and counts the data, and fails when it exceeds its limit.
type verifiedReader struct {
	in   io.Reader
	sum  hash.Hash
	left *int64
}

func (v *verifiedReader) Read(p []byte) (int, error) {
	n, err := v.in.Read(p)
	v.sum.Write(p[:n])
	if *v.left -= int64(n); *v.left < 0 {
		return n, errTooLarge
	}
	return n, err
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if u.left.entries--; u.left.entries < 0 {
		return errors.New("the image has too many files")
	}
	if slices.Contains(strings.Split(h.Name, "/"), "..") {
		return errors.New("the name leads out of the image")
	}
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	if name == "" {
		return nil // the mode of the root is fixed
	}
	dir, err := u.parent(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if strings.HasPrefix(base, whiteout) {
		return u.remove(dir, base)
	}
	file := filepath.Join(dir, base)
	u.markAdded(file)
	return u.write(file, h, content)
}

// parent returns a directory of the image on this machine. It creates it if it is missing.
func (u *unpacker) parent(dir string) (string, error) {
	file, err := securejoin.SecureJoin(u.root, dir)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(u.root, file)
	if err != nil {
		return "", err
	}
	at := u.root
	for _, part := range strings.Split(rel, string(filepath.Separator)) {
		at = filepath.Join(at, part)
		if err := u.makeDir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return file, nil
}

// makeDir creates a directory that all can read, independent of the umask: containers have other users.
func (u *unpacker) makeDir(dir string, mode fs.FileMode) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, mode|0o555)
}

// remove applies a whiteout.
func (u *unpacker) remove(dir, base string) error {
	if base != opaqueWhiteout {
		name := strings.TrimPrefix(base, whiteout)
		if name == "" || name == "." || name == ".." {
			return errors.New("the whiteout names no file")
		}
		return os.RemoveAll(filepath.Join(dir, name))
	}
	return u.removeLower(dir)
}

// removeLower removes the content of a directory that lower layers added.
func (u *unpacker) removeLower(dir string) error {
	done := filepath.Join(dir, opaqueWhiteout)
	if u.added[done] {
		return nil
	}
	u.added[done] = true
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if !u.added[file] {
			err = errors.Join(err, os.RemoveAll(file))
		} else if e.IsDir() {
			err = errors.Join(err, u.removeLower(file))
		}
	}
	return err
}

// markAdded records that the current layer added a path, with its parent directories.
func (u *unpacker) markAdded(file string) {
	for ; file != u.root && !u.added[file]; file = filepath.Dir(file) {
		u.added[file] = true
	}
}

func (u *unpacker) write(file string, h *tar.Header, content io.Reader) error {
	mode := h.FileInfo().Mode() & (fs.ModePerm | fs.ModeSticky)
	old, err := os.Lstat(file)
	if err == nil && h.Typeflag == tar.TypeDir && old.IsDir() {
		return os.Chmod(file, mode|0o555)
	}
	// Open it before removing the old file: a link may point to the file that it replaces.
	linked, err := u.linked(h)
	if err != nil {
		return err
	}
	if linked == file {
		return nil
	}
	if err := os.RemoveAll(file); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.makeDir(file, mode)
	case tar.TypeReg:
		return u.writeFile(file, h, mode, content)
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, file)
	case tar.TypeLink:
		return os.Link(linked, file)
	default:
		return fmt.Errorf("type %q is not supported: an image has files, directories and links here", h.Typeflag)
	}
}

// linked returns the target of a hard link, empty for other entries.
func (u *unpacker) linked(h *tar.Header) (string, error) {
	if h.Typeflag != tar.TypeLink {
		return "", nil
	}
	if slices.Contains(strings.Split(h.Linkname, "/"), "..") {
		return "", fmt.Errorf("the link to %q leads out of the image", h.Linkname)
	}
	name := path.Clean("/" + h.Linkname)
	dir, err := securejoin.SecureJoin(u.root, path.Dir(name))
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, path.Base(name))
	info, err := os.Lstat(file)
	if err != nil {
		return "", fmt.Errorf("the link to %q leads nowhere: %w", h.Linkname, err)
	}
	if info.IsDir() {
		return "", fmt.Errorf("the link to %q leads to a directory", h.Linkname)
	}
	return file, nil
}

func (u *unpacker) writeFile(file string, h *tar.Header, mode fs.FileMode, content io.Reader) error {
	if h.Size > u.maxBytes-u.size { // a sparse file is small in its archive
		return errTooLarge
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, content)
	u.size += n
	return errors.Join(err, out.Chmod(mode|0o444), out.Close())
}
