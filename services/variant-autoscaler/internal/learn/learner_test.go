package learn

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

var (
	start   = time.Unix(1_800_000_000, 0)
	targets = queueing.Targets{TTFT: 1000, ITL: 30, Percentile: 90}
)

// at returns a sample of the exact law ITL = 6 + 0.4·n, prefills of 50 ms + 0.5·n, at a batch.
func at(minute int, n float64) *snapshot.Sample {
	itl, prefill := 6+0.4*n, 50+0.5*n
	return &snapshot.Sample{
		Time: start.Add(time.Duration(minute) * time.Minute), Window: time.Minute, Replicas: 2,
		Rate: n / (prefill + 199*itl) * 1e3, Input: 1000, Output: 200, Running: n, Prefill: prefill, TTFT: prefill + 5, ITL: itl, KVTokens: 400_000,
	}
}

func capacityOf(m *snapshot.Measured) int64 {
	return Capacity(m, queueing.Traffic{Input: 1000, Output: 200}, targets)
}

func TestOnePointGivesACautiousAnswer(t *testing.T) {
	t.Parallel()
	l := New()
	assert.Nil(t, l.Measured(targets))
	s := at(1, 10)
	m := l.Observe(s, targets)
	require.NotNil(t, m.Profile)
	assert.Positive(t, capacityOf(m))
	assert.Zero(t, m.Proven, "one sample proves nothing")
	assert.InEpsilon(t, s.Rate*1e6, float64(m.Limit), 0.1, "one sample is not extrapolated")
	assert.Less(t, Confidence(m), 0.1)
	s.Time = s.Time.Add(time.Minute)
	m = l.Observe(s, targets)
	assert.InEpsilon(t, s.Rate*1e6, float64(m.Proven), 0.02)
	s.Time = s.Time.Add(time.Minute)
	m = l.Observe(s, targets)
	assert.Less(t, m.Limit, int64(exploration*s.Rate*1e6))
	assert.Greater(t, capacityOf(m), m.Proven)
	assert.Equal(t, SourceEngine, m.Source)
}

func TestLawIsLearned(t *testing.T) {
	t.Parallel()
	l := New()
	var m *snapshot.Measured
	for i := range 60 {
		m = l.Observe(at(i, float64(2+i%40)), targets)
	}
	for _, n := range []float64{1, 20, 40, 60} {
		assert.InEpsilon(t, 6+0.4*n, m.Profile.Alpha+m.Profile.Beta*n, 0.1, n)
	}
	assert.Less(t, m.Error, 0.06)
}

// TestIdleReplicaIsNotTrusted: without load, only the smallest batch and a multiple of the largest one seen are expected.
func TestIdleReplicaIsNotTrusted(t *testing.T) {
	t.Parallel()
	l := New()
	var m *snapshot.Measured
	for i := range 600 {
		m = l.Observe(at(i, 0.5), targets)
	}
	assert.LessOrEqual(t, float64(capacityOf(m)), 1.1*at(0, smallest).Rate*1e6)
	for i := range 3 {
		m = l.Observe(at(600+i, 10), targets)
	}
	most := at(0, exploration*10.5).Rate * 1e6
	assert.InDelta(t, 0.9, float64(capacityOf(m))/most, 0.15)
}

func TestProvenHoldsOnlyWithinTheTargets(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(s *snapshot.Sample)
		want   bool
	}{
		{"within", func(*snapshot.Sample) {}, true},
		{"ITL", func(s *snapshot.Sample) { s.ITL = 31 }, false},
		{"mean TTFT is within, but not the percentile", func(s *snapshot.Sample) { s.TTFT = 500 }, false},
		{"requests wait that have no TTFT yet", func(s *snapshot.Sample) { s.Waiting = 1.9 }, false},
		{"TTFT is not known", func(s *snapshot.Sample) { s.TTFT = 0 }, false},
		{"ITL is not known", func(s *snapshot.Sample) { s.ITL = 0 }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := New()
			var m *snapshot.Measured
			for i := range 4 {
				s := at(i, 20)
				tt.change(s)
				m = l.Observe(s, targets)
			}
			assert.Equal(t, tt.want, m.Proven > 0)
		})
	}
}

// TestBurstProvesNoRate: requests that came together end together, faster than the replica could serve them for long.
func TestBurstProvesNoRate(t *testing.T) {
	t.Parallel()
	l := New()
	var m *snapshot.Measured
	for i := range 4 {
		s := at(i, 20)
		s.Rate *= 3
		m = l.Observe(s, targets)
	}
	assert.LessOrEqual(t, float64(m.Proven)/1e6, at(0, 20).Rate*1.05)
}

func TestFullBatchIsTheLargest(t *testing.T) {
	t.Parallel()
	l := New()
	var m *snapshot.Measured
	for i := range 4 {
		s := at(i, 16)
		s.Waiting, s.TTFT = 30, 4000
		m = l.Observe(s, targets)
	}
	assert.Equal(t, 16, m.Profile.MaxBatch)
	assert.Zero(t, m.Proven)
	assert.InEpsilon(t, at(0, 16).Rate*1e6, float64(capacityOf(m)), 0.25)
}

// TestSaturatedReplicaServesNoMore: requests wait because of something that no batch size shows.
func TestSaturatedReplicaServesNoMore(t *testing.T) {
	t.Parallel()
	l := New()
	var m *snapshot.Measured
	for i := range 10 {
		s := at(i, 8)
		s.Waiting = 5
		m = l.Observe(s, targets)
	}
	assert.LessOrEqual(t, float64(m.Limit)/1e6, at(0, 8).Rate*1.06)
}

func TestErrorShowsWrongPredictions(t *testing.T) {
	t.Parallel()
	l := New()
	var right, wrong *snapshot.Measured
	for i := range 40 {
		right = l.Observe(at(i, 10), targets)
	}
	for i := range 10 {
		s := at(40+i, 10)
		s.ITL *= 1 + float64(i%2)
		wrong = l.Observe(s, targets)
	}
	assert.Less(t, right.Error, 0.05)
	assert.Greater(t, wrong.Error, 0.08)
	assert.Less(t, Confidence(wrong), Confidence(right))
}

func TestCacheBoundsTheBatch(t *testing.T) {
	t.Parallel()
	l, shared := New(), New()
	var m, ms *snapshot.Measured
	for i := range 4 {
		s := at(i, 20)
		s.KVTokens = 30_000
		m = l.Observe(s, targets)
		s.KVUsage = 0.5 // common prefixes have one place
		ms = shared.Observe(s, targets)
	}
	assert.Equal(t, 25, m.Profile.MaxBatch) // 0.95 × 30 000/1100
	assert.InDelta(t, 38, ms.Profile.MaxBatch, 1)
}

func TestPickerComesFirst(t *testing.T) {
	t.Parallel()
	l := New()
	var m *snapshot.Measured
	for i := range 4 {
		s := at(i, 20)
		s.Picker = &snapshot.PickerSample{PrefillRate: 1000, BatchCapacity: 24}
		m = l.Observe(s, targets)
	}
	assert.Equal(t, SourcePicker, m.Source)
	assert.Equal(t, 24, m.Profile.MaxBatch)
	assert.InDelta(t, 1, fitLaw(l.points, l.last, l.freshPicker()).token, 1e-9)
	m = l.Observe(at(100, 20), targets)
	assert.Equal(t, SourceEngine, m.Source, "the picker is silent for too long")
	assert.Greater(t, m.Profile.MaxBatch, 24)
}

func TestSamplesThatAddNothing(t *testing.T) {
	t.Parallel()
	bad := map[string]func(s *snapshot.Sample){
		"of no replica":       func(s *snapshot.Sample) { s.Replicas = 0 },
		"of no time":          func(s *snapshot.Sample) { s.Window = 0 },
		"again":               func(s *snapshot.Sample) { s.Time = start },
		"of the past":         func(s *snapshot.Sample) { s.Time = start.Add(-time.Hour) },
		"without requests":    func(s *snapshot.Sample) { s.Rate = 0 },
		"without times":       func(s *snapshot.Sample) { s.ITL, s.TTFT, s.Prefill = 0, 0, 0 },
		"without output":      func(s *snapshot.Sample) { s.Output = 0 },
		"NaN":                 func(s *snapshot.Sample) { s.ITL = math.NaN() },
		"infinite":            func(s *snapshot.Sample) { s.Running = math.Inf(1) },
		"negative":            func(s *snapshot.Sample) { s.TTFT = -1 },
		"huge":                func(s *snapshot.Sample) { s.Rate = 1e300 },
		"more cached than is": func(s *snapshot.Sample) { s.Cached = 1.5 },
	}
	for name, change := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New()
			l.Observe(at(0, 10), targets)
			before := l.points[0]
			s := at(1, 10)
			change(s)
			m := l.Observe(s, targets)
			assert.Equal(t, 1, m.Samples)
			assert.Equal(t, []point{before}, l.points)
		})
	}
	assert.Nil(t, New().Observe(nil, targets))
}

func TestConfidence(t *testing.T) {
	t.Parallel()
	assert.Zero(t, Confidence(nil))
	assert.Zero(t, Confidence(&snapshot.Measured{}))
	assert.InDelta(t, 0.5, Confidence(&snapshot.Measured{Samples: 20, Error: 0.1}), 0.02)
	last := 0.0
	l := New()
	for i := range 200 {
		now := Confidence(l.Observe(at(i, 10), targets))
		require.GreaterOrEqual(t, now, last, i)
		last = now
	}
	assert.Greater(t, last, 0.85)
	assert.Less(t, Confidence(&snapshot.Measured{Samples: 20, Error: 0.5}), Confidence(&snapshot.Measured{Samples: 20, Error: 0.1}))
}

func TestOldPointsFade(t *testing.T) {
	t.Parallel()
	l := New()
	for i := range 60 {
		l.Observe(at(i, 40), targets)
	}
	half := func(minute int) *snapshot.Sample { // the servers were replaced by slower ones
		s := at(minute, 20)
		s.ITL, s.Rate = s.ITL*2, s.Rate/2
		return s
	}
	var m *snapshot.Measured
	for i := range 120 {
		m = l.Observe(half(300+i), targets)
	}
	assert.InEpsilon(t, 28, m.Profile.Alpha+m.Profile.Beta*20, 0.1)
	m = l.Observe(at(60*40, 10), targets)
	assert.Len(t, l.points, 1, "nothing is older than a day")
	assert.InEpsilon(t, at(0, 10).Rate*1e6, float64(m.Limit), 0.1, "one point is left")
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	l := New()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 1500 {
		s := at(i/10, 1+200*r.Float64())
		s.Time = s.Time.Add(time.Duration(i%10) * time.Second)
		s.Input, s.Output = 1+1e5*r.Float64(), 1+1e4*r.Float64()
		l.Observe(s, targets)
		require.LessOrEqual(t, len(l.points), maxPoints)
	}
}

func TestSameSamplesGiveTheSameResult(t *testing.T) {
	t.Parallel()
	l, again := New(), New()
	for i := range 50 {
		s := at(i, float64(1+i))
		s.Picker = &snapshot.PickerSample{PrefillRate: 2e4}
		assert.Equal(t, l.Observe(s, targets), again.Observe(s, targets))
	}
}

func TestCapacityOfNothing(t *testing.T) {
	t.Parallel()
	traffic := queueing.Traffic{Input: 1000, Output: 200}
	assert.Zero(t, Capacity(nil, traffic, targets))
	m := &snapshot.Measured{Proven: 1e6, Input: 1000, Output: 200}
	assert.EqualValues(t, 1e6, Capacity(m, traffic, targets))
	assert.EqualValues(t, 1e6, Capacity(m, queueing.Traffic{Input: 10, Output: 20}, targets), "smaller requests earn nothing")
	assert.Less(t, Capacity(m, queueing.Traffic{Input: 1000, Output: 400}, targets), int64(5e5+1))
	m.Profile = &snapshot.Profile{}
	assert.EqualValues(t, 1e6, Capacity(m, traffic, targets), "a profile that cannot be")
}

func FuzzObserve(f *testing.F) {
	f.Add(1.0, 1000.0, 200.0, 0.0, 10.0, 0.0, 50.0, 60.0, 10.0, 0.1, 4e5, 1e4, 0.0)
	f.Add(math.NaN(), math.Inf(1), -1.0, 1e300, 5e-324, 0.0, 0.0, 1e7, 1e7, 1.0, 1e12, 1e8, 65536.0)
	f.Add(1e6, 1e8, 1e8, 1.0, 65536.0, 1e9, 1e7, 1e7, 1e7, 1.0, 1e12, 5e-324, 1.0)
	f.Add(5e-324, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 5e-324, 0.0, 5e-324, 5e-324, 0.0, 0.0)
	f.Fuzz(func(t *testing.T, rate, input, output, cached, running, waiting, prefill, ttft, itl, usage, kv, speed, batch float64) {
		l := New()
		for i := range 6 {
			s := at(i, float64(1+i))
			if i%2 == 1 {
				s.Rate, s.Input, s.Output, s.Cached, s.Running, s.Waiting = rate, input, output, cached, running, waiting
				s.Prefill, s.TTFT, s.ITL, s.KVUsage, s.KVTokens = prefill, ttft, itl, usage, kv
				s.Picker = &snapshot.PickerSample{PrefillRate: speed, BatchCapacity: batch}
			}
			m := l.Observe(s, targets)
			require.True(t, m.Error >= 0 && m.Error <= 1)
			require.True(t, inRange(1, Confidence(m)))
			require.True(t, m.Proven >= 0 && m.Proven <= maxRate*microPerUnit)
			require.GreaterOrEqual(t, capacityOf(m), int64(0))
			if p := m.Profile; p != nil {
				require.True(t, inRange(math.MaxFloat64, p.Alpha, p.Beta, p.Gamma, p.Delta), p)
				require.True(t, p.MaxBatch >= 1 && p.MaxBatch <= maxRunning)
			}
			require.True(t, l.isValid(), l)
		}
	})
}

// isValid reports whether a Learner can know this.
func (l *Learner) isValid() bool {
	ok := len(l.points) <= maxPoints && inRange(maxSamples, float64(l.samples)) && inRange(errorMemory, float64(l.judged)) &&
		inRange(1, l.deviation) && inRange(maxKV, l.kvTokens) && l.traffic.isValid() && (l.picker == nil || isUsablePicker(l.picker))
	for i := range l.points {
		ok = ok && l.points[i].isValid()
	}
	return ok
}

func (p *point) isValid() bool {
	return p.traffic.isValid() && min(p.Output, p.Count, p.Batch, p.Anchor) >= 1 && min(p.Rate, p.Running) > 0 && inRange(pointWeight,
		p.Count) &&
		inRange(maxRunning+1, p.Batch, p.Anchor) && inRange(maxRunning, p.Running) && inRange(maxRate, p.Rate) && inRange(maxWaiting,
		p.Waiting) &&
		inRange(maxTime, p.Prefill, p.TTFT, p.ITL) && inRange(1, p.KVUsage)
}

func (t traffic) isValid() bool { return inRange(maxTokens, t.Input, t.Output) && inRange(1, t.Cached) }
