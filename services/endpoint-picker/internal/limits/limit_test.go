package limits

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMaxMinLevel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		limit int64
		uses  []int64
		want  int64
	}{
		{name: "no peers", limit: 10, want: math.MaxInt64},
		{name: "within the limit", limit: 10, uses: []int64{7, 3}, want: math.MaxInt64},
		{name: "one peer", limit: 10, uses: []int64{11}, want: 10},
		{name: "equal peers", limit: 10, uses: []int64{6, 6}, want: 5},
		{name: "small peers leave the rest to the large one", limit: 10, uses: []int64{20, 1, 2}, want: 7},
		{name: "idle peers take nothing", limit: 10, uses: []int64{20, 0, 0, 0}, want: 10},
		{name: "two large peers share what a small one leaves", limit: 10, uses: []int64{9, 2, 9}, want: 4},
		{name: "many peers with one each", limit: 10, uses: []int64{1, 1, 1, 1, 20}, want: 6},
		{name: "more peers than the limit", limit: 2, uses: []int64{1, 1, 1}, want: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, maxMinLevel(tt.limit, slices.Clone(tt.uses)))
		})
	}
}

// TestMaxMinLevelIsFair checks the definition: the level is the highest one at which the sum of min(use, level) is within the
// limit, so that a peer with at most limit/n is within it.
func TestMaxMinLevelIsFair(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	sum := func(uses []int64, level int64) (total int64) {
		for _, use := range uses {
			total += min(use, level)
		}
		return total
	}
	for range 10_000 {
		uses := make([]int64, 1+random.IntN(20))
		for i := range uses {
			uses[i] = random.Int64N(1 << random.IntN(20))
		}
		limit := random.Int64N(1 << 20)
		level := maxMinLevel(limit, slices.Clone(uses))
		assert.LessOrEqual(t, sum(uses, level), limit)
		assert.GreaterOrEqual(t, level, limit/int64(len(uses)))
		if level < math.MaxInt64 {
			assert.Greater(t, sum(uses, level+1), limit)
		}
	}
}

func TestFairLevelIsRecent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := fairLimit{limit: 10}
		uses := []int64{20, 0}
		ask := func() int64 { return f.fairLevel(func() []int64 { return slices.Clone(uses) }) }
		assert.Equal(t, int64(10), ask())
		uses[1] = 20
		assert.Equal(t, int64(10), ask(), "computed just now")
		time.Sleep(LevelAge)
		assert.Equal(t, int64(5), ask())
		uses = []int64{9, 0}
		time.Sleep(LevelAge)
		assert.Equal(t, int64(math.MaxInt64), ask())
		uses[0] = 30
		assert.Equal(t, int64(10), ask(), "at once")
	})
}

func TestLimitOfNothing(t *testing.T) {
	t.Parallel()
	var f fairLimit
	f.total.Store(math.MaxInt64)
	assert.False(t, f.isFull(), "0 is no limit")
	f.limit = math.MaxInt64 - 1
	assert.True(t, f.isFull())
}
