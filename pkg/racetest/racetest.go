// Package racetest keeps tests with the race detector short. Simulations take 10 to 15 times as long with it, and one goroutine has no
// races. `make test` runs the packages that import racetest once more without the race detector.
package racetest

import "testing"

// SkipCalculation skips a test with the race detector. Call it in tests that only compute, in one goroutine at a time, and take
// seconds. A shorter test of the same code has to run with the race detector.
func SkipCalculation(t testing.TB) {
	t.Helper()
	if enabled {
		t.Skip("a long calculation: it runs without the race detector")
	}
}

// Fewer returns the number of repetitions of a test: fewer with the race detector, which finds the races of the first ones.
func Fewer(repetitions, fewer int) int {
	if enabled {
		return fewer
	}
	return repetitions
}
