package ocilb_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

func TestHealthOfSetsAndLoadBalancers(t *testing.T) {
	t.Parallel()
	const ok, warning, critical, unknown = "OK", "WARNING", "CRITICAL", "UNKNOWN"
	tests := []struct {
		chat, embed         [2]int // healthy backends and others; backends of embed are unknown without a listener
		routed              bool   // whether a listener uses embed
		set, other, overall string
	}{
		{chat: [2]int{0, 0}, set: unknown, other: unknown, overall: unknown},
		{chat: [2]int{2, 0}, set: ok, other: unknown, overall: unknown},
		{chat: [2]int{2, 0}, embed: [2]int{1, 0}, routed: true, set: ok, other: ok, overall: ok},
		{chat: [2]int{2, 1}, embed: [2]int{1, 0}, routed: true, set: warning, other: ok, overall: warning},
		{chat: [2]int{1, 1}, embed: [2]int{1, 0}, routed: true, set: warning, other: ok, overall: warning},
		{chat: [2]int{1, 2}, embed: [2]int{1, 0}, routed: true, set: critical, other: ok, overall: critical},
		{chat: [2]int{0, 1}, embed: [2]int{2, 1}, routed: true, set: critical, other: warning, overall: critical},
		{chat: [2]int{0, 1}, embed: [2]int{1, 0}, set: critical, other: unknown, overall: critical},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%v, %v, routed %v", tt.chat, tt.embed, tt.routed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				next := 0
				for name, counts := range map[string][2]int{"chat": tt.chat, "embed": tt.embed} {
					backends := []ocilb.Backend{}
					for i := range counts[0] + counts[1] {
						next++
						if i < counts[0] {
							w.serve(t, next)
						}
						backends = append(backends, backend(next))
					}
					w.set(t, name, backends...)
				}
				if tt.routed {
					w.edit(t, func(lb *ocilb.LoadBalancer) {
						lb.PathRouteSets["paths"] = &ocilb.PathRouteSet{Name: "paths", PathRoutes: []ocilb.PathRoute{{Path: "/e", PathMatchType: ocilb.PathMatchType{MatchType: "PREFIX_MATCH"}, BackendSetName: "embed"}}}
						name := "paths"
						lb.Listeners["web"].PathRouteSetName = &name
					})
				}
				time.Sleep(time.Minute)
				for name, want := range map[string]string{"chat": tt.set, "embed": tt.other} {
					got, err := w.Client.GetBackendSetHealth(t.Context(), loadbalancer.GetBackendSetHealthRequest{LoadBalancerId: common.String(id), BackendSetName: &name})
					require.NoError(t, err)
					assert.EqualValues(t, want, got.Status, name)
				}
				whole, err := w.Client.GetLoadBalancerHealth(t.Context(), loadbalancer.GetLoadBalancerHealthRequest{LoadBalancerId: common.String(id)})
				require.NoError(t, err)
				assert.EqualValues(t, tt.overall, whole.Status)
				assert.Equal(t, 2, *whole.TotalBackendSetCount)
				assert.Equal(t, tt.set == critical, len(whole.CriticalStateBackendSetNames) > 0)
				list, err := w.Client.ListLoadBalancerHealths(t.Context(), loadbalancer.ListLoadBalancerHealthsRequest{CompartmentId: common.String(ocilbtest.Compartment)})
				require.NoError(t, err)
				require.Len(t, list.Items, 1)
				assert.Equal(t, id, *list.Items[0].LoadBalancerId)
				assert.EqualValues(t, tt.overall, list.Items[0].Status)
			})
		})
	}
}

func TestHealthOfALoadBalancerThatIsNotActive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.edit(t, func(lb *ocilb.LoadBalancer) {
			delete(lb.BackendSets, "embed")
			lb.LifecycleState = "DELETING"
		})
		w.serve(t, 1)
		w.set(t, "chat", backend(1))
		time.Sleep(time.Minute)
		whole, err := w.Client.GetLoadBalancerHealth(t.Context(), loadbalancer.GetLoadBalancerHealthRequest{LoadBalancerId: common.String(id)})
		require.NoError(t, err)
		assert.Equal(t, loadbalancer.LoadBalancerHealthStatusUnknown, whole.Status)
		_, err = w.Client.ListLoadBalancerHealths(t.Context(), loadbalancer.ListLoadBalancerHealthsRequest{CompartmentId: common.String("")})
		assertRefused(t, err, http.StatusBadRequest, "MissingParameter")
	})
}
