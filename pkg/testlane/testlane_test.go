package testlane_test

import (
	"testing"

	"fairlead.dev/pkg/testlane"
)

func TestRepetitions(t *testing.T) {
	t.Parallel()
	if got := testlane.Repetitions(1, 100); (got == 100) != testlane.Long {
		t.Errorf("%d repetitions, in the long lane: %t", got, testlane.Long)
	}
}
