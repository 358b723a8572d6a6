package externalscaler

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// sleeping returns the variants of a model without replicas: the first one starts first.
func sleeping(desired int) []decision.ActedVariant {
	first, second := variant("ns", "first", desired), variant("ns", "second", 0)
	first.Pool, first.Model, first.Standby = "pool", "m", desired == 0
	second.Pool, second.Model = "pool", "m"
	return []decision.ActedVariant{first, second}
}

func modelKey(namespace, pool, model string) snapshot.ModelKey {
	return snapshot.PoolKey{Namespace: namespace, Name: pool}.WithModel(model)
}

func replicas(t *testing.T, table *Table, of string) int {
	t.Helper()
	n, err := table.Lookup(Query{Namespace: "ns", Variant: of})
	require.NoError(t, err)
	return n
}

func TestWake(t *testing.T) {
	t.Parallel()
	table := NewTable()
	wake := func(namespace, pool, model string) []decision.ActedVariant {
		starts, _ := table.WakeModel(modelKey(namespace, pool, model))
		return starts
	}
	assert.Nil(t, wake("ns", "pool", "m"), "no term")
	table.Publish(sleeping(0))
	require.Len(t, table.Asleep(), 1)
	for _, other := range [][3]string{{"other", "pool", "m"}, {"ns", "other", "m"}, {"ns", "pool", "n"}} {
		assert.Nil(t, wake(other[0], other[1], other[2]))
	}
	woken := wake("ns", "pool", "m")
	require.Len(t, woken, 1)
	assert.Equal(t, "first", woken[0].Name)
	assert.Nil(t, wake("ns", "pool", "m"), "once")
	assert.Empty(t, table.Asleep())
	assert.Equal(t, []int{1, 0}, []int{replicas(t, table, "first"), replicas(t, table, "second")}, "one variant, never all")

	table.Publish(sleeping(0)) // of a pass that began before the request
	assert.Equal(t, 1, replicas(t, table, "first"))
	table.Publish(sleeping(0)) // a pass that saw it, and found no room
	assert.Equal(t, 0, replicas(t, table, "first"))
	assert.NotNil(t, wake("ns", "pool", "m"))

	table.Publish(sleeping(3))
	table.Publish(sleeping(0))
	assert.Equal(t, 0, replicas(t, table, "first"), "the decision counts from then on")

	table.WakeModel(modelKey("ns", "pool", "m"))
	table.EndTerm()
	table.Publish(sleeping(0))
	assert.Equal(t, 0, replicas(t, table, "first"), "nothing of another term")
}

// TestWakeRoles: one variant of each role starts, both at once.
func TestWakeRoles(t *testing.T) {
	t.Parallel()
	table := NewTable()
	roles := func(prefill int) []decision.ActedVariant {
		all := append(sleeping(0), variant("ns", "prefill", prefill))
		all[2].Pool, all[2].Model, all[2].Standby = "pool", "m", true
		return all
	}
	table.Publish(roles(0))
	require.Len(t, table.Asleep(), 2)
	starts, asleep := table.WakeModel(modelKey("ns", "pool", "m"))
	assert.Len(t, starts, 2)
	assert.True(t, asleep)
	assert.Equal(t, []int{1, 0, 1}, []int{replicas(t, table, "first"), replicas(t, table, "second"), replicas(t, table, "prefill")})
	starts, asleep = table.WakeModel(modelKey("ns", "pool", "m"))
	assert.Empty(t, starts, "once")
	assert.False(t, asleep)
	table.EndTerm()
	table.Publish(roles(1))
	starts, _ = table.WakeModel(modelKey("ns", "pool", "m"))
	require.Len(t, starts, 1, "the other one starts already")
	assert.Equal(t, "first", starts[0].Name)
}

// TestWakePushes: KEDA learns of a request that waits without a pass and without a poll.
func TestWakePushes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, client := keda(t, sleeping(0)...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first, _ := stream(ctx, t, client, &ScaledObjectRef{Namespace: "ns", Name: "first"})
		second, _ := stream(ctx, t, client, &ScaledObjectRef{Namespace: "ns", Name: "second"})
		assert.False(t, <-first)
		assert.False(t, <-second)
		w.table.WakeModel(modelKey("ns", "pool", "m"))
		synctest.Wait()
		assert.True(t, <-first)
		w.table.Publish(sleeping(1))
		synctest.Wait()
		assert.Empty(t, first, "nothing changed")
		assert.Empty(t, second)
	})
}
