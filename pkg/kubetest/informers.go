package kubetest

import (
	"context"
	"testing"
	"time"
)

const syncTimeout = 30 * time.Second

// InformerFactory is what client-go's, generated and dynamic informer factories share; K is how each names its informers.
type InformerFactory[K comparable] interface {
	Start(stop <-chan struct{})
	WaitForCacheSync(stop <-chan struct{}) map[K]bool
	Shutdown()
}

// StartInformers starts the informers that were asked of the factory so far, waits until they have synced, and stops
// them when the test ends.
func StartInformers[K comparable](tb testing.TB, factory InformerFactory[K]) {
	tb.Helper()
	// Not tb.Context(), which ends before the cleanups that stop the code under test.
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.Start(ctx.Done())

	bounded, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	for informer, synced := range factory.WaitForCacheSync(bounded.Done()) {
		if !synced {
			tb.Fatalf("informer of %v did not sync in %s", informer, syncTimeout)
		}
	}
}
