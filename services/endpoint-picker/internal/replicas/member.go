package replicas

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
)

const (
	// endpointsTimeout is the time to wait for pages of all endpoints before the first connection: the contents of a cache are kept up to
	// its size, which is on its page.
	endpointsTimeout = 2 * time.Second
	// warmTimeout is the time to wait for the contents of another replica before the pool is ready.
	warmTimeout = 5 * time.Second
	// pollEndpoints is the time between two looks at the endpoints, while a replica starts.
	pollEndpoints = 50 * time.Millisecond
)

// errCold means that a pool has just started and that another replica has not told yet what the caches contain.
var errCold = errors.New("waiting for the contents of caches from another replica")

// snapshots provides the endpoints.
type snapshots interface {
	Snapshot() *pool.Snapshot
}

// Member is one pool of this replica.
type Member struct {
	node      *Node
	title     string
	log       *zap.Logger
	estimator *estimate.Estimator
	snapshots snapshots
	publisher *publisher

	connected atomic.Int64 // replicas that this one hears
	received  atomic.Int64 // events

	asking *places // of requests for the contents

	ready atomic.Bool // the contents are known, or cannot be

	fetching sync.Mutex // while a replica is asked for contents

	mu      sync.Mutex
	settled map[string]bool // addresses that tell nothing
}

// Stats are figures of a member for metrics.
type Stats struct {
	Readers   int   // replicas that hear this one
	Connected int   // replicas that this one hears
	Sent      int64 // events, counted for each reader
	Received  int64 // events
	Slow      int64 // readers that were disconnected because they were too slow
}

// ReplicaStats returns the current figures.
func (m *Member) ReplicaStats() Stats {
	return Stats{
		Readers: int(m.publisher.reading.Load()), Connected: int(m.connected.Load()),
		Sent: m.publisher.sent.Load(), Received: m.received.Load(), Slow: m.publisher.slow.Load(),
	}
}

// CheckReady returns errCold while a pool that has just started waits for what another replica knows.
func (m *Member) CheckReady() error {
	if !m.ready.Load() {
		return errCold
	}
	return nil
}

// Run follows the other replicas until ctx ends.
func (m *Member) Run(ctx context.Context) {
	m.node.addMember(m)
	defer close(m.publisher.ended) // after the removal: readers connect again, and find the next pool with this title or none
	defer m.node.removeMember(m)
	if !m.awaitEndpoints(ctx) {
		return
	}
	cold := time.AfterFunc(warmTimeout, m.setReady)
	defer cold.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	stops := map[string]context.CancelFunc{} // of followers, which end with ctx, too
	for {
		addresses, changed := m.node.knownAddresses()
		m.stopWaiting(addresses)
		for address, stop := range stops {
			if !slices.Contains(addresses, address) {
				stop()
				delete(stops, address)
			}
		}
		for _, address := range addresses {
			if stops[address] == nil {
				following, stop := context.WithCancel(ctx)
				stops[address] = stop
				running.Go(func() { (&follower{member: m, address: address}).readUntilDone(following) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// awaitEndpoints waits until the endpoints are known, if the pool has any. It returns false if ctx ends before.
func (m *Member) awaitEndpoints(ctx context.Context) bool {
	ticker := time.NewTicker(pollEndpoints)
	defer ticker.Stop()
	var found time.Time
	for {
		s := m.snapshots.Snapshot()
		if s.Err == nil && found.IsZero() {
			found = time.Now()
		}
		unsampled := func(e *endpoint.Endpoint) bool { return !e.Sample().IsScraped }
		sampled := len(s.Endpoints) > 0 && !slices.ContainsFunc(s.Endpoints, unsampled)
		if !found.IsZero() && (sampled || time.Since(found) > m.node.patience) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// fetchContents calls fetch, unless the contents are known, or another replica is asked for them.
func (m *Member) fetchContents(fetch func() error) error {
	if !m.fetching.TryLock() {
		return nil
	}
	defer m.fetching.Unlock()
	if m.ready.Load() {
		return nil
	}
	err := fetch()
	if err == nil {
		m.setReady()
	}
	return err
}

func (m *Member) setReady() { m.ready.Store(true) }

// markSilent records that an address tells nothing for now: it is our own, or does not answer.
func (m *Member) markSilent(address string) {
	m.mu.Lock()
	m.settled[address] = true
	m.mu.Unlock()
	addresses, _ := m.node.knownAddresses()
	m.stopWaiting(addresses)
}

// stopWaiting makes the pool ready if all known addresses tell nothing: nobody can be asked for contents.
func (m *Member) stopWaiting(addresses []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if addresses != nil && !slices.ContainsFunc(addresses, func(a string) bool { return !m.settled[a] }) {
		m.setReady()
	}
}
