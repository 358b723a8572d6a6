// Package racetest keeps long calculations out of the tests with the race detector. Simulations in one goroutine take 10 to 15 times
// as long there, and have no races. `make test` runs the packages that call SkipCalculation once more without the race detector.
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
