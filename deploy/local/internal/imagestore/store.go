// Package imagestore stores the images of the embedded Kubernetes: a folder of references and images, each unpacked to one
// directory. Images come from OCI layouts and from registries. Their content is verified by digest before a reference points
// to it.
//
//	refs/<registry>/<name>/<tag or digest>  holds the image's ID and its digest in the registry
//	blobs/<sha256-hex of the ID>/root/      the image's files, never changed once there
//	blobs/<sha256-hex of the ID>/config.json  what to run
//
// The ID is the digest of the image's configuration. Equal images are stored once; a changed image under an old tag gives
// the tag a new ID, and containers of the old one keep it. Several clusters may read one store while images are added.
//
// The files of an image belong to the owner of the store and are readable by all, because only root can change owners.
package imagestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// ErrNotFound means that the image does not exist.
var ErrNotFound = errors.New("image not found")

const digestPrefix = "sha256:"

var validDigest = regexp.MustCompile(`^` + digestPrefix + `[0-9a-f]{64}$`)

// Config contains the settings for a container of the image.
type Config struct {
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	Env        []string `json:"env,omitempty"`
	User       string   `json:"user,omitempty"` // name or number, with or without a group; empty: root
	WorkingDir string   `json:"workingDir,omitempty"`
}

// Image is one image of the store.
type Image struct {
	ID      string // sha256:<hex>
	Refs    []Reference
	Digests []string // repository@digest
	Config  Config
	Root    string // the directory with its files
	Size    int64  // bytes
}

// Store is a folder of images.
type Store struct{ dir string }

// Open returns the store in dir, which need not exist yet.
func Open(dir string) *Store { return &Store{dir: dir} }

func (s *Store) blob(id string) string {
	return filepath.Join(s.dir, "blobs", strings.TrimPrefix(id, digestPrefix))
}

func (s *Store) ref(r Reference) string {
	return filepath.Join(s.dir, "refs", r.Repository, r.Identifier)
}

// Resolve finds an image by reference or by ID. It returns ErrNotFound for an unknown image.
func (s *Store) Resolve(ref string) (*Image, error) {
	if validDigest.MatchString(ref) {
		return s.named(ref, ref)
	}
	r, err := ParseReference(ref)
	if err != nil {
		return nil, err
	}
	t, err := s.target(r)
	if err != nil {
		return nil, err
	}
	return s.named(t.id, r.String())
}

// target is the image of a reference.
type target struct{ id, digest string }

func (s *Store) target(r Reference) (target, error) {
	raw, err := os.ReadFile(s.ref(r))
	if errors.Is(err, fs.ErrNotExist) {
		return target{}, fmt.Errorf("%w: %s", ErrNotFound, r)
	}
	if err != nil {
		return target{}, fmt.Errorf("read reference %s: %w", r, err)
	}
	words := strings.Fields(string(raw))
	if len(words) != 2 || !validDigest.MatchString(words[0]) || !validDigest.MatchString(words[1]) {
		return target{}, fmt.Errorf("%w: %s", ErrNotFound, r) // written by an earlier version of this package
	}
	return target{id: words[0], digest: words[1]}, nil
}

// named returns an image with all its references.
func (s *Store) named(id, asked string) (*Image, error) {
	img, err := s.load(id, asked)
	if err != nil {
		return nil, err
	}
	return img, s.walkRefs(func(r Reference, t target) error {
		if t.id == id {
			img.add(r, t)
		}
		return nil
	})
}

func (i *Image) add(r Reference, t target) {
	if r.Identifier != t.digest {
		i.Refs = append(i.Refs, r)
	}
	if digest := r.Repository + "@" + t.digest; !slices.Contains(i.Digests, digest) {
		i.Digests = append(i.Digests, digest)
	}
}

// record is the metadata next to an image's files.
type record struct {
	Config
	Size int64 `json:"size"`
}

func (s *Store) load(id, asked string) (*Image, error) {
	dir := s.blob(id)
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, asked)
	}
	if err != nil {
		return nil, fmt.Errorf("read image %s: %w", asked, err)
	}
	var rec record
	if err := json.Unmarshal(raw, &rec); err != nil {
		return nil, fmt.Errorf("read image %s: %w", asked, err)
	}
	return &Image{ID: id, Config: rec.Config, Root: filepath.Join(dir, "root"), Size: rec.Size}, nil
}

// List returns all images with references, each with all its references, sorted by the first.
func (s *Store) List() ([]*Image, error) {
	byID := map[string]*Image{}
	var list []*Image
	err := s.walkRefs(func(r Reference, t target) error {
		img := byID[t.id]
		if img == nil {
			var err error
			if img, err = s.load(t.id, r.String()); err != nil {
				return err
			}
			byID[t.id] = img
			list = append(list, img)
		}
		img.add(r, t)
		return nil
	})
	sort.SliceStable(list, func(i, j int) bool { return list[i].Digests[0] < list[j].Digests[0] })
	return list, err
}

// walkRefs calls f for each reference, in order.
func (s *Store) walkRefs(f func(Reference, target) error) error {
	top := filepath.Join(s.dir, "refs")
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an empty store, or a tag removed in the meantime
		}
		if err != nil || d.IsDir() {
			return err
		}
		repository, err := filepath.Rel(top, filepath.Dir(path))
		if err != nil {
			return err
		}
		r := Reference{Repository: repository, Identifier: d.Name()}
		t, err := s.target(r)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return f(r, t)
	})
}

// Tag sets ref to the image of another reference.
func (s *Store) Tag(existing, ref string) error {
	old, err := ParseReference(existing)
	if err != nil {
		return err
	}
	t, err := s.target(old)
	if err != nil {
		return err
	}
	r, err := ParseReference(ref)
	if err != nil {
		return err
	}
	return s.tag(r, t)
}

// tag writes the reference to a temporary file and renames it, so that a reader sees the old image or the new one. It also
// sets the digest to the image.
func (s *Store) tag(r Reference, t target) error {
	for _, ref := range []Reference{{Repository: r.Repository, Identifier: t.digest}, r} {
		if err := s.writeRef(s.ref(ref), t); err != nil {
			return fmt.Errorf("tag %s: %w", r, err)
		}
	}
	return nil
}

func (s *Store) writeRef(file string, t target) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(s.dir, ".tag-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(t.id + " " + t.digest + "\n")
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// Untag removes a reference; the image stays until Prune.
func (s *Store) Untag(ref string) error {
	r, err := ParseReference(ref)
	if err != nil {
		return err
	}
	err = os.Remove(s.ref(r))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotFound, r)
	}
	return err
}

// Prune removes every image without a tag, with its digests, and returns their number. No cluster with this store may be
// running.
func (s *Store) Prune() (int, error) {
	keep := map[string]bool{}
	byDigest := map[Reference]string{}
	if err := s.walkRefs(func(r Reference, t target) error {
		if r.Identifier == t.digest {
			byDigest[r] = t.id
		} else {
			keep[t.id] = true
		}
		return nil
	}); err != nil {
		return 0, err
	}
	for r, id := range byDigest {
		if keep[id] {
			continue
		}
		if err := os.Remove(s.ref(r)); err != nil {
			return 0, err
		}
	}
	return s.removeBlobs(keep)
}

func (s *Store) removeBlobs(keep map[string]bool) (int, error) {
	blobs, err := os.ReadDir(filepath.Join(s.dir, "blobs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	removed := 0
	for _, b := range blobs {
		if keep[digestPrefix+b.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.dir, "blobs", b.Name())); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}
