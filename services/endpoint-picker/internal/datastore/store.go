// Package datastore holds the endpoints of the pool.
//
// Input is a source: an InferencePool and its pods, the pods of a selector, or a file. Which of them, a Store does not
// know. Output is an immutable Snapshot that is replaced whole, so that the pick path reads it without a lock.
//
// An endpoint lives as long as its source describes it by the same identity: it keeps its load from one snapshot to
// the next, and a pod that comes back under the same address is a new endpoint. Only changes of the source change a
// snapshot: while the API server is away the last one stands. The first snapshot is made when the source has synced.
//
// Changes come in herds (a rollout, a relist): the first is followed at once, those that come within rebuildSpacing of
// it in one more rebuild.
package datastore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Reasons for which there is nothing to choose from yet.
var (
	ErrNotSynced = errors.New("informers have not synced yet")
	ErrNoPool    = errors.New("the InferencePool does not exist")
)

// rebuildSpacing is the least time between two rebuilds.
const rebuildSpacing = 20 * time.Millisecond

// A Pool is what a source knows of the pool at one moment.
type Pool struct {
	AppProtocol string                 // http, kubernetes.io/h2c, or empty if nobody said
	Endpoints   []endpoint.Description // of model servers that take requests, each identity once
}

// A Snapshot is the pool at one moment. It is never changed.
type Snapshot struct {
	Err         error // why there is no pool, nil if there is one
	AppProtocol string
	Endpoints   []*endpoint.Endpoint
}

// source is where the pool comes from. It says by Store.Changed that it has something new.
type source interface {
	// Pool returns the pool, or nil if there is none. An error means that it cannot tell now.
	Pool() (*Pool, error)
	// WaitForSync returns when Pool knows all, or false when ctx ends before.
	WaitForSync(ctx context.Context) bool
}

// factory makes endpoints, and hears of those that have gone.
type factory interface {
	New(d endpoint.Description, since time.Time) *endpoint.Endpoint
	Forget(e *endpoint.Endpoint)
}

// observer learns of each new snapshot, from one goroutine.
type observer interface {
	SetEndpoints(endpoints []*endpoint.Endpoint)
}

// Store holds the current snapshot.
type Store struct {
	log      *zap.Logger
	pool     string
	source   source
	factory  factory
	observer observer
	clock    clock.PassiveClock

	dirty    chan struct{}
	snapshot atomic.Pointer[Snapshot]
	known    map[endpoint.Identity]*endpoint.Endpoint
}

// Params is what a Store is made of.
type Params struct {
	Log      *zap.Logger
	Pool     string // its name, for people
	Source   source
	Factory  factory
	Observer observer
	Clock    clock.PassiveClock
}

// New returns a Store without endpoints.
func New(p Params) *Store {
	s := &Store{
		log:      p.Log.With(zap.String(logging.KeyPool, p.Pool)),
		pool:     p.Pool,
		source:   p.Source,
		factory:  p.Factory,
		observer: p.Observer,
		clock:    p.Clock,
		dirty:    make(chan struct{}, 1),
		known:    map[endpoint.Identity]*endpoint.Endpoint{},
	}
	s.snapshot.Store(&Snapshot{Err: ErrNotSynced})
	return s
}

// Snapshot returns the current snapshot.
func (s *Store) Snapshot() *Snapshot { return s.snapshot.Load() }

// Ready returns why requests cannot be placed: the pool is not known. A pool without endpoints is ready.
func (s *Store) Ready() error {
	if err := s.Snapshot().Err; err != nil {
		return fmt.Errorf("inference pool %s: %w", s.pool, err)
	}
	return nil
}

// Changed says that the source has something new. It returns at once.
func (s *Store) Changed() {
	select {
	case s.dirty <- struct{}{}:
	default: // a rebuild is due already and will see this change too
	}
}

// Run makes snapshots until ctx ends.
func (s *Store) Run(ctx context.Context) {
	if !s.source.WaitForSync(ctx) {
		return
	}
	s.Changed()
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

// rebuild makes a snapshot of what the source has.
func (s *Store) rebuild() {
	pool, err := s.source.Pool()
	switch {
	case err != nil:
		s.log.Error("Could not read the pool, kept the last endpoints", zap.Error(err))
	case pool == nil:
		s.publish(&Pool{}, ErrNoPool)
	default:
		s.publish(pool, nil)
	}
}

// publish replaces the snapshot and tells the observer.
func (s *Store) publish(pool *Pool, err error) {
	known := make(map[endpoint.Identity]*endpoint.Endpoint, len(pool.Endpoints))
	endpoints := make([]*endpoint.Endpoint, 0, len(pool.Endpoints))
	added := 0
	for _, d := range pool.Endpoints {
		e := s.known[d.Identity]
		if e == nil {
			e = s.factory.New(d, s.clock.Now())
			added++
		} else {
			e.Describe(d)
		}
		known[d.Identity] = e
		endpoints = append(endpoints, e)
	}
	removed := len(s.known) + added - len(known)
	last := s.snapshot.Swap(&Snapshot{Err: err, AppProtocol: pool.AppProtocol, Endpoints: endpoints})
	for id, e := range s.known {
		if known[id] == nil {
			s.factory.Forget(e)
		}
	}
	s.known = known
	s.report(last, err, added, removed)
	if added > 0 || removed > 0 {
		s.observer.SetEndpoints(endpoints)
	}
}

// report logs what a new snapshot changed.
func (s *Store) report(last *Snapshot, err error, added, removed int) {
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
