package routing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// newSet returns the set of a rule: its members by their order, without those of weight 0. Sets of rules with the same backends in
// the same proportion are equal.
func newSet(members []Member) Set {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return a.compare(&b.Backend) })
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
		return Set{Key: "set", Name: emptySet}
	}
	s.Key = "set " + strings.Join(key, " ")
	first := s.Members[0]
	s.Name = nameFor(s.Key, fmt.Sprintf("%s-%s-%d", first.Namespace, first.Name, first.Port), '-')
	return s
}

// String returns kind, namespace, name and port.
func (b *Backend) String() string {
	return fmt.Sprintf("%s/%s/%s:%d", b.Kind, b.Namespace, b.Name, b.Port)
}

func (b *Backend) compare(other *Backend) int {
	return cmp.Or(cmp.Compare(b.Namespace, other.Namespace), cmp.Compare(b.Name, other.Name), cmp.Compare(b.Port, other.Port), cmp.Compare(b.Kind, other.Kind))
}

func greatestDivisor(a, b int32) int32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
