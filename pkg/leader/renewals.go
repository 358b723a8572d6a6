package leader

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// renewals is a lock that notes when this replica renewed it.
type renewals struct {
	*resourcelock.LeaseLock

	last atomic.Pointer[time.Time] // nil: this replica does not hold the lock
}

// Create implements resourcelock.Interface.
func (r *renewals) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	begun := time.Now()
	err := r.LeaseLock.Create(ctx, record)
	r.noteRenewal(begun, &record, err)
	return err //nolint:wrapcheck // as the wrapped lock does
}

// Update implements resourcelock.Interface.
func (r *renewals) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	begun := time.Now()
	err := r.LeaseLock.Update(ctx, record)
	r.noteRenewal(begun, &record, err)
	return err //nolint:wrapcheck // as the wrapped lock does
}

// noteRenewal notes the beginning of a write that succeeded: the API server may have seen it then. A release is a record without a holder.
func (r *renewals) noteRenewal(begun time.Time, record *resourcelock.LeaderElectionRecord, err error) {
	switch {
	case err != nil:
	case record.HolderIdentity == r.Identity():
		r.last.Store(&begun)
	default:
		r.last.Store(nil)
	}
}

// renewalAge returns the time since the last renewal, negative without one. It is the longer of the times of the monotonic clock and of the
// wall clock: the monotonic one stands still while a virtual machine is suspended.
func (r *renewals) renewalAge() time.Duration {
	last := r.last.Load()
	if last == nil {
		return -1
	}
	return max(time.Since(*last), time.Now().Round(0).Sub(last.Round(0)), 0)
}
