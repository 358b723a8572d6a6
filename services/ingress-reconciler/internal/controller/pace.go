package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

// Each write of a condition wakes OME, which then reconciles the whole service: OME 1.2 does about two reconciles a second, one at a
// time, and a user's change waits behind them.
const (
	// settleTime is how long a state that will change by itself, or another message, must last before it is written. Gateways accept
	// a route within a second.
	settleTime = 2 * time.Second
	// messageInterval is the time between two writes of conditions of which only the message has changed.
	messageInterval = 500 * time.Millisecond
)

// conditionPacer decides when conditions are written:
//
//	change of the condition                        written
//	status or reason, not waiting                  at once
//	status or reason, to a state that waits        after settleTime, unless it has changed again
//	the message alone                              likewise, and one service at a time
type conditionPacer struct {
	serviceStates[time.Time] // due times: the wait ends when the stored condition is right

	last time.Time // the latest due time of a message
}

// writeDelay returns how long to wait before a condition is written. A write at once ends the wait for an earlier state.
func (p *conditionPacer) writeDelay(name cache.ObjectName, before *isvc.Condition, next isvc.Condition, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	message := before != nil && before.Status == next.Status && before.Reason == next.Reason
	if !message && !isWaiting(next) {
		delete(p.byName, name)
		return 0
	}
	due, found := p.byName[name]
	if !found {
		due = now.Add(settleTime)
		if earliest := p.last.Add(messageInterval); message && due.Before(earliest) {
			due = earliest
		}
		if message {
			p.last = due
		}
		p.byName[name] = due
	}
	if rest := due.Sub(now); rest > 0 {
		return rest
	}
	delete(p.byName, name)
	return 0
}

// isWaiting reports whether a condition says that a component, OME or a data plane is expected to act.
func isWaiting(c isvc.Condition) bool {
	return c.Status == metav1.ConditionUnknown || c.Reason == plan.ReasonServiceNotFound || c.Reason == plan.ReasonComponentNotReady
}

// clearAll ends all waits.
func (p *conditionPacer) clearAll() {
	p.serviceStates.clearAll()
	p.last = time.Time{}
}
