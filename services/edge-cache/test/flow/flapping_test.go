//go:build system || long

package flow

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/testlane"
)

// TestFlappingLinkCausesNothing breaks the link again and again. The long form does so for 8 minutes. Nothing else runs beside it, because
// it counts goroutines.
func TestFlappingLinkCausesNothing(t *testing.T) {
	flaps, cut, up := 20, 30*time.Millisecond, 70*time.Millisecond
	if testlane.Long {
		flaps, cut, up = 50, 5*time.Second, 5*time.Second
	}
	w := newWorld(t)
	w.node("in-1", "edge")
	w.createSlice(slice("default", "a", "a-0", "in-1"))
	e := w.edge("edge").ready()
	events := stream(t, e.rest(), slicesPath, values(watchListQuery...))
	for next(t, events).Type != "BOOKMARK" {
	}
	goroutines := runtime.NumGoroutine()
	for range flaps {
		w.network.set(linkCut)
		time.Sleep(cut)
		w.network.set(linkUp)
		time.Sleep(up)
	}
	time.Sleep(2 * time.Second)
	w.createSlice(slice("default", "a", "a-1", "in-1"))
	ev := next(t, events)
	for ev.Type == "BOOKMARK" {
		ev = next(t, events)
	}
	assert.Equal(t, "a-1", ev.Object.Metadata.Name, "the first event since the flaps")
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() < goroutines+30 }, kubetest.Patience, 100*time.Millisecond)
}
