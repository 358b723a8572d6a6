package imagestore

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// defaultRegistry is the host that a reference without one means.
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

// ParseReference reads an image reference as container runtimes do: no registry means docker.io, one word is in its library,
// no tag means latest, and a digest decides over a tag beside it.
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

// registry is the host that the image comes from.
func (r Reference) registry() string {
	host, _, _ := strings.Cut(r.Repository, "/")
	return host
}
