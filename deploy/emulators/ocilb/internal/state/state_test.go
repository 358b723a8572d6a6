package state

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// TestMemoryIsBounded has more requests than the state remembers.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		modes := DefaultModes()
		modes.Latency, modes.LatencyTail = 0, 0
		s := New(modes, 1, func(string, *lbapi.LoadBalancer) {})
		s.Put(lbapi.New("a", "c", "d", "2026-01-01T00:00:00Z"))
		submit := func(i int) string {
			id, err := s.Submit("a", Mutation{Type: "Test", Resource: lbapi.Itself, Token: fmt.Sprint(i), Apply: func(*lbapi.LoadBalancer, lbapi.Limits) *lbapi.Error { return nil }})
			require.Nil(t, err)
			synctest.Wait()
			return id
		}
		first := submit(0)
		for i := range maxWorks - 1 {
			submit(i + 1)
		}
		_, err := s.WorkRequest(first)
		require.Nil(t, err)
		last := submit(maxWorks)
		_, err = s.WorkRequest(first)
		require.NotNil(t, err)
		_, err = s.WorkRequest(last)
		require.Nil(t, err)
		all, err := s.WorkRequests("a")
		require.Nil(t, err)
		assert.Len(t, all, maxWorks)
		assert.Len(t, s.works, maxWorks)

		b := s.balancers["a"]
		assert.Len(t, b.tokens.uses, maxWorks+1)
		time.Sleep(tokenLife + time.Second)
		submit(maxWorks + 1)
		assert.Len(t, b.tokens.uses, 1)
		assert.Len(t, b.tokens.order, 1)
		assert.Less(t, len(b.versions), 3)
	})
}
