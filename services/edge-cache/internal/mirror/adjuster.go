package mirror

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/edge-cache/internal/brownout"
	"fairlead.dev/services/edge-cache/internal/liveaddress"
)

// Adjuster changes EndpointSlices of the pool before they are shown: it replaces dead addresses (package liveaddress), and keeps endpoints
// of silent nodes in service (package brownout). Its methods are safe for concurrent use.
type Adjuster struct {
	*liveaddress.Replacer
	*brownout.Tracker

	holdsChanged wake.Signal // the next expiry of a hold may have changed
}

// NewAdjuster returns an Adjuster. Run makes it live.
func NewAdjuster(addresses *liveaddress.Replacer) *Adjuster {
	return &Adjuster{Replacer: addresses, Tracker: brownout.New(), holdsChanged: wake.NewSignal()}
}

// AdjustSlice changes a slice in place, and returns whether it did.
func (a *Adjuster) AdjustSlice(key string, s *discoveryv1.EndpointSlice) bool {
	replaced := a.ReplaceAddresses(key, s)
	held := a.AdjustConditions(key, s, time.Now())
	return replaced || held
}

// TurnsUnready reports whether AdjustSlice would show an endpoint unready that clients see ready.
func (a *Adjuster) TurnsUnready(key string, s *discoveryv1.EndpointSlice) bool {
	return a.Tracker.TurnsUnready(key, s, time.Now())
}

// DeleteObject forgets a slice.
func (a *Adjuster) DeleteObject(key string) {
	a.Tracker.DeleteObject(key)
	a.ForgetSlice(key)
}

// UpdateNode takes a Node of the pool. It returns whether slices with endpoints on it must be shown again.
func (a *Adjuster) UpdateNode(n *corev1.Node) bool {
	a.Replacer.SetNode(n)
	changed := a.Tracker.SetNode(n, time.Now())
	if changed {
		a.holdsChanged.Send()
	}
	return changed
}

// Run replaces addresses and ends holds, until ctx ends.
func (a *Adjuster) Run(ctx context.Context, r liveaddress.Reprojector) {
	var group sync.WaitGroup
	group.Go(func() { a.expireHolds(ctx, r) })
	group.Go(func() { a.Replacer.Run(ctx, r) })
	group.Wait()
}

// expireHolds shows slices again when the time after a silence of their node is over.
func (a *Adjuster) expireHolds(ctx context.Context, r liveaddress.Reprojector) {
	for {
		for _, name := range a.ExpireHolds(time.Now()) {
			r.ReprojectNode(name)
		}
		wait := time.Hour
		if next, ok := a.NextExpiry(); ok {
			wait = time.Until(next)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.holdsChanged:
		case <-time.After(wait):
		}
	}
}
