// Package nodepool knows which nodes are members of the node pool.
//
// Input are the Nodes with the label of the pool, or the status of a NodePool object. Output is the set of members, and the nodes whose
// membership changed. A pool that becomes empty keeps its last members: this program runs on one of its nodes, so an empty pool is a
// mistake, and an ingress controller without endpoints is worse than one with old endpoints.
package nodepool

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// coalesceInterval is the time for which changes are collected. A pool of 50 nodes that is labeled by a script is one change.
const coalesceInterval = 50 * time.Millisecond

// ErrUnknown is returned until the pool has had a member.
var ErrUnknown = errors.New("the node pool has no nodes yet: check the pool's name and the label of its nodes")

// Pool is the set of members.
type Pool struct {
	log     *zap.Logger
	members atomic.Pointer[map[string]struct{}]

	mu       sync.Mutex
	observed map[string]struct{}
	changed  map[string]struct{}
	signal   chan struct{}
}

// New returns a pool without members.
func New(log *zap.Logger) *Pool {
	p := &Pool{log: log, observed: map[string]struct{}{}, changed: map[string]struct{}{}, signal: make(chan struct{}, 1)}
	p.members.Store(&map[string]struct{}{})
	return p
}

// Members returns the names of the members. The caller must not change the set.
func (p *Pool) Members() map[string]struct{} { return *p.members.Load() }

// CheckReady returns ErrUnknown if the pool has never had a member.
func (p *Pool) CheckReady() error {
	if len(p.Members()) == 0 {
		return ErrUnknown
	}
	return nil
}

// UpdateMembership changes the membership of nodes.
func (p *Pool) UpdateMembership(membership map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, is := range membership {
		if is {
			p.observed[name] = struct{}{}
		} else {
			delete(p.observed, name)
		}
	}
	p.publishMembers()
}

// ReplaceMembers sets all members.
func (p *Pool) ReplaceMembers(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.observed)
	for _, name := range names {
		p.observed[name] = struct{}{}
	}
	p.publishMembers()
}

// publishMembers makes the actual members effective. The caller has the lock.
func (p *Pool) publishMembers() {
	before := p.Members()
	if len(p.observed) == 0 {
		if len(before) > 0 {
			p.log.Warn("Node pool became empty: keeping its last members", zap.Int("members", len(before)))
		}
		return
	}
	after := make(map[string]struct{}, len(p.observed))
	for name := range p.observed {
		after[name] = struct{}{}
		if _, was := before[name]; !was {
			p.changed[name] = struct{}{}
		}
	}
	for name := range before {
		if _, is := after[name]; !is {
			p.changed[name] = struct{}{}
		}
	}
	p.members.Store(&after)
	if len(p.changed) > 0 {
		select {
		case p.signal <- struct{}{}:
		default:
		}
	}
}

// Run calls reproject with the nodes whose membership changed, until ctx ends.
func (p *Pool) Run(ctx context.Context, reproject func(nodes []string)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.signal:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(coalesceInterval):
		}
		p.mu.Lock()
		nodes := make([]string, 0, len(p.changed))
		for name := range p.changed {
			nodes = append(nodes, name)
		}
		clear(p.changed)
		p.mu.Unlock()
		reproject(nodes)
	}
}
