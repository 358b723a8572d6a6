package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Media types of artifacts that refer to an image.
const (
	emptyConfig = "application/vnd.oci.empty.v1+json"
	layoutFile  = `{"imageLayoutVersion":"1.0.0"}`
)

// Layout is an OCI image layout that is being written.
type Layout struct{ dir string }

// newLayout returns an empty layout in dir, which exists.
func newLayout(dir string) (*Layout, error) {
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return nil, err
	}
	return &Layout{dir: dir}, os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(layoutFile), 0o644)
}

// write stores the output of fill as a blob.
func (l *Layout) write(mediaType types.MediaType, fill func(io.Writer) error) (v1.Descriptor, error) {
	blobs := filepath.Join(l.dir, "blobs", "sha256")
	tmp, err := os.CreateTemp(blobs, ".writing-")
	if err != nil {
		return v1.Descriptor{}, err
	}
	defer os.Remove(tmp.Name()) // renamed on success
	counted := &countingHash{Hash: sha256.New()}
	err = fill(io.MultiWriter(tmp, counted))
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return v1.Descriptor{}, err
	}
	sum := hex.EncodeToString(counted.Sum(nil))
	if err := os.Rename(tmp.Name(), filepath.Join(blobs, sum)); err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: mediaType, Size: counted.n, Digest: v1.Hash{Algorithm: "sha256", Hex: sum}}, nil
}

func (l *Layout) writeBytes(mediaType types.MediaType, raw []byte) (v1.Descriptor, error) {
	return l.write(mediaType, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(raw))
		return err
	})
}

func (l *Layout) writeJSON(mediaType types.MediaType, document any) (v1.Descriptor, error) {
	raw, err := json.Marshal(document)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return l.writeBytes(mediaType, raw)
}

// Artifact is a document that refers to an image.
type Artifact struct {
	Type        string // media type of the document, and type of the artifact
	Subject     v1.Descriptor
	Document    []byte
	Annotations map[string]string
}

// attach stores an artifact and returns its descriptor for the list of the layout.
func (l *Layout) attach(a Artifact) (v1.Descriptor, error) {
	config, err := l.writeBytes(emptyConfig, []byte("{}"))
	if err != nil {
		return v1.Descriptor{}, err
	}
	blob, err := l.writeBytes(types.MediaType(a.Type), a.Document)
	if err != nil {
		return v1.Descriptor{}, err
	}
	subject := v1.Descriptor{MediaType: a.Subject.MediaType, Size: a.Subject.Size, Digest: a.Subject.Digest}
	d, err := l.writeJSON(types.OCIManifestSchema1, v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: a.Type,
		Config: config, Layers: []v1.Descriptor{blob}, Subject: &subject, Annotations: a.Annotations})
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("attach %s: %w", a.Type, err)
	}
	d.ArtifactType, d.Annotations = a.Type, a.Annotations
	return d, nil
}

// finish writes the list of the layout's contents.
func (l *Layout) finish(manifests []v1.Descriptor) error {
	raw, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: manifests})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.dir, "index.json"), raw, 0o644)
}

type countingHash struct {
	hash.Hash
	n int64
}

func (c *countingHash) Write(p []byte) (int, error) {
	n, err := c.Hash.Write(p)
	c.n += int64(n)
	return n, err
}
