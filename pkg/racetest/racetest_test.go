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

func TestFewer(t *testing.T) {
	t.Parallel()
	if got := Fewer(100, 1); (got == 1) != enabled {
		t.Errorf("%d repetitions, with the race detector: %t", got, enabled)
	}
}
