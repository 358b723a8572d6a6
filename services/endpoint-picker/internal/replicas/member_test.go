package replicas

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runMember runs one more pool, with the endpoint of the replica, until stop or the end of the test.
func (r *replica) runMember(t *testing.T, title string) (m *Member, stop func()) {
	t.Helper()
	m = r.JoinPool(title, r.estimator, r)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go m.Run(ctx)
	return m, cancel
}

// Another replica that has not seen that a pool was replaced hears of the requests of its successor.
func TestPoolIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, newNetwork())
		follower, _ := b.runMember(t, "other")
		deleted, stop := a.runMember(t, "other")
		eventually(t, func() bool { return deleted.ReplicaStats().Readers == 1 }, "connected")
		stop()
		created, _ := a.runMember(t, "other")
		eventually(t, func() bool { return created.ReplicaStats().Readers == 1 }, "connected again")
		a.place(10)
		eventually(t, func() bool { return b.endpoint.Load().Open == 1 && follower.connected.Load() == 1 }, "placed")
		assert.Equal(t, Stats{}, deleted.ReplicaStats(), "no reader is left, and none was slow")
	})
}

// A pool that has just started does not wait for a replica that is no longer among the addresses.
func TestAwaitedReplicaLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		r := n.addReplica(t)
		r.start(t, r.address, n.serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		time.Sleep(headerTimeout / 2)
		require.ErrorIs(t, r.member.CheckReady(), errCold)
		r.setAddresses([]string{r.address})
		synctest.Wait()
		assert.NoError(t, r.member.CheckReady())
	})
}
