package routing

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// newSet returns the set of a rule: its members by their order, without those of weight 0. Sets of rules with the same backends in
// the same proportion are equal.
func newSet(members []Member) Set {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return a.compareTo(&b.Backend) })
	var s Set
	divisor := int32(0)
	for _, m := range members {
		if m.Weight <= 0 {
			continue
		}
		if n := len(s.Members); n > 0 && s.Members[n-1].Backend == m.Backend {
			s.Members[n-1].Weight += m.Weight
			continue
		}
		s.Members = append(s.Members, m)
	}
	for _, m := range s.Members {
		divisor = greatestDivisor(divisor, m.Weight)
	}
	var key []string
	for i := range s.Members {
		m := &s.Members[i]
		m.Weight /= divisor
		key = append(key, fmt.Sprintf("%s=%d", m.String(), m.Weight))
	}
	if len(key) == 0 {
		return Set{Key: EmptyKey, Name: EmptySet}
	}
	s.setKey("set " + strings.Join(key, " "))
	return s
}

// setKey changes the key of a set, and the name that follows from it.
func (s *Set) setKey(key string) {
	if len(s.Members) == 0 {
		return
	}
	first := s.Members[0]
	s.Key, s.Name = key, nameFor(key, fmt.Sprintf("%s-%s-%d", first.Namespace, first.Name, first.Port), '-')
}

// backendsKey returns the key of a set that is the only one with its backends.
func (s *Set) backendsKey() string {
	key := EmptyKey
	for i := range s.Members {
		key += " " + s.Members[i].String()
	}
	return key
}

// EmptyKey is the key of the set without backends.
const EmptyKey = "set"

// DefaultKey is the key of the set for requests that no rule matches. Without a Fallback, such requests get the set without backends.
const DefaultKey = "default"

// KeyOf returns the key of the set for the members of a rule, if no older rule has the same backends with other weights.
func KeyOf(members []Member) string {
	s := newSet(members)
	return s.backendsKey()
}

// String returns kind, namespace, name and port.
func (b *Backend) String() string {
	return fmt.Sprintf("%s/%s/%s:%d", b.Kind, b.Namespace, b.Name, b.Port)
}

func (b *Backend) compareTo(other *Backend) int {
	return cmp.Or(cmp.Compare(b.Namespace, other.Namespace), cmp.Compare(b.Name, other.Name), cmp.Compare(b.Port, other.Port),
		cmp.Compare(b.Kind, other.Kind))
}

func greatestDivisor(a, b int32) int32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// SetOf returns the name of the backend set for members of a rule, empty if no rule with them was admitted.
func (d *Desired) SetOf(members []Member) string {
	want := newSet(members)
	for i := range d.Sets {
		if s := &d.Sets[i]; slices.Equal(s.Members, want.Members) && len(s.Members) > 0 {
			return s.Name
		}
	}
	return ""
}

// memberText is a backend in the key of a set: kind, namespace, name and port, and its weight, if the backends have several.
var memberText = regexp.MustCompile(`^([^/]*)/([^/]*)/([^/:]*):(\d+)(?:=(\d+))?$`)

// ParseSetKey returns the backends of a key of a set, with the weights that it has, or 1. It returns false for another text.
func ParseSetKey(key string) ([]Member, bool) {
	rest, found := strings.CutPrefix(key, "set")
	if !found {
		return nil, false
	}
	var members []Member
	for _, text := range strings.Fields(rest) {
		m := memberText.FindStringSubmatch(text)
		if m == nil {
			return nil, false
		}
		port, invalidPort := strconv.ParseInt(m[4], 10, 32)
		weight, invalidWeight := strconv.ParseInt(cmp.Or(m[5], "1"), 10, 32)
		if invalidPort != nil || invalidWeight != nil {
			return nil, false
		}
		members = append(members, Member{
			Backend: Backend{Kind: m[1], Namespace: m[2], Name: m[3], Port: int32(port)}, Weight: int32(weight),
		})
	}
	return members, true
}
