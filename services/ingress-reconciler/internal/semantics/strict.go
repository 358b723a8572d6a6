package semantics

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// onlyFields returns an error for a struct with other fields than the known ones: they could change the answer. The struct is
// given by a pointer; known are names of Go fields.
func onlyFields(v any, known ...string) error {
	s := reflect.ValueOf(v).Elem()
	for i := range s.NumField() {
		if name := s.Type().Field(i).Name; !s.Field(i).IsZero() && !slices.Contains(known, name) {
			return fmt.Errorf("field %s of %s: %w", name, s.Type().Name(), ErrNotModeled)
		}
	}
	return nil
}

// onlyMessageFields is onlyFields for a protobuf message; known are names of its proto file.
func onlyMessageFields(m proto.Message, known ...string) error {
	var found []string
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(known, string(f.Name())) {
			found = append(found, string(f.Name()))
		}
		return true
	})
	slices.Sort(found)
	if len(found) > 0 {
		return fmt.Errorf("field %s of %s: %w", strings.Join(found, ", "), m.ProtoReflect().Descriptor().Name(), ErrNotModeled)
	}
	return nil
}

// matchesWhole reports whether a regular expression matches all of a text.
func matchesWhole(expression, text string) (bool, error) {
	re, err := compile("^(?:" + expression + ")$")
	if err != nil {
		return false, err
	}
	return re.MatchString(text), nil
}

// compile compiles a regular expression in Go's syntax, which is that of RE2, Envoy and Traefik. nginx has PCRE, which prefers
// the same one of several matches; what only PCRE knows is not modeled.
func compile(expression string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w: %w", expression, err, ErrNotModeled)
	}
	return re, nil
}

// expand returns a replacement of nginx, in which "$1" stands for what group 1 has matched. Any other use of "$" is not
// modeled. groups is as of FindStringSubmatch.
func expand(replacement string, groups []string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(replacement); i++ {
		if replacement[i] != '$' {
			b.WriteByte(replacement[i])
			continue
		}
		i++
		if i == len(replacement) || replacement[i] < '0' || '9' < replacement[i] {
			return "", fmt.Errorf("replacement %q: %w", replacement, ErrNotModeled)
		}
		if n := int(replacement[i] - '0'); n < len(groups) {
			b.WriteString(groups[n])
		}
	}
	return b.String(), nil
}
