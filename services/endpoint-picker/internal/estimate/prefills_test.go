package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// list returns the sequences in order.
func (l *prefillQueue) list() (sequences []*sequence) {
	for q := l.first; q != nil; q = q.queued.after {
		sequences = append(sequences, q)
	}
	return sequences
}

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
		assert.True(t, slices.Equal(want, l.list()))
		if len(want) > 0 {
			assert.Equal(t, want[0].work, l.next.Load())
		}
	}
}

func TestPrefillShare(t *testing.T) {
	t.Parallel()
	var s prefillShare
	at := func(seconds float64) endpoint.Monotonic { return endpoint.ToMonotonic(after(seconds)) }
	assert.Zero(t, s.shareAt(at(0)))
	for i := range 300 {
		s.addPrompt(at(float64(i)/10), 0.03)
	}
	assert.InDelta(t, 0.3, s.shareAt(at(30)), 0.01, "30 ms in each 100")
	assert.InDelta(t, 0.3/math.E, s.shareAt(at(30+prefillShareSeconds)), 0.01)
	assert.Less(t, s.shareAt(at(90)), 1e-3, "it is forgotten")
}

// The answer of a server takes longer where prompts take much of its time, and not without limit.
func TestDelay_OfAnAnswerBesidePrompts(t *testing.T) {
	t.Parallel()
	s := newTestServer()
	costs := s.estimator.Costs()
	delay := func() float64 {
		return s.mutualDelay(s.arrivalAfter(0, costs, 1), &endpoint.Load{Sample: &endpoint.Sample{}})
	}
	answer := s.estimator.learner.times.mean.Load()
	s.beginUnobserved(noon, Prefill{Tokens: 50_000})
	share := s.share.shareAt(endpoint.ToMonotonic(noon))
	assert.InDelta(t, costs.PerToken*50_000/prefillShareSeconds, share, 0.01)
	assert.InDelta(t, delayWeight*answer*share/(1-share), delay(), 1e-9)
	for range 100 {
		s.beginUnobserved(noon, Prefill{Tokens: 50_000})
	}
	assert.InDelta(t, delayWeight*answer*4, delay(), 1e-9, "five times as long as alone at most")
}
