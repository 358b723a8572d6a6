package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startDriver runs a driver until the end of the test. Call it in a synctest bubble: the driver uses the clock of the bubble.
func startDriver(t *testing.T) *Driver {
	t.Helper()
	d := NewDriver(testSpec)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return d
}

func TestDriverHandsOutTokensWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := startDriver(t)
		time.Sleep(time.Hour)
		start := time.Now()
		var at []time.Duration
		r := newRequest(text(1, 50), 3)
		r.Notify = func() { at = append(at, time.Since(start)) }
		require.NoError(t, d.Submit(r))
		time.Sleep(time.Second)
		want := []time.Duration{15 * ms, 26 * ms, 37 * ms}
		assert.Equal(t, want, d.Progress(r).Times)
		assert.Equal(t, want, at)
	})
}

func TestIdleDriverSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := startDriver(t)
		require.NoError(t, d.Submit(newRequest(text(1, 10), 2)))
		time.Sleep(time.Second)
		steps := d.Stats().Steps
		start := time.Now()
		synctest.Wait() // returns when Run is blocked
		time.Sleep(24 * time.Hour)
		assert.Equal(t, 24*time.Hour, time.Since(start))
		assert.Equal(t, steps, d.Stats().Steps)
	})
}

func TestDriverAborts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := startDriver(t)
		r := newRequest(text(1, 50), 100)
		require.NoError(t, d.Submit(r))
		time.Sleep(20 * ms)
		d.Abort(r)
		p := d.Progress(r)
		assert.Equal(t, Progress{Made: 1, Times: []time.Duration{15 * ms}, Ended: true, Reason: ReasonAbort}, p)
		assert.Zero(t, d.Stats().BlocksUsed)
	})
}

func TestSlowdownTakesEffectWithTheNextStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := startDriver(t)
		r := newRequest(text(1, 50), 3)
		require.NoError(t, d.Submit(r))
		time.Sleep(20 * ms) // in the second step
		d.SetSlowdown(4)
		time.Sleep(time.Second)
		assert.Equal(t, []time.Duration{15 * ms, 26 * ms, 70 * ms}, d.Progress(r).Times)
	})
}

// A stopped process must resume at the same step, instead of delivering all tokens of the stall at once.
func TestStallStopsTheEnginesTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := NewDriver(testSpec) // stalled: the test does not call Run
		r := newRequest(text(1, 50), 100)
		require.NoError(t, d.Submit(r))
		time.Sleep(500 * ms)
		d.Stats()
		assert.Equal(t, 45, d.Progress(r).Made, "the engine catches up after a short delay")
		time.Sleep(20 * time.Second)
		d.Stats()
		assert.Equal(t, 46, d.Progress(r).Made, "after a stall only the current step ends")
	})
}
