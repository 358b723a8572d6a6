// Package memlimit sets the soft memory limit of the Go runtime from the memory limit of the container.
//
// Without it the heap may grow to twice the live objects and exceed the limit at which the kernel kills the process. With a
// soft limit the garbage collector runs more often near the limit. The soft limit is 90 % of the container's: the rest is
// for memory outside of Go, such as socket buffers and the page cache. With 95 % many open connections could exceed the
// limit; 80 % would collect garbage while a fifth of the memory is unused.
package memlimit

import (
	"errors"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
)

const ratio = 0.9

// Set sets the soft memory limit and logs it. It does nothing if GOMEMLIMIT is set, or if there is no limit.
func Set(log *zap.Logger) { setLimit(log, memlimit.FromCgroup) }

func setLimit(log *zap.Logger, limitOfContainer memlimit.Provider) {
	limit, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithProvider(limitOfContainer), memlimit.WithRatio(ratio))
	switch {
	case errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrCgroupsNotSupported): // not in a container
	case err != nil:
		log.Warn("Could not set the soft memory limit, set GOMEMLIMIT", zap.Error(err))
	case limit > 0:
		log.Info("Set the soft memory limit", zap.Int64("bytes", limit))
	}
}
