package lbapi

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Limits are the limits of a load balancer, and of the load balancers of a tenancy. Oracle raises them on request.
type Limits struct {
	BackendSets, Listeners, BackendsPerSet, Backends, RulesPerSet, Rules, PathRoutesPerSet, LoadBalancers int
}

// DefaultLimits returns the limits of a new tenancy. Sources disagree about the backends of all sets: 512 or 1024. The number of
// load balancers differs between tenancies.
func DefaultLimits() Limits {
	return Limits{
		BackendSets: 16, Listeners: 16, BackendsPerSet: 512, Backends: 512, RulesPerSet: 20, Rules: 50, PathRoutesPerSet: 20,
		LoadBalancers: 50,
	}
}

const (
	maxName = 32
	maxPort = 65535
	// maxText is the length of names and values that have no documented limit.
	maxText = 255
	// maxPath is the length of paths that have no documented limit.
	maxPath = 2048
	// maxObjects is the number of objects of a kind that has no documented limit.
	maxObjects = 100
)

var (
	plainName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	ruleName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// token is a token of RFC 9110: the name of a header, of a cookie or of a method.
	token = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
)

// check keeps the first error of a request.
type check struct{ err *Error }

// has requires a field to be there.
func (c *check) has(there bool, field string) { //nolint:revive // the flag is what is checked
	if !there {
		c.also(missing(field))
	}
}

// that requires a condition.
func (c *check) that(holds bool, format string, args ...any) { //nolint:revive // the flag is what is checked
	if !holds {
		c.also(invalid(format, args...))
	}
}

// limit requires a number to be within a limit of the service.
func (c *check) limit(n, limit int, name string) {
	if n > limit {
		c.also(Errorf(http.StatusBadRequest, CodeLimitExceeded, "The following service limits were exceeded: %s (%d)", name, limit))
	}
}

// also takes the error of a part, if there is one.
func (c *check) also(err *Error) {
	if c.err == nil {
		c.err = err
	}
}

// ocids requires OCIDs. The emulator has no other services: whether their objects exist is not checked.
func (c *check) ocids(field string, all []string) {
	c.that(len(all) <= maxObjects, "More than %d values of '%s'", maxObjects, field)
	for _, id := range all {
		c.that(strings.HasPrefix(id, "ocid1.") && len(id) <= maxText, "Invalid OCID '%.60s' in '%s'", id, field)
	}
}

// present refuses to create an object that exists already, and to update one that does not exist.
func present[T any](m map[string]*T, kind, name string, create bool) *Error {
	switch exists := m[name] != nil; {
	case create && exists:
		return Exists(kind, name)
	case !create && !exists:
		return NotFound(kind, name)
	}
	return nil
}

// Sorted returns the objects of a map in the order of their names.
func Sorted[T any](m map[string]*T) []*T {
	all := make([]*T, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[name])
	}
	return all
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
