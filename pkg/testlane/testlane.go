// Package testlane lets a test of a long calculation run in two lanes (docs/testing.md): one repetition in `make test`, all of them in
// `make test-long`, which sets the build tag long.
package testlane

// Repetitions returns the number of repetitions of a calculation: short in the first lane, long with the build tag long.
func Repetitions(short, long int) int {
	if Long {
		return long
	}
	return short
}
