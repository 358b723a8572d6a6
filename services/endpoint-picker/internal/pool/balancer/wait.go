package balancer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/pool/queue"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const (
	// usualBatch is the number of requests that a server runs at once, while it is not known: the default of vLLM on most accelerators. At half
	// the value, a large server idles until its first requests end. At double, a small one that becomes ready first gets a queue of its own
	// before the second one is ready.
	usualBatch = 256
	// recheck is the time after which waiting requests are looked at although nothing happened here: other replicas of the picker send
	// requests to the same servers. At half the value, a pool without servers costs twice as much. At double, requests may wait for longer.
	recheck = 50 * time.Millisecond
	// answerMargin is the part of a time limit that is left for the refusal to reach the client. At half the value, a slow network
	// loses it. At double, requests wait for a second less than they could.
	answerMargin = time.Second
)

// headerTimeout is the time that Envoy waits for an answer, in milliseconds, on requests to a server behind it.
const headerTimeout = "x-envoy-expected-rq-timeout-ms"

// leaving counts the requests that have left the queue, and are not counted on an endpoint yet. Whoever lets requests leave holds mu.
type leaving struct {
	mu    sync.Mutex
	count int
}

// SetEndpoints lets waiting requests leave for new endpoints.
func (b *Balancer) SetEndpoints([]*endpoint.Endpoint) { b.dispatch() }

// Run lets waiting requests leave until ctx ends.
func (b *Balancer) Run(ctx context.Context) {
	for {
		entered := b.queue.Changed()
		b.dispatch()
		var again <-chan time.Time
		if b.queue.Len() > 0 {
			entered, again = nil, time.After(recheck)
		}
		select {
		case <-ctx.Done():
			return
		case <-entered:
		case <-again:
		}
	}
}

// dispatch lets as many waiting requests leave as the endpoints are expected to take at once.
func (b *Balancer) dispatch() {
	if b.queue.Len() == 0 {
		return
	}
	b.leaving.mu.Lock()
	defer b.leaving.mu.Unlock()
	b.leaving.count += b.queue.Grant(b.room() - b.leaving.count)
}

// room returns how many more requests the endpoints are expected to take at once. Ejected ones take none, unless all are.
func (b *Balancer) room() int {
	s, now := b.snapshots.Snapshot(), b.clock.Now()
	someUsable, usable, all := false, 0.0, 0.0
	for _, i := range b.eligibleOf(s, b.configs.Current().Profile) {
		e := s.Endpoints[i]
		batch := estimate.ServerOf(e).BatchCapacity()
		if batch == 0 {
			batch = usualBatch
		}
		room := max(batch-e.Load().Requests, 0)
		if all += room; e.Health().Usable(now) {
			someUsable, usable = true, usable+room
		}
	}
	if someUsable {
		return int(usable)
	}
	return int(all)
}

// arrive ends the time in which a request that left the queue is counted on no endpoint.
func (m *memory) arrive() {
	if m.leaving {
		m.leaving = false
		b := m.balancer
		b.leaving.mu.Lock()
		b.leaving.count--
		b.leaving.mu.Unlock()
	}
}

// hasServers reports whether there are endpoints that the profile may choose.
func (m *memory) hasServers() bool {
	m.snapshot = m.balancer.snapshots.Snapshot()
	return m.snapshot.Err == nil && len(m.balancer.eligibleOf(m.snapshot, m.config.Profile)) > 0
}

// wait returns when there are endpoints, and no request has waited for longer or with a higher priority; or an error. A request that has
// waited for as long as it may, or finds no place in the queue, is placed if there is an endpoint.
func (m *memory) wait(ctx context.Context) error {
	b, x := m.balancer, m.exchange
	ready := m.hasServers()
	if err := m.snapshot.Err; err != nil {
		return fmt.Errorf("%w: %w", scheduling.ErrNoEndpoints, err)
	}
	if ready && b.queue.Len() == 0 {
		return nil
	}
	limits := m.config.Waiting
	if limits.TTL = min(limits.TTL, patience(ctx, x)); limits.TTL <= 0 {
		return nil
	}
	r := queue.Request{
		Labels:  queue.Labels{Model: x.Model, Target: x.Target, Fairness: x.Fairness, Priority: x.Priority},
		Arrived: x.Arrived, Bytes: m.size(),
	}
	var err error
	for err == nil {
		if err = b.queue.Wait(ctx, r, limits); err == nil {
			if m.leaving = true; m.hasServers() {
				break
			}
			m.arrive() // the endpoints have gone again
		}
	}
	x.Waited = b.clock.Now().Sub(x.Arrived)
	m.request.Now = x.Dispatched()
	if err != nil && (ctx.Err() != nil || !m.hasServers()) {
		x.Queue = outcomeOf(err)
		return fmt.Errorf("%w: %w", scheduling.ErrNoEndpoints, err)
	}
	x.Queue = exchange.Dispatched
	return nil
}

// size returns the memory that the request holds while it waits, in bytes.
func (m *memory) size() int64 {
	const hash = 8
	return int64(len(m.exchange.Incoming.Body) + hash*len(m.chain.Hashes))
}

// patience returns how long the request may wait for an endpoint, as far as its sender says.
func patience(ctx context.Context, x *exchange.Exchange) time.Duration {
	const unlimited = 1<<63 - 1
	limit := time.Duration(unlimited)
	if deadline, has := ctx.Deadline(); has {
		limit = time.Until(deadline)
	}
	if ms, err := strconv.ParseUint(x.Incoming.Headers.Get(headerTimeout), 10, 32); err == nil && ms > 0 {
		limit = min(limit, time.Duration(ms)*time.Millisecond)
	}
	limit -= answerMargin
	if x.MaxWait != nil {
		limit = min(limit, *x.MaxWait)
	}
	return limit
}

// outcomeOf returns the outcome of a request that left the queue without a grant.
func outcomeOf(err error) exchange.QueueOutcome {
	switch {
	case errors.Is(err, queue.ErrFull):
		return exchange.RejectedCapacity
	case errors.Is(err, queue.ErrExpired):
		return exchange.EvictedNoEndpoints
	case errors.Is(err, queue.ErrDisplaced):
		return exchange.EvictedOther
	}
	return exchange.EvictedContextCancelled
}
