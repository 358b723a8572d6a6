// Package registry pushes OCI layouts: the index, the images that it lists and the artifacts that refer to them.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"fairlead.dev/deploy/images/internal/oci"
)

// Target is the destination of images, with their tags.
type Target struct {
	Registry string // host/path
	Version  string // the tag, and the required version of the images; empty: the version of each image
	Latest   bool   // the tag latest too
	Insecure bool   // plain HTTP and unknown certificates, also beyond loopback
}

// Push pushes the layout in dir and returns the reference by tag and digest. Credentials are those of `docker login`.
func Push(ctx context.Context, t Target, dir string) (string, error) {
	path, err := layout.FromPath(dir)
	if err != nil {
		return "", fmt.Errorf("read layout %s: %w", dir, err)
	}
	content, err := path.ImageIndex()
	if err != nil {
		return "", fmt.Errorf("read layout %s: %w", dir, err)
	}
	list, err := content.IndexManifest()
	if err != nil {
		return "", fmt.Errorf("read layout %s: %w", dir, err)
	}
	image, artifacts, err := split(list.Manifests)
	if err != nil {
		return "", fmt.Errorf("read layout %s: %w", dir, err)
	}
	index, err := content.ImageIndex(image.Digest)
	if err != nil {
		return "", fmt.Errorf("read index of %s: %w", dir, err)
	}
	reference, err := t.pushIndex(ctx, index)
	if err != nil {
		return "", fmt.Errorf("push %s: %w", dir, err)
	}
	for _, a := range artifacts {
		artifact, err := content.Image(a.Digest)
		if err != nil {
			return "", fmt.Errorf("read artifact of %s: %w", dir, err)
		}
		if err := remote.Write(reference.Context().Digest(a.Digest.String()), artifact, t.options(ctx)...); err != nil {
			return "", fmt.Errorf("push %s of %s: %w", a.ArtifactType, dir, err)
		}
	}
	return fmt.Sprintf("%s@%s", reference, image.Digest), nil
}

// split finds the index in the list of a layout.
func split(list []v1.Descriptor) (v1.Descriptor, []v1.Descriptor, error) {
	isIndex := func(d v1.Descriptor) bool { return d.MediaType.IsIndex() && d.ArtifactType == "" }
	at := slices.IndexFunc(list, isIndex)
	if at < 0 || slices.IndexFunc(list[at+1:], isIndex) >= 0 {
		return v1.Descriptor{}, nil, errors.New("want one index of images")
	}
	return list[at], slices.Delete(slices.Clone(list), at, at+1), nil
}

// pushIndex pushes the images of all platforms, then the tags.
func (t Target) pushIndex(ctx context.Context, index v1.ImageIndex) (name.Tag, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return name.Tag{}, err
	}
	title, version := manifest.Annotations[oci.Title], manifest.Annotations[oci.Version]
	if t.Version != "" && t.Version != version {
		return name.Tag{}, fmt.Errorf("the image has version %q, not %q: build it with `make images VERSION=%s`", version, t.Version, t.Version)
	}
	tag, err := name.NewTag(t.Registry+"/"+title+":"+version, t.nameOptions()...)
	if err != nil {
		return name.Tag{}, fmt.Errorf("the registry, the title or the version is wrong: %w", err)
	}
	if err := remote.WriteIndex(tag, index, t.options(ctx)...); err != nil {
		return name.Tag{}, err
	}
	if t.Latest {
		if err := remote.Tag(tag.Context().Tag("latest"), index, t.options(ctx)...); err != nil {
			return name.Tag{}, err
		}
	}
	return tag, nil
}

func (t Target) nameOptions() []name.Option {
	options := []name.Option{name.StrictValidation}
	if t.Insecure {
		options = append(options, name.Insecure)
	}
	return options
}

func (t Target) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithTransport(transport{insecure: t.Insecure, base: remote.DefaultTransport})}
}

// transport refuses to send an image, and credentials, in plain text over a network. The library would allow it for private
// addresses.
type transport struct {
	insecure bool
	base     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" && !t.insecure && !loopback(r.URL.Hostname()) {
		return nil, fmt.Errorf("%s answers in plain HTTP only: use --insecure if you trust the network", r.URL.Host)
	}
	return t.base.RoundTrip(r)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
