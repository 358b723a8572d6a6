package imagestore

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
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
	parsed, err := parse(s)
	if err != nil {
		return Reference{}, err
	}
	repository := parsed.Context().Name()
	if rest, ok := strings.CutPrefix(repository, name.DefaultRegistry+"/"); ok {
		repository = defaultRegistry + "/" + rest
	}
	return Reference{Repository: repository, Identifier: parsed.Identifier()}, nil
}

func parse(s string, options ...name.Option) (name.Reference, error) {
	parsed, err := name.ParseReference(s, append(options, name.WeakValidation)...)
	if err != nil {
		return nil, fmt.Errorf("%q is not an image reference (name:tag): %w", s, err)
	}
	return parsed, nil
}
