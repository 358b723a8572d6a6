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

// dialTimeout is how long a pull waits for a registry's host. A node has no route to hosts beyond its cluster: nothing answers there.
const dialTimeout = 5 * time.Second

// PullOptions say how a registry is reached.
type PullOptions struct {
	// Insecure are the hosts, with their ports, that may answer in plain HTTP. Loopback and private addresses always may.
	Insecure []string
	Auth     authn.AuthConfig
}

// Pull takes an image from the registry that ref names, for this machine's platform, and makes ref lead to it. It asks the registry
// each time and unpacks what the store does not have. References without a registry are ErrNotFound: nothing is pulled from docker.io.
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
	base.Proxy = nil // one of the machine is beyond the node's network
	defer base.CloseIdleConnections()
	d, err := remote.Get(parsed, remote.WithContext(ctx), remote.WithTransport(base), remote.WithAuth(authn.FromConfig(o.Auth)), remote.WithPlatform(platform()))
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", r, pullError(err))
	}
	img, err := pulledImage(d)
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", r, err)
	}
	return s.add(r, img, d.Digest)
}

// pulledImage returns the image of this machine's platform. The library verified the digest of what the registry sent.
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

// pullError makes ErrNotFound of the answer of a registry that does not have an image.
func pullError(err error) error {
	var answer *transport.Error
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}
