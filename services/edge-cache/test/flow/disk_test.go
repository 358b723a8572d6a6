//go:build system

package flow

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/edge-cache/internal/config"
)

// TestStartWaitsForTheProcessBefore starts a cache while another one still has its directory. It serves when the other one has ended, and
// what that one has seen.
func TestStartWaitsForTheProcessBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.createSlice(slice("default", "a", "before", "in-1"))
	old := w.process("edge")
	old.start()
	old.ready()
	p := w.process("edge", func(c *config.Config) { c.Data.Dir = old.cfg.Data.Dir })
	p.network.set(linkCut)
	p.start()
	time.Sleep(time.Second)
	require.Empty(t, p.address("client"), "two caches serve from one directory")
	old.kill()
	p.ready()
	require.ElementsMatch(t, []string{"before", "kubernetes"}, names(ask(t, p.rest(), slicesPath, values("resourceVersion", "0"), "")))
}

// TestFullDiskOfTheCache fills the disk under a running cache. It serves, says that it is degraded, and repairs itself when there is room.
func TestFullDiskOfTheCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.createSlice(slice("default", "a", "a-1", "in-1"))
	p := w.process("edge")
	p.disk = "2m"
	p.start()
	p.ready()
	filler := fmt.Sprintf("/proc/%d/root%s/filler", p.cmd.Process.Pid, p.cfg.Data.Dir)
	f, err := os.Create(filler)
	if errors.Is(err, os.ErrPermission) {
		t.Skip("may not enter the mount namespace of a child")
	}
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 4<<20))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
	for i := range 100 {
		w.createSlice(slice("default", "b", fmt.Sprint("b-", i), "in-1", "in-1"))
	}
	informer := p.informer(clientKinds()[0], clientKinds()[0].make(t, p.rest()))
	synced(t, informer)
	p.converges(informer)
	require.Eventually(t, func() bool { return p.metric("fairlead_edgecache_journal_degraded") == 1 }, kubetest.Patience, tick)
	require.NoError(t, os.Remove(filler))
	require.Eventually(t, func() bool { return p.metric("fairlead_edgecache_journal_degraded") == 0 }, kubetest.Patience,
		100*time.Millisecond)
	p.converges(informer)
}
