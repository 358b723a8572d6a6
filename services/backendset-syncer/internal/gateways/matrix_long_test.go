//go:build long

package gateways

import (
	"testing"

	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

// TestModes lives in every mode of the load balancer.
func TestModes(t *testing.T) {
	t.Parallel()
	for name, modes := range ocilbtest.AllModes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, modes, testLife)
		})
	}
}
