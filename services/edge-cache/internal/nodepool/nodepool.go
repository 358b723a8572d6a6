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
	"k8s.io/apimachinery/pkg/util/sets"
)

// coalesceInterval is the time for which changes are collected. A pool of 50 nodes that is labeled by a script is one change.
const coalesceInterval = 50 * time.Millisecond

// ErrUnknown is returned until the pool has had a member.
var ErrUnknown = errors.New("the node pool has no nodes yet: check the pool's name and the label of its nodes")

// Pool is the set of members.
type Pool struct {
	log     *zap.Logger
	changes *Changes

	mu       sync.Mutex // guards changes of members
	observed sets.Set[string]
	members  atomic.Pointer[sets.Set[string]]
}

// New returns a pool without members.
func New(log *zap.Logger) *Pool {
	p := &Pool{log: log, observed: sets.New[string](), changes: NewChanges(coalesceInterval)}
	p.members.Store(&sets.Set[string]{})
	return p
}

// Members returns the names of the members. The caller must not change the set.
func (p *Pool) Members() sets.Set[string] { return *p.members.Load() }

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
			p.observed.Insert(name)
		} else {
			p.observed.Delete(name)
		}
	}
	p.publishMembers()
}

// ReplaceMembers sets all members.
func (p *Pool) ReplaceMembers(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observed = sets.New(names...)
	p.publishMembers()
}

// publishMembers makes the actual members effective. The caller has the lock.
func (p *Pool) publishMembers() {
	before, after := p.Members(), p.observed.Clone()
	if len(after) == 0 {
		if len(before) > 0 {
			p.log.Warn("Node pool became empty: keeping its last members", zap.Int("members", len(before)))
		}
		return
	}
	p.members.Store(&after)
	p.changes.AddNodes(after.SymmetricDifference(before).UnsortedList()...)
}

// Run calls reproject with the nodes whose membership changed, until ctx ends.
func (p *Pool) Run(ctx context.Context, reproject func(nodes []string)) {
	p.changes.Run(ctx, reproject)
}
