package variantautoscaler_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// defaultTolerance is that of kube-controller-manager (--horizontal-pod-autoscaler-tolerance).
const defaultTolerance = 0.1

// hpaWants returns what a HorizontalPodAutoscaler wants for an external metric with the target AverageValue 1: the sum of all series that it
// gets, unless that differs too little from the current replicas. Values are in thousandths, as in its API.
func hpaWants(series []int, current int, tolerance float64) int {
	usage := 0
	for _, value := range series {
		usage += 1000 * value
	}
	ratio := float64(usage) / (1000 * float64(current))
	if 1-tolerance <= ratio && ratio <= 1+tolerance {
		return current
	}
	return int(math.Ceil(float64(usage) / 1000))
}

// TestTolerance shows which changes a HorizontalPodAutoscaler ignores: with the default, those of up to a tenth of the current replicas, so
// none below 10 replicas. With the tolerance of the examples, none.
func TestTolerance(t *testing.T) {
	t.Parallel()
	ignored := 0
	for desired := 1; desired <= 200; desired++ {
		for current := 1; current <= 200; current++ {
			if got := hpaWants([]int{desired}, current, 0); got != desired {
				t.Errorf("tolerance 0: %d of %d replicas: got %d", desired, current, got)
			}
			want := desired
			if change := desired - current; 10*max(change, -change) <= current {
				want = current
			}
			if want != desired {
				ignored++
				assert.GreaterOrEqual(t, current, 10)
			}
			if got := hpaWants([]int{desired}, current, defaultTolerance); got != want {
				t.Errorf("tolerance 10 %%: %d of %d replicas: got %d, want %d", desired, current, got, want)
			}
		}
	}
	assert.Equal(t, 3657, ignored, "of 39,800 changes")
}

// TestToleranceUnderARamp follows a load that grows, and falls, by one replica at a time.
func TestToleranceUnderARamp(t *testing.T) {
	t.Parallel()
	ramp := func(tolerance float64) (missing, spare int) {
		current := 1
		follow := func(desired int) {
			current = hpaWants([]int{desired}, current, tolerance)
			missing, spare = max(missing, desired-current), max(spare, current-desired)
		}
		for desired := 1; desired <= 200; desired++ {
			follow(desired)
		}
		for desired := 200; desired >= 1; desired-- {
			follow(desired)
		}
		return missing, spare
	}
	missing, spare := ramp(0)
	assert.Zero(t, missing)
	assert.Zero(t, spare)
	missing, spare = ramp(defaultTolerance)
	assert.Equal(t, 16, missing, "replicas that the load needs and does not get")
	assert.Equal(t, 18, spare, "replicas that the load does not need anymore")
}

func TestTwoSeriesAddUp(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 24, hpaWants([]int{12, 12}, 12, 0), "so that the rule of the adapter takes the maximum, and only the leader has series")
	assert.Zero(t, hpaWants([]int{0}, 12, 0), "so that a variant without a decision has no series")
}

// TestFromZero is the start of a target without replicas.
func TestFromZero(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 3, hpaWants([]int{3}, 0, defaultTolerance))
}
