package snapshot

import (
	"cmp"
	"slices"
	"time"
)

// VariantKey names a variant.
type VariantKey struct{ Namespace, Name string }

// Key returns the name of the variant.
func (v *Variant) Key() VariantKey { return VariantKey{Namespace: v.Namespace, Name: v.Name} }

// PoolKey names an InferencePool.
type PoolKey struct{ Namespace, Name string }

// Compare orders pools by namespace and name.
func (k PoolKey) Compare(o PoolKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// WithModel returns the key of a model behind the pool.
func (k PoolKey) WithModel(model string) ModelKey { return ModelKey{PoolKey: k, Model: model} }

// ModelKey names a model behind an InferencePool: that of the groups of all roles. The name of the pool can be empty.
type ModelKey struct {
	PoolKey

	Model string
}

// ModelKey returns the model of the group.
func (g *Group) ModelKey() ModelKey {
	return PoolKey{Namespace: g.Namespace, Name: g.Pool}.WithModel(g.Model)
}

// GroupKey names a group. The pool is empty if no InferencePool selects the pods. The model is empty if a variant names none.
type GroupKey struct {
	Namespace, Pool, Model string
	Role                   Role
}

// Compare orders groups by namespace, pool, model and role.
func (k GroupKey) Compare(o GroupKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Pool, o.Pool), cmp.Compare(k.Model, o.Model),
		cmp.Compare(k.Role, o.Role))
}

// Key returns the name of the group.
func (g *Group) Key() GroupKey {
	return GroupKey{Namespace: g.Namespace, Pool: g.Pool, Model: g.Model, Role: g.Role}
}

// SortedPositions returns the numbers below n in an order.
func SortedPositions(n int, compare func(a, b int) int) []int {
	positions := make([]int, n)
	for i := range positions {
		positions[i] = i
	}
	slices.SortFunc(positions, compare)
	return positions
}

// TakeTurns orders positions so that the first ones of all namespaces come before the second ones, and so on.
func TakeTurns(positions []int, namespaceOf func(position int) string) []int {
	var rounds [][]int
	counts := map[string]int{}
	for _, i := range positions {
		n := counts[namespaceOf(i)]
		counts[namespaceOf(i)]++
		if n == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[n] = append(rounds[n], i)
	}
	return slices.Concat(rounds...)
}

// Pod is a pod of a variant that is not about to end. It is not a part of a Snapshot.
type Pod struct {
	Name    string
	Created time.Time
	Ready   time.Time // since when it is ready. Zero: it is not
}
