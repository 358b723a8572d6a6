//go:build system

package flow

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/addressfile"
)

// TestProgram runs the program itself: its flags, its addresses, and its start without the API server after a kill. TestScale measures it.
func TestProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.node("out-1", "other")
	for i := range 20 {
		w.createSlice(slice("default", "a", fmt.Sprint("a-", i), "in-1", "out-1"))
	}
	p := w.prepare("edge").measured(buildCache(t))
	p.listed()
	bound, err := addressfile.Read(p.cfg.AddressFile)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"client", "health", "metrics"}, slices.Collect(maps.Keys(bound)))
	p.requireReadiness("^ok")
	i := p.informer(clientKinds()[0], clientKinds()[0].make(t, p.rest()))
	synced(t, i)
	p.converges(i)

	w.network.set(linkCut)
	p.kill()
	p.launch()
	p.listed()
	offline := p.informer(clientKinds()[0], clientKinds()[0].make(t, p.rest()))
	synced(t, offline)
	assert.Equal(t, p.oracle("edge"), addresses(t, offline.GetStore().List()))
}
