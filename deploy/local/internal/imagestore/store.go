// Package imagestore keeps the images of the embedded Kubernetes: a folder in which name:tag leads to a content digest,
// and a digest to a directory that is the image's root. There are no layers, no registry and no unpacking: a container's
// root is bound from that directory.
//
//	refs/<name>/<tag>              holds a digest
//	blobs/<sha256-hex>/root/       the image's files, never changed once there
//	blobs/<sha256-hex>/config.json what to run
//
// Adding the same content twice gives the same digest; a changed binary under an old tag gives the tag a new digest, and
// containers that run from the old one keep it. Several clusters may read one store while images are added.
package imagestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// ErrNotFound says that the store has no such image.
var ErrNotFound = errors.New("image not found")

const digestPrefix = "sha256:"

var validDigest = regexp.MustCompile(`^` + digestPrefix + `[0-9a-f]{64}$`)

// Config says how a container of the image runs.
type Config struct {
	Entrypoint []string `json:"entrypoint"`
	Env        []string `json:"env,omitempty"`
	User       *int     `json:"user,omitempty"` // nil: DefaultUser
}

// DefaultUser runs an image that names none, so that runAsNonRoot holds.
const DefaultUser = 65532

// Image is one image of the store.
type Image struct {
	Digest string // sha256:<hex>
	Refs   []Reference
	Config Config
	Root   string // the directory with its files
	Size   int64  // bytes
}

// UserID is the number that the image's processes run as.
func (i *Image) UserID() int {
	if i.Config.User != nil {
		return *i.Config.User
	}
	return DefaultUser
}

// Store is a folder of images.
type Store struct{ dir string }

// Open returns the store in dir, which need not exist yet.
func Open(dir string) *Store { return &Store{dir: dir} }

func (s *Store) blob(digest string) string {
	return filepath.Join(s.dir, "blobs", strings.TrimPrefix(digest, digestPrefix))
}

func (s *Store) ref(r Reference) string { return filepath.Join(s.dir, "refs", r.Name, r.Tag) }

// Resolve finds an image by reference or by digest. ErrNotFound tells that there is none.
func (s *Store) Resolve(ref string) (*Image, error) {
	if validDigest.MatchString(ref) {
		return s.load(ref, ref)
	}
	r, err := ParseReference(ref)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(s.ref(r))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, r)
	}
	if err != nil {
		return nil, fmt.Errorf("read reference %s: %w", r, err)
	}
	img, err := s.load(strings.TrimSpace(string(raw)), r.String())
	if err != nil {
		return nil, err
	}
	img.Refs = []Reference{r}
	return img, nil
}

// record is what the store writes beside an image's files.
type record struct {
	Config
	Size int64 `json:"size"`
}

func (s *Store) load(digest, asked string) (*Image, error) {
	dir := s.blob(digest)
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
	return &Image{Digest: digest, Config: rec.Config, Root: filepath.Join(dir, "root"), Size: rec.Size}, nil
}

// List returns all images that a tag leads to, each with all its references, sorted by the first.
func (s *Store) List() ([]*Image, error) {
	byDigest := map[string]*Image{}
	err := s.walkRefs(func(r Reference, digest string) error {
		img := byDigest[digest]
		if img == nil {
			var err error
			if img, err = s.load(digest, r.String()); err != nil {
				return err
			}
			byDigest[digest] = img
		}
		img.Refs = append(img.Refs, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	list := make([]*Image, 0, len(byDigest))
	for _, img := range byDigest {
		list = append(list, img)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Refs[0].String() < list[j].Refs[0].String() })
	return list, nil
}

// walkRefs calls f for each reference, in order.
func (s *Store) walkRefs(f func(Reference, string) error) error {
	top := filepath.Join(s.dir, "refs")
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an empty store, or a tag removed meanwhile
		}
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(top, filepath.Dir(path))
		if err != nil {
			return err
		}
		r := Reference{Name: name, Tag: d.Name()}
		raw, err := os.ReadFile(s.ref(r))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read reference: %w", err)
		}
		return f(r, strings.TrimSpace(string(raw)))
	})
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

// Prune removes every image that no tag leads to and returns how many. No cluster that uses the store may be running.
func (s *Store) Prune() (int, error) {
	keep := map[string]bool{}
	if err := s.walkRefs(func(_ Reference, digest string) error { keep[digest] = true; return nil }); err != nil {
		return 0, err
	}
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
