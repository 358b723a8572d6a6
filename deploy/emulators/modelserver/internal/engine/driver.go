package engine

import (
	"context"
	"sync"
	"time"
)

// maxStall is how late a step may be carried out before the engine's time stands still instead: a process that was
// stopped, or starved for that long, goes on where it was, as a stopped model server would.
const maxStall = time.Second

// Driver runs an Engine in real time. One goroutine, in Run, wakes up at the end of each step; an idle engine costs
// nothing. All methods are safe for concurrent use.
type Driver struct {
	mu     sync.Mutex
	engine *Engine
	origin time.Time // when the engine's time was 0
	wake   chan struct{}
}

// NewDriver makes a driver of an idle engine whose time starts now.
func NewDriver(spec Spec) *Driver {
	return &Driver{engine: New(spec), origin: time.Now(), wake: make(chan struct{}, 1)}
}

// Run carries out steps as they fall due until ctx ends.
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
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return err
}

// Abort ends a request, unless it has ended.
func (d *Driver) Abort(r *Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Abort(d.now(), r)
}

// Progress returns how far a request has come.
func (d *Driver) Progress(r *Request) Progress {
	d.mu.Lock()
	defer d.mu.Unlock()
	return r.progress()
}

// Stats returns the counters as they are now.
func (d *Driver) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Advance(d.now())
	return d.engine.Stats()
}

// SetSlowdown makes the steps from the next one on take factor times as long.
func (d *Driver) SetSlowdown(factor float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.SetSlowdown(factor)
}

// advance carries out what is due and returns how long it is until there is more.
func (d *Driver) advance() (wait time.Duration, busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	d.engine.Advance(now)
	next, busy := d.engine.Next()
	return next - now, busy
}

// now is the engine's time, of which a stall is taken out.
func (d *Driver) now() time.Duration {
	now := time.Since(d.origin)
	if due, busy := d.engine.Next(); busy && now-due > maxStall {
		d.origin = d.origin.Add(now - due)
		now = due
	}
	return now
}
