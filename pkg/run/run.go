// Package run is the life cycle of a service in which one elected replica writes.
//
//	start    the server listens; parts (informers, recorders) run; the replica is ready when its caches have synced
//	elect    once the caches have synced, the replica takes part in the election; readiness does not wait for it
//	lead     in each term a new controller works, through a Queue
//	drain    in reverse: the term ends and the Lease is released, then the parts end, then the server
//
// A run.go of a service builds its parts, registers its handlers and calls Run.
package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/version"
)

// syncInterval is the interval of checks whether the caches have synced: it delays a start by half of it on average, and a
// check takes microseconds.
const syncInterval = 20 * time.Millisecond

// Part runs until its context ends.
type Part interface {
	Run(ctx context.Context)
}

// Cache names the kinds that it has not read yet.
type Cache interface {
	Unsynced() []string
}

// server serves health and metrics.
type server interface {
	Listen() error
	Run(ctx context.Context) error
}

// elector calls lead while this replica is elected.
type elector interface {
	Run(ctx context.Context, lead func(lease context.Context)) error
}

// Params are the parts of a service.
type Params struct {
	Log     *zap.Logger
	Server  server
	Parts   []Part
	Caches  []Cache
	Elector elector
	// Lead works until ctx ends, which asks it to finish its current work, or until lease ends, which asks it to stop
	// immediately. Queue.Lead does both.
	Lead func(ctx, lease context.Context)
}

// Run runs a service until ctx ends and the service has drained, or until its server or its election fails.
func Run(ctx context.Context, p Params) error {
	if err := p.Server.Listen(); err != nil {
		return fmt.Errorf("start http server: %w", err)
	}
	p.Log.Info("Started", zap.String(logging.KeyVersion, version.String()))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopServer := startUntilStopped(ctx, func(serving context.Context) error {
		defer cancel() // a failing server ends the service
		return p.Server.Run(serving)
	})
	stopParts := startUntilStopped(ctx, func(working context.Context) error {
		var all sync.WaitGroup
		for _, part := range p.Parts {
			all.Go(func() { part.Run(working) })
		}
		all.Wait()
		return nil
	})

	var err error
	if waitForCaches(ctx, p.Caches) {
		err = p.Elector.Run(ctx, func(lease context.Context) { p.Lead(ctx, lease) })
	}
	if err := errors.Join(err, stopParts(), stopServer()); err != nil {
		return err
	}
	p.Log.Info("Stopped")
	return nil
}

// startUntilStopped runs f, and returns the function that ends its context and waits for it. The context outlives that of the caller.
func startUntilStopped(ctx context.Context, f func(ctx context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// waitForCaches waits until the caches have synced, and reports whether they have.
func waitForCaches(ctx context.Context, caches []Cache) bool {
	ticker := time.NewTicker(syncInterval)
	defer ticker.Stop()
	for len(unsyncedNames(caches)) > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	return true
}

func unsyncedNames(caches []Cache) []string {
	var names []string
	for _, c := range caches {
		names = append(names, c.Unsynced()...)
	}
	return names
}

// Synced returns the probe of a readiness check: an error that names the kinds that the caches have not read yet.
func Synced(caches ...Cache) func(context.Context) error {
	return func(context.Context) error {
		if names := unsyncedNames(caches); len(names) > 0 {
			slices.Sort(names)
			return fmt.Errorf("not listed yet: %s", strings.Join(names, ", "))
		}
		return nil
	}
}

// UntilCanceled calls work again and again until ctx ends. It calls failed with the error of work, and waits for the interval before the
// next call.
func UntilCanceled(ctx context.Context, interval time.Duration, work func() error, failed func(error)) {
	for {
		err := work()
		if ctx.Err() != nil {
			return
		}
		failed(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}
