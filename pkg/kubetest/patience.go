package kubetest

import (
	"os"
	"strconv"
	"time"
)

// SlowEnv is the environment variable by which Patience is multiplied on a slow machine: a number of at least 1.
const SlowEnv = "FAIRLEAD_SLOW"

// Patience bounds every wait of a test that waits in real time. Only a test that fails waits that long. A test that must prove that
// something happens soon counts events instead, or moves the clock of a synctest bubble.
var Patience = scaledPatience(os.Getenv(SlowEnv))

func scaledPatience(slow string) time.Duration {
	const base = 2 * time.Minute
	if factor, err := strconv.ParseFloat(slow, 64); err == nil && factor > 1 {
		return time.Duration(factor * float64(base))
	}
	return base
}
