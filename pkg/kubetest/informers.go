package kubetest

import (
	"context"
	"testing"
)

// InformerFactory is implemented by the informer factories of client-go, generated clients and the dynamic client. K is the type
// that identifies an informer.
type InformerFactory[K comparable] interface {
	Start(stop <-chan struct{})
	WaitForCacheSync(stop <-chan struct{}) map[K]bool
	Shutdown()
}

// StartInformers starts the informers that were requested from the factory so far, waits until they have synced, and stops
// them when the test ends.
func StartInformers[K comparable](tb testing.TB, factory InformerFactory[K]) {
	tb.Helper()
	// Not tb.Context(), which is canceled before the cleanups that stop the code under test.
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.Start(ctx.Done())

	bounded, stop := context.WithTimeout(ctx, Patience)
	defer stop()
	for informer, synced := range factory.WaitForCacheSync(bounded.Done()) {
		if !synced {
			tb.Fatalf("informer for %v did not sync within %s", informer, Patience)
		}
	}
}
