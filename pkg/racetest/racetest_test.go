package racetest

import "testing"

// TestSkipCalculation checks that a calculation runs if, and only if, there is no race detector.
func TestSkipCalculation(t *testing.T) {
	t.Parallel()
	ran := false
	t.Run("calculation", func(t *testing.T) {
		SkipCalculation(t)
		ran = true
	})
	if ran == enabled {
		t.Errorf("ran: %t, with the race detector: %t", ran, enabled)
	}
}
