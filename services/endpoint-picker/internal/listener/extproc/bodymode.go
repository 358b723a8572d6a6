package extproc

import (
	"fmt"
	"slices"
	"strings"
)

// bodyModeNames are the values of the flag, by mode.
var bodyModeNames = []string{FullDuplex: "full-duplex", Chunked: "streamed", Buffered: "buffered", None: "none"}

// String returns the mode's name.
func (m *BodyMode) String() string { return bodyModeNames[*m] }

// Set parses the name of a mode.
func (m *BodyMode) Set(name string) error {
	mode := slices.Index(bodyModeNames, name)
	if mode < 0 {
		return fmt.Errorf("%q is not one of %s", name, strings.Join(bodyModeNames, ", "))
	}
	*m = BodyMode(mode)
	return nil
}

// Type names the value in help.
func (*BodyMode) Type() string { return "mode" }
