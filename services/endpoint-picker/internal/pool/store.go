// A Store contains the endpoints of a pool. Its input is a source: an InferencePool and its pods, the pods of a selector, or a file. A
// Store does not know which. The output is an immutable Snapshot that is replaced as a whole, so the pick path reads it without a lock.
//
// An endpoint lives as long as its source describes it by the same identity: it keeps its load from one snapshot to the
// next, and a new pod with the same address is a new endpoint. Only changes of the source change a snapshot: while the API
// server is unavailable, the last one stays. The first snapshot is made when the source has synced.
//
// Changes come in bursts (a rollout, a relist). The first change causes a rebuild at once; changes within rebuildSpacing
// after it cause one more rebuild.

package pool

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Reasons why there are no endpoints yet.
var (
	ErrNotSynced = errors.New("informers have not synced yet")
	ErrNoPool    = errors.New("the InferencePool does not exist")
)

// rebuildSpacing is the minimum time between two rebuilds.
const rebuildSpacing = 20 * time.Millisecond

// A Snapshot is the state of the pool at one moment. It is never changed.
type Snapshot struct {
	Err       error // reason why there is no pool, nil if there is one
	Endpoints []*endpoint.Endpoint
}

// endpointSource provides the pool. It calls Store.MarkChanged after changes.
type endpointSource interface {
	// ReadPool returns the model servers that accept requests, each identity once, or ErrNoPool.
	ReadPool() ([]endpoint.Description, error)
	// WaitForSync returns true when ReadPool is complete, or false when ctx ends first.
	WaitForSync(ctx context.Context) bool
}

// loadFactory makes endpoints, and is notified of removed ones.
type loadFactory interface {
	NewEndpoint(d endpoint.Description, since time.Time) *endpoint.Endpoint
	ForgetEndpoint(e *endpoint.Endpoint)
}

// Store holds the current snapshot.
type Store struct {
	log       *zap.Logger
	pool      string
	source    endpointSource
	factory   loadFactory
	observers []func(endpoints []*endpoint.Endpoint)
	clock     clock.PassiveClock

	dirty    wake.Signal
	synced   chan struct{}
	snapshot atomic.Pointer[Snapshot]
	known    map[endpoint.Identity]*endpoint.Endpoint
}

// NewStore returns a Store without endpoints. The name of the pool is for messages.
func NewStore(log *zap.Logger, pool string, source endpointSource, factory loadFactory, c clock.PassiveClock) *Store {
	s := &Store{
		log: log.With(zap.String(logging.KeyPool, pool)), pool: pool, source: source, factory: factory, clock: c,
		dirty: wake.NewSignal(), synced: make(chan struct{}), known: map[endpoint.Identity]*endpoint.Endpoint{},
	}
	s.snapshot.Store(&Snapshot{Err: ErrNotSynced})
	return s
}

// AddObservers adds functions that receive the endpoints of each new snapshot, from one goroutine. Call it before Run.
func (s *Store) AddObservers(added ...func(endpoints []*endpoint.Endpoint)) {
	s.observers = append(s.observers, added...)
}

// Snapshot returns the current snapshot.
func (s *Store) Snapshot() *Snapshot { return s.snapshot.Load() }

// Synced returns a channel that is closed when the first snapshot has been made.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// CheckReady returns an error while the pool is unknown. A pool without endpoints is ready.
func (s *Store) CheckReady() error {
	if err := s.Snapshot().Err; err != nil {
		return fmt.Errorf("inference pool %s: %w", s.pool, err)
	}
	return nil
}

// MarkChanged announces a change of the source. It returns at once.
func (s *Store) MarkChanged() { s.dirty.Send() }

// Run makes snapshots until ctx ends.
func (s *Store) Run(ctx context.Context) {
	if !s.source.WaitForSync(ctx) {
		return
	}
	s.MarkChanged()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.dirty:
			s.rebuild()
		}
		select {
		case <-ctx.Done():
		case <-time.After(rebuildSpacing):
		}
	}
}

// rebuild makes a snapshot from the source, and notifies the observers.
func (s *Store) rebuild() {
	described, err := s.source.ReadPool()
	known := make(map[endpoint.Identity]*endpoint.Endpoint, len(described))
	endpoints := make([]*endpoint.Endpoint, 0, len(described))
	added := 0
	for _, d := range described {
		e := s.known[d.Identity]
		if e == nil {
			e = s.factory.NewEndpoint(d, s.clock.Now())
			added++
		} else {
			e.UpdateDescription(d)
		}
		known[d.Identity] = e
		endpoints = append(endpoints, e)
	}
	removed := len(s.known) + added - len(known)
	last := s.snapshot.Swap(&Snapshot{Err: err, Endpoints: endpoints})
	for id, e := range s.known {
		if known[id] == nil {
			s.factory.ForgetEndpoint(e)
		}
	}
	s.known = known
	s.logChanges(last, err, added, removed)
	if added > 0 || removed > 0 {
		for _, observe := range s.observers {
			observe(endpoints)
		}
	}
	if errors.Is(last.Err, ErrNotSynced) { // it was the first snapshot
		close(s.synced)
	}
}

// logChanges logs the changes of a new snapshot.
func (s *Store) logChanges(last *Snapshot, err error, added, removed int) {
	if !errors.Is(last.Err, err) {
		if err != nil {
			s.log.Warn("Could not find inference pool, waiting for it", zap.Error(err))
		} else {
			s.log.Info("Found inference pool")
		}
	}
	if added > 0 || removed > 0 {
		s.log.Debug("Changed endpoints", zap.Int("added", added), zap.Int("removed", removed), zap.Int("endpoints", len(s.known)))
	}
}
