package steptime

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTime(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	decode := Step{Sequences: 10, Context: 1000}
	both := Step{Sequences: 10, Context: 1000, Prompt: 100, Pairs: 1_000_000}
	law := Law{Base: 5 * ms, PerSeq: ms, PerToken: ms / 10, PerContext: ms / 1000, PerMegaPair: 3 * ms}
	with := func(change func(l *Law)) Law {
		changed := law
		change(&changed)
		return changed
	}
	tests := []struct {
		name string
		law  Law
		give Step
		want time.Duration
	}{
		{"nothing but the base", law, Step{}, 5 * ms},
		{"decoding reads the KV cache", law, decode, (5 + 10 + 1) * ms},
		{"prompts attend to what is before", law, both, (5 + 10 + 1 + 10 + 3) * ms},
		{"a graph of 16 sequences", with(func(l *Law) { l.Graphs = true }), decode, (5 + 16 + 1) * ms},
		{"arithmetic hides behind memory", with(func(l *Law) { l.Overlap = true }), both, (5 + 10 + 1) * ms},
		{"memory hides behind arithmetic", with(func(l *Law) { l.Overlap, l.PerMegaPair = true, 30*ms }), both, (10 + 30) * ms},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, tt.law.Time(tt.give), tt.name)
	}
}

// The numbers in the comment of Realistic.
func TestRealistic(t *testing.T) {
	t.Parallel()
	law := Realistic()
	require.NoError(t, law.Validate())
	full := law.Time(Step{Context: 65536}) - law.Base
	assert.InDelta(t, 2.56, full.Seconds()*1000, 0.01)
	var prompt Step
	prompt.Prefill(0, 16384)
	linear := 16384 * law.PerToken
	assert.InDelta(t, 0.27, float64(law.Time(prompt)-law.Base-linear)/float64(linear), 0.005)
}

// A prompt costs the same in one piece and in chunks, but for the base of each step.
func TestChunksCostWhatTheWholeCosts(t *testing.T) {
	t.Parallel()
	var whole, chunks Step
	whole.Prefill(100, 3000)
	chunks.Prefill(100, 2048)
	chunks.Prefill(2148, 952)
	assert.Equal(t, whole, chunks)
	assert.Equal(t, 3000*100+3000*3001/2, whole.Pairs)
}

func TestDecodeAddsUp(t *testing.T) {
	t.Parallel()
	var s Step
	s.Decode(10)
	s.Decode(5)
	assert.Equal(t, Step{Sequences: 2, Context: 15}, s)
}

func TestPadded(t *testing.T) {
	t.Parallel()
	for give, want := range map[int]int{0: 0, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 8: 8, 9: 16, 512: 512, 513: 513} {
		assert.Equal(t, want, paddedBatch(give), give)
	}
}

func TestVary(t *testing.T) {
	t.Parallel()
	law := Law{Noise: 0.1}
	random, again := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(1, 1))
	sum, squares := 0.0, 0.0
	const times = 20000
	for range times {
		f := law.Vary(random)
		require.InDelta(t, f, law.Vary(again), 0, "the same seed gives the same factors")
		sum += f
		squares += math.Log(f) * math.Log(f)
	}
	assert.InDelta(t, 1, sum/times, 0.01)
	assert.InDelta(t, 0.1, math.Sqrt(squares/times), 0.01)
	assert.InDelta(t, 1, Law{}.Vary(nil), 0)
}

func TestLawsThatNoMachineHas(t *testing.T) {
	t.Parallel()
	require.NoError(t, Linear().Validate())
	require.Error(t, Law{}.Validate())
	for _, change := range []func(l *Law){
		func(l *Law) { l.PerSeq = -1 }, func(l *Law) { l.PerToken = -1 }, func(l *Law) { l.PerContext = -1 },
		func(l *Law) { l.PerMegaPair = -1 }, func(l *Law) { l.Noise = -1 },
	} {
		law := Linear()
		change(&law)
		require.ErrorContains(t, law.Validate(), "must not be negative")
	}
}
