package extproc

import (
	"fmt"
	"strings"
)

// bodyModeNames are the values of the flag, by mode.
var bodyModeNames = []string{FullDuplex: "full-duplex", Chunked: "streamed", Buffered: "buffered", None: "none"}

// String returns the mode's name.
func (m *BodyMode) String() string { return bodyModeNames[*m] }

// Set parses the name of a mode.
func (m *BodyMode) Set(name string) error {
	for mode, n := range bodyModeNames {
		if n == name {
			*m = BodyMode(mode)
			return nil
		}
	}
	return fmt.Errorf("%q is not one of %s", name, strings.Join(bodyModeNames, ", "))
}

// Type names the value in help.
func (*BodyMode) Type() string { return "mode" }
