package imagestore

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// defaultRegistry is the host of references without one.
const defaultRegistry = "docker.io"

// Reference names an image: a repository with its registry, and a tag or a digest.
type Reference struct {
	Repository string // docker.io/library/busybox
	Identifier string // 1.37 or sha256:<hex>
}

func (r Reference) String() string {
	if strings.Contains(r.Identifier, ":") {
		return r.Repository + "@" + r.Identifier
	}
	return r.Repository + ":" + r.Identifier
}

// ParseReference parses an image reference like container runtimes: no registry means docker.io, a single word is in its
// library, no tag means latest, and a digest takes precedence over a tag.
func ParseReference(s string) (Reference, error) {
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return Reference{}, fmt.Errorf("%q is not an image reference (name:tag): %w", s, err)
	}
	r := Reference{Repository: named.Name(), Identifier: "latest"}
	if tagged, ok := named.(reference.Tagged); ok {
		r.Identifier = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		r.Identifier = digested.Digest().String()
	}
	return r, nil
}

// registry returns the host of the image's registry.
func (r Reference) registry() string {
	host, _, _ := strings.Cut(r.Repository, "/")
	return host
}
