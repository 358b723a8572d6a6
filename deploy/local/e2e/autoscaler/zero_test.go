package autoscaler_test

import (
	"testing"
	"time"

	"fairlead.dev/deploy/local/e2e/stack"
)

// TestZeroWithoutAutoscaler is the quick start for zero without an autoscaler: requests wait for a model without replicas, which the program
// learns from the picker. It starts one, and, in the long form, removes it when there are no more requests.
func TestZeroWithoutAutoscaler(t *testing.T) {
	t.Parallel()
	const heading = "### Zero without an autoscaler"
	if testing.Short() {
		s := newSleeper(t, 5*time.Second, stack.Options{})
		s.opens()
		w := s.send(crowd) // before there is an autoscaler
		s.quickStart(heading)
		w.wakes()
		w.answered()
		return
	}
	s := newSleeper(t, 20*time.Second, stack.Options{Servers: 1})
	s.quickStart(heading)
	s.sleeps()
	w := s.send(crowd)
	w.wakes()
	w.answered()
	s.sleeps()
}
