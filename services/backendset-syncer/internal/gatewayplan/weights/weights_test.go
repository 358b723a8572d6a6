package weights

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// addresses returns n addresses; from is the number of the first.
func addresses(from, n int) []netip.AddrPort {
	var all []netip.AddrPort
	for i := from; i < from+n; i++ {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8000))
	}
	return all
}

// groups returns groups without common addresses, from pairs of a weight and a number of addresses.
func groups(pairs ...int) []Group {
	var all []Group
	next := 0
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, Group{Weight: int32(pairs[i]), Addresses: addresses(next, pairs[i+1])})
		next += pairs[i+1]
	}
	return all
}

func TestScale(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		groups []Group
		want   []int // of each group
		error  float64
	}{
		{name: "none", want: []int{}},
		{name: "one group has weight 1", groups: groups(90, 7), want: []int{1}},
		{name: "equal shares of equal groups", groups: groups(50, 3, 50, 3), want: []int{1, 1}},
		{name: "equal shares of a large and a small group", groups: groups(1, 2, 1, 6), want: []int{3, 1}},
		{name: "a canary of 10 %", groups: groups(90, 9, 10, 1), want: []int{1, 1}},
		{name: "a canary of 1 % of one pod", groups: groups(99, 10, 1, 1), want: []int{99, 10}},
		{name: "three groups", groups: groups(5, 1, 3, 1, 2, 1), want: []int{5, 3, 2}},
		{name: "large weights", groups: groups(1_000_000, 1, 500_000, 1), want: []int{2, 1}},
		{name: "weight 0 has no share", groups: groups(1, 2, 0, 2), want: []int{1, 0}},
		{name: "no endpoints have no share", groups: groups(1, 2, 9, 0), want: []int{1, 0}},
		{name: "all weights are 0", groups: groups(0, 2, 0, 2), want: []int{0, 0}},
		{name: "the best approximation", groups: groups(2, 3, 1, 7), want: []int{14, 3}},
		{name: "beyond the range", groups: groups(999, 1, 1, 1), want: []int{100, 1}, error: 1000.0/101 - 1},
		{name: "far beyond the range", groups: groups(99, 1, 1, 400), want: []int{100, 1}, error: 79},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := Scale(tt.groups, Choice{})
			assert.Equal(t, tt.want, got.Choice.Chosen)
			assert.InDelta(t, tt.error, got.Error, 1e-9)
			for i, g := range tt.groups {
				for _, address := range g.Addresses {
					assert.Equal(t, tt.want[i], got.Backends[address])
				}
			}
			assert.Equal(t, got, Scale(tt.groups, got.Choice), "it does not change again")
		})
	}
}

func TestSharedAddressesGetTheSum(t *testing.T) {
	t.Parallel()
	got := Scale([]Group{{Weight: 3, Addresses: addresses(0, 2)}, {Weight: 1, Addresses: addresses(1, 2)}}, Choice{})
	assert.Equal(t, []int{3, 1}, got.Choice.Chosen)
	assert.Equal(t, map[netip.AddrPort]int{addresses(0, 1)[0]: 3, addresses(1, 1)[0]: 4, addresses(2, 1)[0]: 1}, got.Backends)

	got = Scale([]Group{{Weight: 97, Addresses: addresses(0, 1)}, {Weight: 89, Addresses: addresses(0, 1)}}, Choice{})
	assert.Equal(t, got.Choice.Chosen[0]+got.Choice.Chosen[1], got.Backends[addresses(0, 1)[0]], "the sum is not cut off at the maximum")
	assert.LessOrEqual(t, got.Backends[addresses(0, 1)[0]], Maximum)
	assert.Less(t, got.Error, 0.05)
}

// The weights do not change with every pod, but with every change of the route.
func TestPreviousWeightsStay(t *testing.T) {
	t.Parallel()
	before := Scale(groups(90, 20, 10, 2), Choice{})
	require.Equal(t, []int{9, 10}, before.Choice.Chosen)

	after := Scale(groups(90, 21, 10, 2), before.Choice)
	assert.Equal(t, before.Choice, after.Choice, "one more pod")
	assert.Greater(t, after.Error, 0.0)
	assert.LessOrEqual(t, after.Error, tolerance)

	after = Scale(groups(90, 30, 10, 2), before.Choice)
	assert.NotEqual(t, before.Choice, after.Choice, "many more pods")
	assert.Less(t, after.Error, 0.02)

	after = Scale(groups(89, 20, 11, 2), before.Choice)
	assert.NotEqual(t, before.Choice, after.Choice, "the route has changed")

	gone := Scale(groups(90, 20, 10, 0), before.Choice)
	assert.Equal(t, before.Choice, gone.Choice, "a group without endpoints keeps its weight")
	assert.Zero(t, gone.Error)
	assert.Equal(t, before, Scale(groups(90, 20, 10, 2), gone.Choice))

	fresh := Scale(groups(90, 20, 10, 2), Scale(groups(90, 20, 10, 0), Choice{}).Choice)
	assert.Equal(t, before, fresh, "a group without a weight gets one")
}

// A Choice of another set, or from a damaged record, is not obeyed.
func TestForeignChoice(t *testing.T) {
	t.Parallel()
	all := groups(90, 20, 10, 2)
	want := Scale(all, Choice{})
	for _, m := range []Choice{
		{Wanted: []int32{90, 10}},
		{Wanted: []int32{90, 10}, Chosen: []int{9}},
		{Wanted: []int32{90, 10}, Chosen: []int{9, -10}},
		{Wanted: []int32{90, 10}, Chosen: []int{900, 1000}},
		{Wanted: []int32{90}, Chosen: []int{9, 10}},
	} {
		assert.Equal(t, want, Scale(all, m))
	}
}

// errorOf returns the largest relative deviation of a share, computed from the backends.
func errorOf(all []Group, chosen []int) float64 {
	var wanted, got float64
	for i, g := range all {
		if len(g.Addresses) > 0 {
			wanted += float64(g.Weight)
			got += float64(chosen[i] * len(g.Addresses))
		}
	}
	largest := 0.0
	for i, g := range all {
		if len(g.Addresses) > 0 && g.Weight > 0 {
			want := float64(g.Weight) / wanted
			largest = max(largest, math.Abs(float64(chosen[i]*len(g.Addresses))/got-want)/want)
		}
	}
	return largest
}

// The error is what the package comment says, and no scale has a smaller one.
func TestErrorHasABound(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var pairs []int
		for range 1 + random.IntN(5) {
			pairs = append(pairs, 1+random.IntN(1<<random.IntN(20)), random.IntN(1<<random.IntN(9)))
		}
		all := groups(pairs...)
		got := Scale(all, Choice{})
		require.InDelta(t, errorOf(all, got.Choice.Chosen), got.Error, 1e-6, "%v", pairs)

		smallest, largest := math.Inf(1), 0.0
		for _, g := range all {
			if n := len(g.Addresses); n > 0 {
				smallest, largest = min(smallest, float64(g.Weight)/float64(n)), max(largest, float64(g.Weight)/float64(n))
			}
		}
		for i, g := range all {
			chosen := got.Choice.Chosen[i]
			require.Equal(t, len(g.Addresses) > 0, chosen >= 1, "%v", pairs)
			require.LessOrEqual(t, chosen, Maximum, "%v", pairs)
		}
		if largest == 0 {
			continue
		}
		if q := largest / smallest; q <= Maximum {
			d := q / (2 * Maximum)
			require.LessOrEqual(t, got.Error, 2*d/(1-d)+1e-9, "%v", pairs)
		}
		for scale := 1.0; scale <= Maximum; scale++ {
			candidate := make([]int, len(all))
			for i, g := range all {
				if n := len(g.Addresses); n > 0 {
					candidate[i] = max(1, int(math.Round(scale*float64(g.Weight)/float64(n)/largest)))
				}
			}
			require.LessOrEqual(t, got.Error, errorOf(all, candidate)+1e-9, "%v, scale %v", pairs, scale)
		}
	}
}

// Whatever endpoints come and go, the weights that stay are near the best ones.
func TestErrorOfPreviousWeightsHasABound(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	counts := []int{20, 5, 1}
	var memory Choice
	changes := 0
	for range 500 {
		i := random.IntN(len(counts))
		counts[i] = max(0, min(60, counts[i]+random.IntN(3)-1))
		all := groups(70, counts[0], 25, counts[1], 5, counts[2])
		got, best := Scale(all, memory), Scale(all, Choice{})
		require.LessOrEqual(t, got.Error, best.Error+tolerance+1e-9)
		if !slices.Equal(got.Choice.Chosen, memory.Chosen) {
			changes++
		}
		memory = got.Choice
	}
	assert.Less(t, changes, 300, "weights change less often than endpoints")
}
