//go:build system

package flow

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/services/nodepool-ingress/internal/config"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

// TestClaims lets two objects list one pool: who has the pool keeps it, and the other one takes it when it is free.
func TestClaims(t *testing.T) {
	t.Parallel()
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

// TestClaimRace creates 100 pairs of objects at the same time, in front of two programs that both write: a replica that lost its Lease can
// go on for a moment. Each pool has one owner, who owns all of its objects.
func TestClaimRace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const pairs = 100
	name := func(i, j int) string { return fmt.Sprintf("race-%d-%d", i, j) }
	pool := func(i int) string { return fmt.Sprintf("pool-%d", i) }
	each(t, pairs, func(i int) error {
		_, err := r.kube.CoreV1().Nodes().Create(t.Context(),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: "node-" + pool(i), Labels: map[string]string{v1alpha1.LabelNodePool: pool(i)},
			}},
			metav1.CreateOptions{})
		return err
	})
	fast := func(c *config.Config) { c.Kube.QPS, c.Kube.Burst, c.Work.Workers = 5000, 5000, 16 }
	r.start(fast)
	r.start(fast)
	each(t, 2*pairs, func(i int) error {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtIngress", "metadata": map[string]any{"name": name(i/2, i%2)},
			"spec": map[string]any{"pools": []any{map[string]any{"name": pool(i / 2)}}},
		}}
		_, err := r.client.Resource(informers.YurtIngresses).Create(t.Context(), u, metav1.CreateOptions{})
		return err
	})
	uids := map[string]types.UID{}
	r.eventually(func() (string, bool) {
		list, err := r.client.Resource(informers.YurtIngresses).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		states := map[string]string{}
		for i := range list.Items {
			states[list.Items[i].GetName()], uids[list.Items[i].GetName()] = stateOf(t, &list.Items[i]), list.Items[i].GetUID()
		}
		for i := range pairs {
			first, second := states[name(i, 0)], states[name(i, 1)]
			if first+second != holds+refused && first+second != refused+holds {
				return fmt.Sprintf("%s: %q and %q", pool(i), first, second), false
			}
		}
		return "", true
	}, "each pool has one owner")
	owners, objects := map[string]map[types.UID]bool{}, map[string]int{}
	for _, k := range plan.Kinds() {
		list, err := r.client.Resource(k.Resource).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelManagedBy})
		require.NoError(t, err)
		for i := range list.Items {
			of := list.Items[i].GetLabels()[v1alpha1.LabelPool]
			if owners[of] == nil {
				owners[of] = map[types.UID]bool{}
			}
			owners[of][metav1.GetControllerOf(&list.Items[i]).UID] = true
			objects[of]++
		}
	}
	for i := range pairs {
		require.Len(t, owners[pool(i)], 1, "%s has the objects of one owner", pool(i))
		assert.Equal(t, objects[pool(0)], objects[pool(i)], "%s has all objects", pool(i))
		assert.True(t, owners[pool(i)][uids[name(i, 0)]] || owners[pool(i)][uids[name(i, 1)]])
	}
}

// States of an object with one pool: who holds the pool has programmed it, and the other one is refused.
const holds, refused = "holds ", "refused "

func stateOf(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	var y v1alpha1.YurtIngress
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &y))
	if len(y.Status.Pools) != 1 {
		return ""
	}
	for _, c := range y.Status.Pools[0].Conditions {
		switch {
		case c.Type == v1alpha1.ConditionAccepted && c.Reason == v1alpha1.ReasonPoolConflict:
			return refused
		case c.Type == v1alpha1.ConditionProgrammed && c.Status == metav1.ConditionTrue:
			return holds
		}
	}
	return ""
}

// each calls a function with numbers below n at the same time.
func each(t *testing.T, n int, call func(i int) error) {
	t.Helper()
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() { errs[i] = call(i) })
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
}
