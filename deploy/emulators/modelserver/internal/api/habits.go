package api

import "time"

// Habits are the ways in which a real vLLM answers, one by one, so that a test can turn each of them on alone.
type Habits struct {
	ReadyPath           bool          // answer /ready, which vLLM does not have
	PromptTokensDetails bool          // tell in usage how much of the prompt was cached
	CoalesceEvents      bool          // tokens that are made while the last event is on its way share the next one
	StreamInterval      int           // tokens of one event, after the first token; the last event has the rest
	PageTime            time.Duration // how long the metrics page keeps the event loop busy
}

// eventLoop is the one thread of vLLM's API server: whoever occupies it delays all others.
type eventLoop chan struct{}

func newEventLoop() eventLoop { return make(eventLoop, 1) }

// pass waits until nobody occupies the loop.
func (l eventLoop) pass() { l.occupy(0) }

// occupy waits for the loop and keeps it for a while.
func (l eventLoop) occupy(d time.Duration) {
	l <- struct{}{}
	if d > 0 {
		time.Sleep(d)
	}
	<-l
}
