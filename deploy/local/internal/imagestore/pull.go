package imagestore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// dialTimeout is the timeout of a connection to a registry. A node has no route to hosts outside its cluster: nothing
// answers there.
const dialTimeout = 5 * time.Second

// PullOptions configure access to registries.
type PullOptions struct {
	// Insecure are host:port of registries that may answer in plain HTTP. Loopback and private addresses always may.
	Insecure []string
	Auth     authn.AuthConfig
}

// Pull pulls an image from the registry in ref, for this machine's platform, and sets ref to it. It contacts the registry
// each time, and unpacks only missing content. For references without a registry it returns ErrNotFound: nothing is pulled
// from docker.io.
func (s *Store) Pull(ctx context.Context, ref string, o PullOptions) (*Image, error) {
	r, err := ParseReference(ref)
	if err != nil {
		return nil, err
	}
	if r.registry() == defaultRegistry {
		return nil, fmt.Errorf("%w: %s (it names no registry to pull from)", ErrNotFound, r)
	}
	var options []name.Option
	if slices.Contains(o.Insecure, r.registry()) {
		options = append(options, name.Insecure)
	}
	parsed, err := name.ParseReference(r.String(), options...)
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", r, err)
	}
	base := remote.DefaultTransport.(*http.Transport).Clone()
	base.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	base.Proxy = nil // the machine's proxy is outside the node's network
	defer base.CloseIdleConnections()
	d, err := remote.Get(parsed, remote.WithContext(ctx), remote.WithTransport(base), remote.WithAuth(authn.FromConfig(o.Auth)),
		remote.WithPlatform(platform()))
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", r, pullError(err))
	}
	img, err := pulledImage(d)
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", r, err)
	}
	return s.add(r, img, d.Digest)
}

// pulledImage returns the image of this machine's platform. The library has verified the digest of the registry's response.
func pulledImage(d *remote.Descriptor) (v1.Image, error) {
	switch {
	case d.MediaType.IsIndex():
		index, err := d.ImageIndex()
		if err != nil {
			return nil, err
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			return nil, err
		}
		return pick(index, manifest.Manifests, platform(), maxIndexDepth)
	case d.MediaType.IsImage():
		return d.Image()
	default:
		return nil, fmt.Errorf("%s is not an image", mediaType(d.MediaType))
	}
}

func mediaType(t types.MediaType) string {
	if t == "" {
		return "a manifest without a type"
	}
	return string(t)
}

// pullError converts the response of a registry without the image to ErrNotFound.
func pullError(err error) error {
	var answer *transport.Error
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}
