package holds

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

var (
	pool  = snapshot.PoolKey{Namespace: "ns", Name: "pool"}
	other = snapshot.PoolKey{Namespace: "other", Name: "pool"}
	llama = pool.WithModel("llama")
	qwen  = pool.WithModel("qwen")
)

// newTable returns a table that knows two models of a pool, and the first holds that it reports.
func newTable(models ...snapshot.ModelKey) (table *Table, reported *[]snapshot.ModelKey) {
	reported = &[]snapshot.ModelKey{}
	table = NewTable()
	table.OnHold(func(k snapshot.ModelKey) { *reported = append(*reported, k) })
	table.SetModels(append(models, llama, qwen))
	return table, reported
}

func TestFirstHold(t *testing.T) {
	t.Parallel()
	table, reported := newTable()
	table.Observe(pool, "a", map[string]int{"llama": 0, "qwen": 0})
	assert.Empty(t, *reported)
	table.Observe(pool, "a", map[string]int{"llama": 1})
	table.Observe(pool, "a", map[string]int{"llama": 3})
	table.Observe(pool, "b", map[string]int{"llama": 2})
	assert.Equal(t, []snapshot.ModelKey{llama}, *reported, "once, whatever else waits for it")
	now, since, watched := table.CountWaiting(llama)
	assert.Equal(t, []any{5, 5, true}, []any{now, since, watched}, "replicas of a picker hold different requests")

	table.Observe(pool, "a", nil)
	table.Observe(pool, "b", nil)
	table.Observe(pool, "b", map[string]int{"llama": 1})
	assert.Equal(t, []snapshot.ModelKey{llama, llama}, *reported)
}

// TestTwoEvaluations: a request that came and went counts in the next two passes.
func TestTwoEvaluations(t *testing.T) {
	t.Parallel()
	table, _ := newTable()
	table.Observe(pool, "a", map[string]int{"llama": 2})
	table.Observe(pool, "a", nil)
	var seen []int
	for range 4 {
		table.SetModels([]snapshot.ModelKey{llama, qwen})
		now, since, watched := table.CountWaiting(llama)
		assert.Zero(t, now)
		assert.True(t, watched)
		seen = append(seen, since)
	}
	assert.Equal(t, []int{2, 2, 0, 0}, seen)
	assert.Empty(t, table.ended)
}

// TestLongHold: a request that waited for several passes counts from its end.
func TestLongHold(t *testing.T) {
	t.Parallel()
	table, _ := newTable()
	table.Observe(pool, "a", map[string]int{"llama": 1})
	for range 5 {
		table.SetModels([]snapshot.ModelKey{llama})
	}
	table.ForgetPicker(pool, "a")
	_, since, watched := table.CountWaiting(llama)
	assert.Equal(t, 1, since)
	assert.False(t, watched)
	assert.Empty(t, table.pools)
	table.SetModels([]snapshot.ModelKey{llama})
	table.SetModels([]snapshot.ModelKey{llama})
	_, since, _ = table.CountWaiting(llama)
	assert.Equal(t, 1, since)
	table.SetModels([]snapshot.ModelKey{llama})
	_, since, _ = table.CountWaiting(llama)
	assert.Zero(t, since)
}

// TestUnknownModels: a picker can name any model, and a model may be removed.
func TestUnknownModels(t *testing.T) {
	t.Parallel()
	table, reported := newTable()
	table.Observe(pool, "a", map[string]int{"nobody's": 1, "qwen": -1})
	table.Observe(other, "a", map[string]int{"llama": 1})
	assert.Empty(t, *reported, "nor another pool's")
	assert.Empty(t, table.pools[pool]["a"])

	table.Observe(pool, "a", map[string]int{"llama": 1})
	assert.Empty(t, table.SetModels([]snapshot.ModelKey{qwen}))
	models := []snapshot.ModelKey{qwen, llama, other.WithModel("llama"), other.WithModel("qwen")}
	assert.Equal(t, []snapshot.PoolKey{pool, other}, table.SetModels(models), "to be observed anew")
	now, since, _ := table.CountWaiting(llama)
	assert.Equal(t, []int{0, 0}, []int{now, since})
}
