package imagestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxIndexDepth limits nested indexes. Two levels are usual: the list of a layout, and the platforms of an image.
const maxIndexDepth = 4

// Keys of the annotations that name the image of a layout.
const (
	titleAnnotation   = "org.opencontainers.image.title"
	versionAnnotation = "org.opencontainers.image.version"
)

// platform returns the platform of this machine's programs.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// LoadLayout unpacks the image of an OCI layout, for this machine's platform, and sets ref to it. Without a ref, the name is
// title:version from its annotations.
func (s *Store) LoadLayout(dir, ref string) (*Image, error) {
	path, err := layout.FromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("read layout %s: %w", dir, err)
	}
	content, err := path.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("read layout %s: %w", dir, err)
	}
	d, err := onlyImage(content)
	if err != nil {
		return nil, fmt.Errorf("read layout %s: %w", dir, err)
	}
	if ref == "" {
		if ref, err = nameOf(content, d); err != nil {
			return nil, fmt.Errorf("read layout %s: %w", dir, err)
		}
	}
	r, err := ParseReference(ref)
	if err != nil {
		return nil, err
	}
	img, err := pick(content, []v1.Descriptor{d}, platform(), maxIndexDepth)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", r, err)
	}
	return s.add(r, img, d.Digest)
}

// onlyImage finds the image in the list of a layout; the other entries are artifacts that refer to it.
func onlyImage(content v1.ImageIndex) (v1.Descriptor, error) {
	list, err := content.IndexManifest()
	if err != nil {
		return v1.Descriptor{}, err
	}
	var found []v1.Descriptor
	for _, d := range list.Manifests {
		// An artifact without a type has the type of its configuration; for images, that is an image's.
		if d.MediaType.IsIndex() || d.MediaType.IsImage() && (d.ArtifactType == "" || types.MediaType(d.ArtifactType).IsConfig()) {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return v1.Descriptor{}, fmt.Errorf("want one image, it has %d", len(found))
	}
	return found[0], nil
}

func nameOf(content v1.ImageIndex, d v1.Descriptor) (string, error) {
	var annotations map[string]string
	if d.MediaType.IsIndex() {
		index, err := content.ImageIndex(d.Digest)
		if err != nil {
			return "", err
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			return "", err
		}
		annotations = manifest.Annotations
	}
	title, version := annotations[titleAnnotation], annotations[versionAnnotation]
	if title == "" || version == "" {
		return "", errors.New("no annotations with title and version: name the image")
	}
	return title + ":" + version, nil
}

// pick finds the image for a platform. An image without a platform suits all.
func pick(index v1.ImageIndex, list []v1.Descriptor, want v1.Platform, depth int) (v1.Image, error) {
	for _, d := range list {
		switch {
		case d.MediaType.IsImage() && (d.Platform == nil || d.Platform.Satisfies(want)):
			return image(index, d.Digest)
		case d.MediaType.IsIndex() && depth > 0:
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			raw, err := inner.RawManifest()
			if err != nil {
				return nil, err
			}
			if err := verify(d.Digest, raw); err != nil {
				return nil, err
			}
			manifest, err := inner.IndexManifest()
			if err != nil {
				return nil, err
			}
			return pick(inner, manifest.Manifests, want, depth-1)
		}
	}
	return nil, fmt.Errorf("it has no image for %s", want)
}

// image returns an image of an index after verifying its manifest.
func image(index v1.ImageIndex, digest v1.Hash) (v1.Image, error) {
	img, err := index.Image(digest)
	if err != nil {
		return nil, err
	}
	raw, err := img.RawManifest()
	if err != nil {
		return nil, err
	}
	return img, verify(digest, raw)
}

func verify(digest v1.Hash, raw []byte) error {
	got, _, err := v1.SHA256(bytes.NewReader(raw))
	if err == nil && got != digest {
		err = fmt.Errorf("the content of %s has digest %s", digest, got)
	}
	return err
}

// add unpacks an image with a verified manifest, unless the store has it, and sets r to it.
func (s *Store) add(r Reference, img v1.Image, digest v1.Hash) (*Image, error) {
	config, id, err := readConfig(img)
	if err != nil {
		return nil, fmt.Errorf("read configuration of %s: %w", r, err)
	}
	if _, err := s.load(id.String(), r.String()); errors.Is(err, ErrNotFound) {
		err = s.fill(id, img, config)
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", r, err)
		}
	}
	if err := s.tag(r, target{id: id.String(), digest: digest.String()}); err != nil {
		return nil, err
	}
	return s.Resolve(r.String())
}

// readConfig returns the configuration and its digest, which the manifest verifies.
func readConfig(img v1.Image) (*v1.ConfigFile, v1.Hash, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return nil, v1.Hash{}, err
	}
	raw, err := img.RawConfigFile()
	if err != nil {
		return nil, v1.Hash{}, err
	}
	if err := verify(manifest.Config.Digest, raw); err != nil {
		return nil, v1.Hash{}, err
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(raw))
	return config, manifest.Config.Digest, err
}

// fill unpacks an image to a temporary directory and renames it.
func (s *Store) fill(id v1.Hash, img v1.Image, config *v1.ConfigFile) error {
	if err := os.MkdirAll(filepath.Join(s.dir, "blobs"), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Join(s.dir, "blobs"), ".adding-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)                      // renamed on success
	if err := os.Chmod(tmp, 0o755); err != nil { // MkdirTemp made it private, but containers have other users
		return err
	}
	size, err := unpack(filepath.Join(tmp, "root"), img, config.RootFS.DiffIDs, defaultLimits())
	if err != nil {
		return err
	}
	c := config.Config
	raw, err := json.Marshal(record{Size: size,
		Config: Config{Entrypoint: c.Entrypoint, Cmd: c.Cmd, Env: c.Env, User: c.User, WorkingDir: c.WorkingDir}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "config.json"), raw, 0o644); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.blob(id.String())); err != nil && !errors.Is(err, fs.ErrExist) { // another process was faster
		return err
	}
	return nil
}
