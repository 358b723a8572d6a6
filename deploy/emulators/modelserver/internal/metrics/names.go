package metrics

import "fmt"

// Names is the generation of metric names on a page.
type Names string

// The generations. vLLM removed the gpu_ names in November 2025.
const (
	NewNames  Names = "new"  // of vLLM 0.32
	OldNames  Names = "old"  // of vLLM 0.9 and before
	BothNames Names = "both" // of the versions in between
)

func (n Names) recent() bool { return n != OldNames }

func (n Names) old() bool { return n != NewNames }

// Set implements pflag.Value.
func (n *Names) Set(s string) error {
	switch Names(s) {
	case NewNames, OldNames, BothNames:
		*n = Names(s)
		return nil
	default:
		return fmt.Errorf("%q is not %s, %s or %s", s, NewNames, OldNames, BothNames)
	}
}

// Type implements pflag.Value.
func (*Names) Type() string { return "names" }

// String implements pflag.Value.
func (n *Names) String() string { return string(*n) }
