//go:build !long

package testlane

// Long reports whether tests run in the lane of `make test-long`.
const Long = false
