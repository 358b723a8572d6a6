package flow

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/services/nodepool-ingress/internal/config"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
)

// TestClaims lets two objects list one pool: who has the pool keeps it, and the other one takes it when it is free.
func TestClaims(t *testing.T) {
	r := newRig(t)
	r.pools("hangzhou", "beijing")
	r.deploy()
	r.start()
	first := r.create("z-first", `{pools: [{name: hangzhou}]}`)
	r.await("z-first", "hangzhou", conditionR, ready)
	second := r.create("a-second", `{pools: [{name: hangzhou}, {name: beijing}]}`)
	r.await("a-second", "beijing", conditionR, ready)
	r.await("a-second", "hangzhou", v1alpha1.ConditionAccepted, "False PoolConflict")
	assert.Empty(t, r.pool("a-second", "hangzhou").IngressClassName)
	for _, c := range r.pool("a-second", "hangzhou").Conditions {
		assert.Contains(t, c.Message, "z-first", "the message names the holder")
	}
	assert.Empty(t, r.owned(second.UID, "hangzhou"))
	r.settled("z-first")
	r.settled("a-second")

	// The loser's deletion does not touch the holder's objects.
	r.delete(informers.YurtIngresses, "", "a-second")
	r.eventually(func() (string, bool) { return "", r.get("a-second") == nil }, "the object is gone")
	assert.NotEmpty(t, r.owned(first.UID, "hangzhou"))
	assert.Equal(t, ready, r.condition("z-first", "hangzhou", conditionR))

	second = r.create("a-second", `{pools: [{name: hangzhou}]}`)
	r.await("a-second", "hangzhou", v1alpha1.ConditionAccepted, "False PoolConflict")
	r.patch("z-first", `{"spec": {"pools": []}}`)
	r.await("a-second", "hangzhou", conditionR, ready)
	assert.Empty(t, r.owned(first.UID, ""))
	assert.NotEmpty(t, r.owned(second.UID, "hangzhou"))

	r.patch("z-first", `{"spec": {"pools": [{"name": "hangzhou"}]}}`)
	r.await("z-first", "hangzhou", v1alpha1.ConditionAccepted, "False PoolConflict")
	r.delete(informers.YurtIngresses, "", "a-second")
	r.await("z-first", "hangzhou", conditionR, ready)
}

// TestClaimRace creates pairs of objects at the same time, in front of two programs that both write: a replica that lost its Lease can go on for
// a moment. Each pool has one owner, who owns all of its objects.
func TestClaimRace(t *testing.T) {
	r := newRig(t)
	pools := 20 // of which each is a race of two objects and two programs
	for i := range pools {
		r.node(fmt.Sprintf("node-%d", i), v1alpha1.LabelNodePool, fmt.Sprintf("pool-%d", i))
	}
	r.deploy()
	fast := func(c *config.Config) { c.Kube.QPS, c.Kube.Burst = 1000, 1000 }
	r.start(fast)
	r.start(fast)
	create := func(name, pool string) error {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtIngress", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"pools": []any{map[string]any{"name": pool}}},
		}}
		_, err := r.client.Resource(informers.YurtIngresses).Create(t.Context(), u, metav1.CreateOptions{})
		return err
	}
	var all sync.WaitGroup
	errs := make([]error, 2*pools)
	for i := range pools {
		for j := range 2 {
			all.Go(func() { errs[2*i+j] = create(fmt.Sprintf("race-%d-%d", i, j), fmt.Sprintf("pool-%d", i)) })
		}
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	for i := range pools {
		pool := fmt.Sprintf("pool-%d", i)
		names := [2]string{fmt.Sprintf("race-%d-0", i), fmt.Sprintf("race-%d-1", i)}
		var states [2]string
		r.eventually(func() (string, bool) {
			states = [2]string{r.condition(names[0], pool, conditionR), r.condition(names[1], pool, conditionR)}
			return fmt.Sprint(states), states == [2]string{ready, "False PoolConflict"} || states == [2]string{"False PoolConflict", ready}
		}, "%s has one owner", pool)
		winner, loser := r.get(names[0]), r.get(names[1])
		if states[1] == ready {
			winner, loser = loser, winner
		}
		assert.Len(t, r.owned(winner.UID, pool), len(r.owned(winner.UID, "")))
		assert.Empty(t, r.owned(loser.UID, ""), pool)
	}
}
