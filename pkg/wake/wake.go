// Package wake wakes goroutines that wait for work.
package wake

// Signal wakes the goroutine that receives from it. Signals that come before it receives are one signal.
type Signal chan struct{}

// NewSignal returns a Signal.
func NewSignal() Signal { return make(Signal, 1) }

// Send sends the signal. It never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
