package pick

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const (
	// usualBatch is the number of requests that a server runs at once, while it is not known: the default of vLLM on most accelerators.
	usualBatch = 256
	// recheckInterval is the time after which waiting requests are looked at although nothing happened here: other replicas of the picker
	// send requests to the same servers.
	recheckInterval = 50 * time.Millisecond
	// answerMargin is the part of a time limit that is left for the refusal to reach the client.
	answerMargin = time.Second
)

// dispatchedCount counts the requests that have left the queue, and are not counted on an endpoint yet. Whoever lets requests leave holds
// mu.
type dispatchedCount struct {
	mu    sync.Mutex
	count int
}

// SetEndpoints lets waiting requests leave for new endpoints.
func (b *Balancer) SetEndpoints([]*endpoint.Endpoint) { b.dispatchWaiting() }

// Run lets waiting requests leave until ctx ends, and then refuses those that are left.
func (b *Balancer) Run(ctx context.Context) {
	defer b.queue.Close()
	for {
		entered := b.queue.ChangeSignal()
		b.dispatchWaiting()
		var again <-chan time.Time
		if b.queue.Len() > 0 {
			entered, again = nil, time.After(recheckInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-entered:
		case <-again:
		}
	}
}

// dispatchWaiting lets as many waiting requests leave as the endpoints are expected to take at once.
func (b *Balancer) dispatchWaiting() {
	if b.queue.Len() == 0 {
		return
	}
	b.dispatched.mu.Lock()
	defer b.dispatched.mu.Unlock()
	b.dispatched.count += b.queue.GrantNext(b.freeSlots() - b.dispatched.count)
}

// freeSlots returns how many more requests the endpoints are expected to take at once. Ejected ones take none, unless all are.
func (b *Balancer) freeSlots() int {
	s, now := b.params.Snapshot(), b.params.Clock.Now()
	someUsable, usable, all := false, 0.0, 0.0
	for _, i := range b.eligibleOf(s, b.params.Config().Profile) {
		e := s.Endpoints[i]
		batch := estimate.ServerOf(e).BatchCapacity()
		if batch == 0 {
			batch = usualBatch
		}
		room := max(batch-e.Load().Requests, 0)
		if all += room; e.Health().IsUsable(now) {
			someUsable, usable = true, usable+room
		}
	}
	if someUsable {
		return int(usable)
	}
	return int(all)
}

// clearDispatched ends the time in which a request that left the queue is counted on no endpoint.
func (p *pickState) clearDispatched() {
	if p.dispatched {
		p.dispatched = false
		b := p.balancer
		b.dispatched.mu.Lock()
		b.dispatched.count--
		b.dispatched.mu.Unlock()
	}
}

// refreshInputs reads the endpoints and the configuration again, as both may have changed while the request waited. It reports whether
// there are endpoints that the profile may choose.
func (p *pickState) refreshInputs() (ready bool) {
	p.snapshot, p.config = p.balancer.params.Snapshot(), p.balancer.params.Config()
	p.estimated = !p.config.Profile.WithoutEstimates
	return p.snapshot.Err == nil && len(p.balancer.eligibleOf(p.snapshot, p.config.Profile)) > 0
}

// waitForEndpoint returns when there are endpoints, and no request has waited for longer or with a higher priority; or an error. A request
// that may not wait, or has waited for as long as it may, is placed if there is an endpoint.
func (p *pickState) waitForEndpoint(ctx context.Context) error {
	ready := p.refreshInputs()
	if err := p.snapshot.Err; err != nil {
		return fmt.Errorf("%w: %w", scheduling.ErrNoEndpoints, err)
	}
	if ready {
		if p.balancer.queue.Len() == 0 {
			return nil
		}
		if err := p.shedIfSaturated(); err != nil {
			return err
		}
	}
	limits := p.config.Waiting
	if limits.TTL = min(limits.TTL, maxWait(ctx, p.input)); limits.TTL <= 0 {
		return nil
	}
	return p.waitInQueue(ctx, limits)
}

// waitInQueue waits in the queue.
func (p *pickState) waitInQueue(ctx context.Context, limits pool.QueueLimits) error {
	b, in, result := p.balancer, p.input, &p.result
	r := pool.QueuedRequest{
		QueueLabels: pool.QueueLabels{Model: result.Model, Target: result.Target, Fairness: result.Fairness, Priority: result.Priority},
		Arrived:     in.ArrivalTime, Bytes: p.waiterSize(),
	}
	var err error
	for err == nil {
		if err = b.queue.WaitForGrant(ctx, r, limits); err == nil {
			if p.dispatched = true; p.refreshInputs() {
				break
			}
			p.clearDispatched() // the endpoints have gone again
		}
	}
	result.QueueTime = b.params.Clock.Now().Sub(in.ArrivalTime)
	p.request.Now = in.ArrivalTime.Add(result.QueueTime)
	if err != nil && (!errors.Is(err, pool.ErrExpired) || !p.refreshInputs()) {
		result.Queue = queueOutcomeOf(err)
		return p.queueError(err)
	}
	result.Queue = request.Dispatched
	return nil
}

// queueError returns the error for a request that left the queue without a grant. A full queue in front of servers is overload.
func (p *pickState) queueError(err error) error {
	if p.refreshInputs() && (errors.Is(err, pool.ErrQueueFull) || errors.Is(err, pool.ErrDisplaced)) {
		return fmt.Errorf("%w: %w", scheduling.ErrNoCapacity, err)
	}
	return fmt.Errorf("%w: %w", scheduling.ErrNoEndpoints, err)
}

// waiterBytes is what a request holds while it waits, beside its body and its prompt.
const waiterBytes = 8 << 10

// waiterSize returns the memory that the request holds while it waits, in bytes.
func (p *pickState) waiterSize() int64 {
	const hash, part = 8, int(unsafe.Sizeof(api.Part{}))
	return int64(len(p.input.Incoming.Body) + hash*cap(p.chain.Hashes) + part*(cap(p.incoming.Head)+cap(p.incoming.Prompt)) + waiterBytes)
}

// maxWait returns how long the request may wait for an endpoint, as far as its sender says.
func maxWait(ctx context.Context, in *request.PickInput) time.Duration {
	const unlimited = 1<<63 - 1
	limit := time.Duration(unlimited)
	if deadline, has := ctx.Deadline(); has {
		limit = time.Until(deadline)
	}
	if ms, err := strconv.ParseUint(in.Incoming.Headers.ValueOf(api.HeaderTimeout), 10, 32); err == nil && ms > 0 {
		limit = min(limit, time.Duration(ms)*time.Millisecond)
	}
	limit -= answerMargin
	if in.MaxWait != nil {
		limit = min(limit, *in.MaxWait)
	}
	return limit
}

// queueOutcomeOf returns the outcome of a request that left the queue without a grant.
func queueOutcomeOf(err error) request.QueueOutcome {
	switch {
	case errors.Is(err, pool.ErrQueueFull):
		return request.RejectedCapacity
	case errors.Is(err, pool.ErrExpired):
		return request.EvictedNoEndpoints
	case errors.Is(err, context.Canceled):
		return request.EvictedContextCancelled
	}
	return request.EvictedOther
}

// checkAdmission refuses the request if there is no endpoint, or if it has a negative priority and the pool is saturated.
func (p *pickState) checkAdmission() error {
	if len(p.snapshot.Endpoints) == 0 {
		return scheduling.ErrNoEndpoints
	}
	return p.shedIfSaturated()
}

// shedIfSaturated refuses a request with a negative priority while the pool is saturated.
func (p *pickState) shedIfSaturated() error {
	if p.result.Priority >= 0 {
		return nil
	}
	p.candidates = appendLoads(p.candidates[:0], p.snapshot.Endpoints, p.config)
	if p.config.Saturation.Saturation(p.request.Now, p.candidates) >= 1 {
		return scheduling.ErrSaturated
	}
	return nil
}

// PoolSaturation returns the saturation of the whole pool, by the detector that sheds requests.
func (b *Balancer) PoolSaturation() float64 {
	config := b.params.Config()
	return config.Saturation.Saturation(b.params.Clock.Now(), appendLoads(nil, b.params.Snapshot().Endpoints, config))
}
