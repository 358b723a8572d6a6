package api

import "time"

// Habits select the behavior of a real vLLM. Each field is independent, so that a test can enable one alone.
type Habits struct {
	ReadyPath           bool          // serve /ready, which vLLM does not have
	PromptTokensDetails bool          // report the number of cached prompt tokens in usage
	CoalesceEvents      bool          // one event for all tokens that the engine makes while the last event is sent
	StreamInterval      int           // tokens of one event, after the first token; the last event has the rest
	RoleFirst           bool          // the chunk with the role of a chat answer comes before the prefill, not with the first token
	KeepAliveInterval   time.Duration // between comments of a stream before its first token; 0: none
	PageTime            time.Duration // time for which the metrics page occupies the event loop
}

// eventLoop is the single thread of vLLM's API server. A request that occupies it delays all other requests.
type eventLoop chan struct{}

func newEventLoop() eventLoop { return make(eventLoop, 1) }

// pass waits until the loop is free.
func (l eventLoop) pass() { l.occupy(0) }

// occupy waits until the loop is free, and occupies it for a time.
func (l eventLoop) occupy(d time.Duration) {
	l <- struct{}{}
	if d > 0 {
		time.Sleep(d)
	}
	<-l
}
