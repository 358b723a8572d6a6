// Package oci builds OCI image layouts without a container engine: an index with an image for each platform, each with a base
// layer and a layer with one program, and the artifacts that refer to them.
//
// The same input gives the same bytes on every machine. Times come from the input, files are sorted, owners and modes are fixed.
// Only a Go release that changes its compressor changes the digest of a compressed layer.
package oci

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"fairlead.dev/deploy/images/internal/attest"
)

// annotation is the prefix of the keys that the OCI image specification defines.
const annotation = "org.opencontainers.image."

// Annotations of the index that a push reads.
const (
	Title   = annotation + "title"
	Version = annotation + "version"
)

// File is a file of this machine at a path of the image.
type File struct{ Source, Target string }

// Binary is the program of one platform, such as linux/amd64.
type Binary struct{ Platform, File string }

// Params describe an image.
type Params struct {
	Name     string
	Binaries []Binary
	Path     string   // of the program in the image; empty: /<Name>
	Files    []File   // further files, the same for each platform
	Args     []string // of the program, before those of a pod: part of the entrypoint
	Cmd      []string // default arguments, which those of a pod replace
	Env      []string
	User     string // empty: root

	Description, Version, Revision, Source, Licenses string
	Created                                          time.Time

	Compress bool
	// Attest adds an SBOM for each platform and the provenance. It needs Go programs.
	Attest bool
}

// Build writes the layout to folder dir, which it replaces, and returns the descriptor of the index.
func Build(dir string, p Params) (v1.Descriptor, error) {
	if err := p.complete(); err != nil {
		return v1.Descriptor{}, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return v1.Descriptor{}, err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".layout-")
	if err != nil {
		return v1.Descriptor{}, err
	}
	defer os.RemoveAll(tmp) // renamed on success
	index, err := p.build(tmp)
	if err != nil {
		return v1.Descriptor{}, err
	}
	if err := errors.Join(os.Chmod(tmp, 0o755), os.RemoveAll(dir)); err != nil {
		return v1.Descriptor{}, err
	}
	return index, os.Rename(tmp, dir)
}

func (p *Params) complete() error {
	if p.Name == "" || len(p.Binaries) == 0 {
		return errors.New("an image needs a name and a binary")
	}
	if p.Path == "" {
		p.Path = "/" + p.Name
	}
	p.Created = p.Created.UTC().Truncate(time.Second)
	p.Binaries = slices.SortedFunc(slices.Values(p.Binaries), func(a, b Binary) int { return strings.Compare(a.Platform, b.Platform) })
	for i, b := range p.Binaries {
		if i > 0 && p.Binaries[i-1].Platform == b.Platform {
			return fmt.Errorf("two binaries for %s", b.Platform)
		}
	}
	for _, f := range append([]File{{Target: p.Path}}, p.Files...) {
		if !path.IsAbs(f.Target) || path.Clean(f.Target) != f.Target || f.Target == "/" {
			return fmt.Errorf("%q is not an absolute path of a file in the image", f.Target)
		}
	}
	return nil
}

func (p *Params) build(dir string) (v1.Descriptor, error) {
	l, err := newLayout(dir)
	if err != nil {
		return v1.Descriptor{}, err
	}
	base, err := p.writeLayer(l, baseEntries())
	if err != nil {
		return v1.Descriptor{}, err
	}
	images := make([]v1.Descriptor, len(p.Binaries))
	for i, b := range p.Binaries {
		if images[i], err = p.writeImage(l, base, b); err != nil {
			return v1.Descriptor{}, fmt.Errorf("build %s for %s: %w", p.Name, b.Platform, err)
		}
	}
	index, err := l.writeJSON(types.OCIImageIndex, v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: images,
		Annotations: p.annotations()})
	if err != nil {
		return v1.Descriptor{}, err
	}
	index.Annotations = map[string]string{annotation + "ref.name": p.Version}
	content := []v1.Descriptor{index}
	if p.Attest {
		attached, err := p.attest(l, index, images)
		if err != nil {
			return v1.Descriptor{}, err
		}
		content = append(content, attached...)
	}
	return index, l.finish(content)
}

// writeImage stores the image of one platform: the common base, and the program.
func (p *Params) writeImage(l *Layout, base layer, b Binary) (v1.Descriptor, error) {
	platform, err := v1.ParsePlatform(b.Platform)
	if err != nil {
		return v1.Descriptor{}, err
	}
	entries, err := p.entries(b)
	if err != nil {
		return v1.Descriptor{}, err
	}
	program, err := p.writeLayer(l, entries)
	if err != nil {
		return v1.Descriptor{}, err
	}
	config := v1.ConfigFile{
		Architecture: platform.Architecture, OS: platform.OS, Variant: platform.Variant, Created: v1.Time{Time: p.Created},
		Config: v1.Config{
			Entrypoint: append([]string{p.Path}, p.Args...), Cmd: p.Cmd, Env: p.Env, User: p.User, WorkingDir: "/",
			Labels: p.annotations(),
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{base.diffID, program.diffID}},
		History: []v1.History{{Created: v1.Time{Time: p.Created}, CreatedBy: "base: CA certificates, users, /tmp"},
			{Created: v1.Time{Time: p.Created}, CreatedBy: p.Name}},
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Annotations: p.annotations(),
		Layers: []v1.Descriptor{base.descriptor, program.descriptor}}
	if manifest.Config, err = l.writeJSON(types.OCIConfigJSON, config); err != nil {
		return v1.Descriptor{}, err
	}
	d, err := l.writeJSON(types.OCIManifestSchema1, manifest)
	d.Platform = platform
	return d, err
}

// entries returns the program of a platform and the further files.
func (p *Params) entries(b Binary) ([]entry, error) {
	program, err := file(b.File, strings.TrimPrefix(p.Path, "/"))
	if err != nil {
		return nil, err
	}
	program.mode = 0o755
	entries := []entry{program}
	for _, f := range p.Files {
		e, err := file(f.Source, strings.TrimPrefix(f.Target, "/"))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	_, err = withParents(append(baseEntries(), entries...)) // a layer may hide a file of the one below
	return entries, err
}

// annotations returns the keys of the OCI specification, for annotations of manifests and labels of the configuration.
func (p *Params) annotations() map[string]string {
	all := map[string]string{
		"title": p.Name, "description": p.Description, "version": p.Version, "revision": p.Revision, "source": p.Source,
		"licenses": p.Licenses, "created": p.Created.Format(time.RFC3339),
	}
	given := map[string]string{}
	for key, value := range all {
		if value != "" {
			given[annotation+key] = value
		}
	}
	return given
}

// attest attaches an SBOM to each image and the provenance of all to the index.
func (p *Params) attest(l *Layout, index v1.Descriptor, images []v1.Descriptor) ([]v1.Descriptor, error) {
	build := attest.Build{
		Name: p.Name, Version: p.Version, Revision: p.Revision, Source: p.Source, Licenses: p.Licenses, Created: p.Created,
	}
	created := map[string]string{annotation + "created": p.Created.Format(time.RFC3339)}
	var attached []v1.Descriptor
	programs := make([]attest.Program, len(images))
	for i, b := range p.Binaries {
		var err error
		if programs[i], err = attest.ReadProgram(b.File, b.Platform, images[i].Digest.Hex); err != nil {
			return nil, err
		}
		document, err := attest.SBOM(build, programs[i])
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", b.File, err)
		}
		d, err := l.attach(Artifact{Type: attest.SBOMType, Subject: images[i], Document: document, Annotations: created})
		if err != nil {
			return nil, err
		}
		attached = append(attached, d)
	}
	document, err := attest.Provenance(build, index.Digest.Hex, programs)
	if err != nil {
		return nil, err
	}
	d, err := l.attach(Artifact{Type: attest.ProvenanceType, Subject: index, Document: document, Annotations: map[string]string{
		annotation + "created": created[annotation+"created"], "in-toto.io/predicate-type": attest.PredicateType}})
	return append(attached, d), err
}
