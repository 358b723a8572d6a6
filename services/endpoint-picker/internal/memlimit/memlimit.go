// Package memlimit tells Go's garbage collector how much memory the container has.
//
// Without it the heap may double before it is collected, over a limit that the kernel enforces by killing the process.
// With a soft limit (runtime/debug.SetMemoryLimit) collection becomes more frequent as the limit comes near. The limit is a
// share of the container's, as socket buffers of many open streams and the page cache count there as well and are not Go's.
// GOMEMLIMIT, where it is set, is left alone.
package memlimit

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// File is where a container finds its own limit (cgroup v2).
	File = "/sys/fs/cgroup/memory.max"

	variable   = "GOMEMLIMIT"
	unlimited  = "max"
	percentage = 90
)

// Set makes the soft limit a share of the limit in file, and returns it; zero if nothing was set, because there is no
// limit, or no such file, or GOMEMLIMIT says it all.
func Set(file string) (int64, error) {
	if os.Getenv(variable) != "" {
		return 0, nil
	}
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read memory limit: %w", err)
	}
	limit, err := share(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read memory limit of %s: %w", file, err)
	}
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	return limit, nil
}

// share returns the soft limit for a hard one, as the kernel writes it.
func share(text string) (int64, error) {
	if text == unlimited {
		return 0, nil
	}
	limit, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, err
	}
	return int64(min(limit, math.MaxInt64) / 100 * percentage), nil
}
