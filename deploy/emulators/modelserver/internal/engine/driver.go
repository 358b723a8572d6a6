package engine

import (
	"context"
	"sync"
	"time"

	"fairlead.dev/pkg/wake"
)

// maxStall is the maximum delay of a step for which the engine catches up. The engine's time excludes a longer delay, so that a
// stopped or starved process resumes at the same step, as a stopped model server would.
const maxStall = time.Second

// Driver runs an Engine in real time. One goroutine, in Run, wakes up at the end of each step; an idle engine uses no CPU. All
// methods are safe for concurrent use.
type Driver struct {
	mu     sync.Mutex
	engine *Engine
	origin time.Time // start of the engine's time
	wake   wake.Signal
}

// NewDriver returns a driver of an idle engine. The engine's time starts now.
func NewDriver(spec Spec) *Driver {
	return &Driver{engine: New(spec), origin: time.Now(), wake: wake.NewSignal()}
}

// Run runs each step when it is due, until ctx ends.
func (d *Driver) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due := timer.C
		if wait, busy := d.advance(); busy {
			timer.Reset(wait)
		} else {
			due = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-d.wake:
		}
	}
}

// Submit enqueues a request.
func (d *Driver) Submit(r *Request) error {
	d.mu.Lock()
	_, wasBusy := d.engine.Next()
	err := d.engine.Submit(d.now(), r)
	d.mu.Unlock()
	if !wasBusy {
		d.wake.Send()
	}
	return err
}

// Abort ends a request that has not ended yet.
func (d *Driver) Abort(r *Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Abort(d.now(), r)
}

// Progress returns the progress of a request.
func (d *Driver) Progress(r *Request) Progress {
	d.mu.Lock()
	defer d.mu.Unlock()
	return r.progress()
}

// Stats returns the current counters.
func (d *Driver) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Advance(d.now())
	return d.engine.Stats()
}

// SetSlowdown multiplies the time of steps by factor, from the next step on.
func (d *Driver) SetSlowdown(factor float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.SetSlowdown(factor)
}

// advance completes the steps that are due. It returns the time until the end of the current step, and whether there is one.
func (d *Driver) advance() (wait time.Duration, busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	d.engine.Advance(now)
	next, busy := d.engine.Next()
	return next - now, busy
}

// now returns the engine's time, which excludes stalls.
func (d *Driver) now() time.Duration {
	now := time.Since(d.origin)
	if due, busy := d.engine.Next(); busy && now-due > maxStall {
		d.origin = d.origin.Add(now - due)
		now = due
	}
	return now
}
