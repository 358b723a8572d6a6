package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// Errors of a write that is not permitted.
var (
	// ErrNotLeading means that another replica of the program may lead.
	ErrNotLeading = errors.New("another replica may lead")
	// ErrOwned means that something else writes the replicas of the target now.
	ErrOwned = errors.New("something else scales the target")
)

// TargetsParams are the parts of Targets.
type TargetsParams struct {
	// WriteScale writes the replicas of a target.
	WriteScale func(ctx context.Context, c scale.Change, permit func() error) (written bool, err error)
	// CheckLease returns an error if another replica of the program may lead.
	CheckLease func() error
	// Ownership returns who else writes the replicas of a target, as it is now.
	Ownership func(namespace string, t snapshot.Target) sources.Ownership
	// Writes reports whether this program writes the replicas of targets that nothing else scales.
	Writes bool
	// WakeIdle permits to write the first replica where a HorizontalPodAutoscaler does nothing.
	WakeIdle bool
}

// Targets writes the replicas of targets. All writes of this program go through it. Immediately before each write, it checks that this
// replica leads and that nothing else scales the target. It is safe for concurrent use.
type Targets struct {
	TargetsParams

	mu      sync.Mutex
	started map[scale.Object]bool // targets that Start gave their first replica since the last drainStarted
}

// NewTargets returns Targets.
func NewTargets(p TargetsParams) *Targets {
	return &Targets{TargetsParams: p, started: map[scale.Object]bool{}}
}

// Scale writes the replicas of a target that nothing else scales, and reports whether it wrote.
func (t *Targets) Scale(ctx context.Context, c scale.Change) (written bool, err error) {
	return t.writeIfPermitted(ctx, c, func(o sources.Ownership) bool { return o.Follower == "" && o.Problem == nil })
}

// CanStart reports whether this program may write the first replica of a target, and the autoscaler that should, but does nothing at zero.
func (t *Targets) CanStart(namespace string, target snapshot.Target) (may bool, idle string) {
	o := t.Ownership(namespace, target)
	if o.Idle {
		idle = o.Follower
	}
	return t.mayStart(o), idle
}

func (t *Targets) mayStart(o sources.Ownership) bool {
	return o.Idle && t.WakeIdle || t.Writes && o.Follower == "" && o.Problem == nil
}

// Start writes the first replica of a target, and reports whether it wrote.
func (t *Targets) Start(ctx context.Context, o scale.Object) (written bool, err error) {
	written, err = t.writeIfPermitted(ctx, scale.Change{Namespace: o.Namespace, Target: o.Target, From: 0, To: 1}, t.mayStart)
	if written && t.Writes {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.started[o] = true
	}
	return written, err
}

// drainStarted returns the targets that Start gave their first replica since it was called last.
func (t *Targets) drainStarted() map[scale.Object]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	started := t.started
	t.started = map[scale.Object]bool{}
	return started
}

func (t *Targets) writeIfPermitted(ctx context.Context, c scale.Change, permits func(o sources.Ownership) bool) (written bool, err error) {
	return t.WriteScale(ctx, c, func() error {
		if err := t.CheckLease(); err != nil {
			return fmt.Errorf("%w: %w", ErrNotLeading, err)
		}
		if o := t.Ownership(c.Namespace, c.Target); !permits(o) {
			return &ownedError{o}
		}
		return nil
	})
}

// ownedError is ErrOwned with the other owner of the replicas.
type ownedError struct{ owner sources.Ownership }

func (e *ownedError) Error() string {
	if e.owner.Problem != nil {
		return e.owner.Problem.Message
	}
	return e.owner.Follower + " has just appeared, and follows the desired replicas"
}

// Is implements the interface of package errors.
func (e *ownedError) Is(target error) bool { return target == ErrOwned }
