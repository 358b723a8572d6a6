package pick

import (
	"sync/atomic"
	"time"
)

const (
	// durationWeight is the weight of the newest answer in the usual duration.
	durationWeight = 1.0 / 16
	// firstDuration is used before the first answer.
	firstDuration = 10 * time.Second
	// maxDuration limits how long a failed request counts.
	maxDuration = 30 * time.Second
)

// An averageDuration is the average time from a pick to the end of the answer. Of two concurrent observations one may be lost.
type averageDuration struct{ nanoseconds atomic.Int64 }

func (d *averageDuration) addSample(took time.Duration) {
	last := d.nanoseconds.Load()
	if last == 0 {
		last = int64(took)
	}
	d.nanoseconds.Store(max(last+int64(durationWeight*float64(int64(took)-last)), 1))
}

func (d *averageDuration) average() time.Duration {
	if n := d.nanoseconds.Load(); n > 0 {
		return min(time.Duration(n), maxDuration)
	}
	return firstDuration
}
