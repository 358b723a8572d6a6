package estimate

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPrefills_KeepTheOrderOfPlacement(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	l, want, work := &prefillQueue{}, []*sequence(nil), int64(0)
	for range 5000 {
		if len(want) == 0 || random.IntN(9) < 5 && len(want) < 20 {
			work++
			q := &sequence{work: work}
			l.addSequence(q)
			want = append(want, q)
		} else {
			i := random.IntN(len(want))
			l.removeSequence(want[i])
			want = slices.Delete(want, i, i+1)
		}
		var got []*sequence
		for q := l.first; q != nil; q = q.after {
			got = append(got, q)
		}
		assert.True(t, slices.Equal(want, got))
		if len(want) > 0 {
			assert.Equal(t, want[0].work, l.next.Load())
			assert.Same(t, want[len(want)-1], l.last)
		}
	}
}
