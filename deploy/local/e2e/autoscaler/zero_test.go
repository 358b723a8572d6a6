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

// TestZeroWithHPA is the quick start for zero with a HorizontalPodAutoscaler, which goes to zero and back itself.
func TestZeroWithHPA(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long form: a HorizontalPodAutoscaler looks each 15 s, and TestZeroWithoutAutoscaler has the rest")
	}
	s := newSleeper(t, 20*time.Second, stack.Options{Servers: 1})
	s.apply("adapter.yaml", "RULES", s.rules(), "RELIST", "5s")
	s.rolledOut("prometheus-adapter")
	s.quickStart("### Zero with a HorizontalPodAutoscaler")
	s.sleeps()
	out, _ := s.Kubectl(t.Context(), "get", "hpa", "qwen-h100", "-o", "yaml")
	t.Log(out)
	w := s.send(crowd)
	w.wakes()
	out, _ = s.Kubectl(t.Context(), "get", "hpa", "qwen-h100", "-o", "yaml")
	t.Log(out)
	w.answered()
	s.sleeps()
}
