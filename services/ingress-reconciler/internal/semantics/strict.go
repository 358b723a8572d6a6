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

// onlyFields refuses a struct that has fields set of which nothing is known here: to pass over one could make the answer
// wrong. The struct is given by a pointer; known are names of Go fields.
func onlyFields(v any, known ...string) error {
	s := reflect.ValueOf(v).Elem()
	for i := range s.NumField() {
		if name := s.Type().Field(i).Name; !s.Field(i).IsZero() && !slices.Contains(known, name) {
			return fmt.Errorf("field %s of %s: %w", name, s.Type().Name(), ErrUnsupported)
		}
	}
	return nil
}

// onlyMessageFields is onlyFields for a message; known are names as they are in its proto file.
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
		return fmt.Errorf("field %s of %s: %w", strings.Join(found, ", "), m.ProtoReflect().Descriptor().Name(), ErrUnsupported)
	}
	return nil
}

// matchesWhole reports whether an expression of RE2 matches all of a text.
func matchesWhole(expression, text string) (bool, error) {
	re, err := compile("^(?:" + expression + ")$")
	if err != nil {
		return false, err
	}
	return re.MatchString(text), nil
}

// compile takes expressions in Go's syntax, which is that of RE2, of Envoy and Traefik. PCRE, of nginx and HAProxy, prefers the
// same one of several matches; what only PCRE knows is refused.
func compile(expression string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w: %w", expression, err, ErrUnsupported)
	}
	return re, nil
}

// expand returns a replacement in which marker and a digit stand for what a group has matched: "$1" of nginx, `\1` of HAProxy
// and Envoy. Any other use of the marker is refused. groups is as of FindStringSubmatch.
func expand(replacement string, marker byte, groups []string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(replacement); i++ {
		if replacement[i] != marker {
			b.WriteByte(replacement[i])
			continue
		}
		i++
		if i == len(replacement) || replacement[i] < '0' || '9' < replacement[i] {
			return "", fmt.Errorf("replacement %q: %w", replacement, ErrUnsupported)
		}
		if n := int(replacement[i] - '0'); n < len(groups) {
			b.WriteString(groups[n])
		}
	}
	return b.String(), nil
}
