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

// onlyFields returns an error if a field other than the known ones is set: it could change the answer. v is a pointer to a struct, and
// known are names of Go fields.
func onlyFields(v any, known ...string) error {
	s := reflect.ValueOf(v).Elem()
	for i := range s.NumField() {
		if name := s.Type().Field(i).Name; !s.Field(i).IsZero() && !slices.Contains(known, name) {
			return fmt.Errorf("field %s of %s: %w", name, s.Type().Name(), ErrNotModeled)
		}
	}
	return nil
}

// onlyMessageFields is onlyFields for a protobuf message. known are names from the proto file.
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

// matchesWhole reports whether a regular expression matches a whole text.
func matchesWhole(expression, text string) (bool, error) {
	re, err := compileRegexp("^(?:" + expression + ")$")
	if err != nil {
		return false, err
	}
	return re.MatchString(text), nil
}

// compileRegexp compiles a regular expression in Go's syntax, which RE2, Envoy and Traefik share. nginx uses PCRE, which selects the same
// one of several possible matches. Syntax that only PCRE supports is not modeled.
func compileRegexp(expression string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w: %w", expression, err, ErrNotModeled)
	}
	return re, nil
}

// expandGroups expands a replacement of nginx, in which "$1" stands for the text that group 1 matched. Any other use of "$" is not modeled.
// groups is a result of FindStringSubmatch.
func expandGroups(replacement string, groups []string) (string, error) {
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
