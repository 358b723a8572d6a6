package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Size is a number of bytes in the format of Kubernetes quantities: 32Mi, 500k, 1048576; also 32MiB.
type Size int

// String returns the size as a quantity.
func (s *Size) String() string { return resource.NewQuantity(int64(*s), resource.BinarySI).String() }

// Set parses a size.
func (s *Size) Set(text string) error {
	q, err := resource.ParseQuantity(strings.TrimSuffix(text, "B"))
	if err != nil {
		return fmt.Errorf("%.100q is not a size such as 32Mi, 500k or 1048576", text)
	}
	*s = Size(q.Value())
	return nil
}

// Type names the value in help.
func (*Size) Type() string { return "size" }
