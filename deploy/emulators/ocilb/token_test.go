package ocilb_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

// withToken gives a request a retry token.
func withToken(r *loadbalancer.UpdateBackendSetRequest) {
	r.OpcRetryToken = common.String("token")
}

// TestEditsInvalidateRetryTokens has somebody else change the load balancer between a request and its retry.
func TestEditsInvalidateRetryTokens(t *testing.T) {
	t.Parallel()
	drain := func(name string) func(t *testing.T, s *ocilbtest.Service) {
		return func(t *testing.T, s *ocilbtest.Service) {
			require.Nil(t, s.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
				lb.BackendSets[name].Policy = "IP_HASH"
				return nil
			}))
		}
	}
	tests := []struct {
		name    string
		change  func(t *testing.T, s *ocilbtest.Service)
		refused bool
	}{
		{name: "nothing", change: func(*testing.T, *ocilbtest.Service) {}},
		{name: "an edit of the set", change: drain("chat"), refused: true},
		{name: "an edit of another set", change: drain("embed")},
		{name: "an edit that changes nothing", change: func(t *testing.T, s *ocilbtest.Service) {
			require.Nil(t, s.Edit(id, func(*ocilb.LoadBalancer) *ocilb.Error { return nil }))
		}},
		{name: "an edit of the load balancer", change: func(t *testing.T, s *ocilbtest.Service) {
			require.Nil(t, s.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
				lb.DisplayName = "other"
				return nil
			}))
		}},
		{name: "the set is removed and added", change: func(t *testing.T, s *ocilbtest.Service) {
			set := s.Current(id).BackendSets["chat"]
			require.Nil(t, s.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
				delete(lb.BackendSets, "chat")
				return nil
			}))
			require.Nil(t, s.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
				lb.BackendSets["chat"] = set
				return nil
			}))
		}, refused: true},
		{name: "a replacement of the load balancer", change: func(_ *testing.T, s *ocilbtest.Service) {
			lb := s.Current(id).Clone()
			set := *lb.BackendSets["chat"]
			set.Backends = nil
			lb.BackendSets["chat"] = &set
			s.Put(lb)
		}, refused: true},
		{name: "a replacement by the same", change: func(_ *testing.T, s *ocilbtest.Service) { s.Put(s.Current(id).Clone()) }},
	}
	for _, tt := range tests {
		for _, pending := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: " while it is in progress", false: " when it is done"}[pending], func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := startWithSets(t, nil)
					first, err := put(t, s, "chat", withToken, 1)
					require.NoError(t, err)
					if !pending {
						await(t, s, first.OpcWorkRequestId)
					}
					tt.change(t, s)
					for range 2 {
						again, err := put(t, s, "chat", withToken, 1)
						if tt.refused {
							assertRefused(t, err, http.StatusConflict, "InvalidatedRetryToken")
						} else {
							require.NoError(t, err)
							assert.Equal(t, *first.OpcWorkRequestId, *again.OpcWorkRequestId)
						}
						await(t, s, first.OpcWorkRequestId)
					}
				})
			})
		}
	}
}

// TestFailedWorkRequestsAndRetryTokens counts only what has changed the set.
func TestFailedWorkRequestsAndRetryTokens(t *testing.T) {
	t.Parallel()
	// fails is a mutation of set chat whose work request fails.
	fails := func(t *testing.T, s *ocilbtest.Service) *string {
		deleted, err := s.Client.DeleteBackend(t.Context(), loadbalancer.DeleteBackendRequest{LoadBalancerId: common.String(id), BackendSetName: common.String("chat"), BackendName: common.String("10.0.0.9:1")})
		require.NoError(t, err)
		return deleted.OpcWorkRequestId
	}
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		first, err := put(t, s, "chat", withToken, 1)
		require.NoError(t, err)
		await(t, s, first.OpcWorkRequestId)
		await(t, s, fails(t, s))
		again, err := put(t, s, "chat", withToken, 1)
		require.NoError(t, err)
		assert.Equal(t, *first.OpcWorkRequestId, *again.OpcWorkRequestId, "a failure has changed nothing")
		changed, err := put(t, s, "chat", nil, 2)
		require.NoError(t, err)
		_, err = put(t, s, "chat", withToken, 1)
		require.NoError(t, err, "the change has not had its effect")
		await(t, s, changed.OpcWorkRequestId)
		_, err = put(t, s, "chat", withToken, 1)
		assertRefused(t, err, http.StatusConflict, "InvalidatedRetryToken")
	})
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		failed := fails(t, s) // accepted before, it fails while the next one waits
		first, err := put(t, s, "chat", withToken, 1)
		require.NoError(t, err)
		await(t, s, failed)
		await(t, s, first.OpcWorkRequestId)
		changed, err := put(t, s, "chat", nil, 2)
		require.NoError(t, err)
		await(t, s, changed.OpcWorkRequestId)
		_, err = put(t, s, "chat", withToken, 1)
		assertRefused(t, err, http.StatusConflict, "InvalidatedRetryToken")
	})
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, func(m *ocilb.Modes) { m.FailEvery = 1 })
		first, err := put(t, s, "chat", withToken, 1)
		require.NoError(t, err)
		require.Equal(t, loadbalancer.WorkRequestLifecycleStateFailed, await(t, s, first.OpcWorkRequestId).LifecycleState)
		m := s.Modes()
		m.FailEvery = 0
		s.SetModes(m)
		changed, err := put(t, s, "chat", nil, 2)
		require.NoError(t, err)
		await(t, s, changed.OpcWorkRequestId)
		again, err := put(t, s, "chat", withToken, 1)
		require.NoError(t, err)
		assert.Equal(t, *first.OpcWorkRequestId, *again.OpcWorkRequestId, "it has updated nothing, so that nothing invalidates it")
	})
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, func(m *ocilb.Modes) { m.FailEvery, m.Partial = 1, true })
		first, err := put(t, s, "chat", withToken, 1)
		require.NoError(t, err)
		await(t, s, first.OpcWorkRequestId)
		changed, err := put(t, s, "chat", nil, 2)
		require.NoError(t, err)
		await(t, s, changed.OpcWorkRequestId)
		_, err = put(t, s, "chat", withToken, 1)
		assertRefused(t, err, http.StatusConflict, "InvalidatedRetryToken")
	})
}

func TestLongRetryTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		long := strings.Repeat("a", 65)
		_, err := put(t, s, "chat", func(r *loadbalancer.UpdateBackendSetRequest) { r.OpcRetryToken = &long }, 1)
		assertRefused(t, err, http.StatusBadRequest, "InvalidParameter")
		_, err = create(t, s, newDetails("new"), &long)
		assertRefused(t, err, http.StatusBadRequest, "InvalidParameter")
		most := long[1:]
		_, err = put(t, s, "chat", func(r *loadbalancer.UpdateBackendSetRequest) { r.OpcRetryToken = &most }, 1)
		require.NoError(t, err)
	})
}
