package imagestore

import (
	"fmt"
	"regexp"
	"strings"
)

// Reference names an image in the store.
type Reference struct{ Name, Tag string }

func (r Reference) String() string { return r.Name + ":" + r.Tag }

var (
	validName = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	// registryHost is a component with a dot or a port, as Docker has it.
	registryHost = regexp.MustCompile(`^(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\]):[0-9]+)$`)
	validTag     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// ParseReference reads an image reference as the kubelet writes it. Registry hosts and digest are dropped: name and tag
// decide, and no tag means latest. Docker's implied library/ goes with its registry.
func ParseReference(s string) (Reference, error) {
	rest, _, _ := strings.Cut(s, "@")
	tag := "latest"
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, tag = rest[:i], rest[i+1:]
	}
	for isHosted(rest) { // a mirror's path may hold the host that it mirrors; String must read as the same Reference
		_, rest, _ = strings.Cut(rest, "/")
		rest = strings.TrimPrefix(rest, "library/")
	}
	if !validName.MatchString(rest) || !validTag.MatchString(tag) {
		return Reference{}, fmt.Errorf("%q is not an image reference (name:tag)", s)
	}
	return Reference{Name: rest, Tag: tag}, nil
}

// isHosted tells whether a name begins with a registry's host.
func isHosted(name string) bool {
	host, _, ok := strings.Cut(name, "/")
	return ok && registryHost.MatchString(host)
}
