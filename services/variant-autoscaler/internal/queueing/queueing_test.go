package queueing

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Profiles of reference runs.
var (
	plain  = Profile{Alpha: 1, Beta: 0.01, Gamma: 10, Delta: 0.001, MaxBatch: 8}
	a100   = Profile{Alpha: 20.58, Beta: 0.41, Gamma: 5.2, Delta: 0.1, MaxBatch: 4}
	l40s   = Profile{Alpha: 19.2, Beta: 0.38, Gamma: 4.9, Delta: 0.09, MaxBatch: 6}
	h100   = Profile{Alpha: 6.973, Beta: 0.027, Gamma: 14.825, Delta: 0.001364, MaxBatch: 64}
	demo   = Profile{Alpha: 6.958, Beta: 0.042, MaxBatch: 512}
	sample = Traffic{Input: 128, Output: 128}
)

func newModel(t testing.TB, p Profile, traffic Traffic) *Model {
	t.Helper()
	m, err := New(p, traffic)
	require.NoError(t, err)
	return m
}

func at(t testing.TB, m *Model, rate float64) Figures {
	t.Helper()
	f, err := m.FiguresAt(rate, 0)
	require.NoError(t, err)
	return f
}

// digits compares a number with one that is written with some digits after the point.
func digits(t testing.TB, want, got float64, digits int, of string) {
	t.Helper()
	assert.InDelta(t, want, got, 0.5000001*math.Pow10(-digits), of)
}

// TestUpstreamFigures has figures that upstream's analyzer logged: all 178 tokens are decode steps, and there is no prefill.
func TestUpstreamFigures(t *testing.T) {
	t.Parallel()
	const tokens = 178
	m := newModel(t, Profile{Alpha: 20.58, Beta: 0.41, MaxBatch: 4}, Traffic{Output: tokens + 1})
	tests := []struct{ perMinute, perToken, wait, busy float64 }{
		{20, 21.493471, 69.766788, 0.717897},
		{20.66, 21.509005, 78.635731, 0.729748},
		{25.31145, 21.615130, 166.904028, 0},
	}
	for _, tt := range tests {
		f := at(t, m, tt.perMinute/60)
		digits(t, tt.perToken, f.Service/tokens, 6, "service time of a token")
		digits(t, tt.wait, f.Wait, 6, "wait")
		if tt.busy > 0 {
			digits(t, tt.busy, f.Busy, 6, "busy")
		}
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	m := newModel(t, plain, Traffic{Input: 100, Output: 10})
	digits(t, 52.110474, perSecond/m.steps[0], 6, "μ(1)")
	digits(t, 103.199174, perSecond/m.steps[1], 6, "μ(2)")
	digits(t, 389.863548, perSecond/m.steps[7], 6, "μ(8)")
	low, high := m.RateRange()
	digits(t, 0.052110, low, 6, "lowest rate")
	digits(t, 389.473684, high, 6, "highest rate")
	// The reference was computed with a queue of 16 = 2·N.
	m.waiting = 16
	tests := []struct {
		rate    float64
		want    Figures
		refused float64
	}{
		{100, Figures{100, 19.565444, 0.003996, 19.561447, 1.956145, 2.954986, 10.295499, 1.029550, 10.299495, 0.244518, 0, 0}, 0},
		{194.762897, Figures{194.762817, 20.195834, 0.279169, 19.916665, 3.879026, 4.824551, 10.482455, 1.048246, 10.761624, 0.484878, 0, 0}, 0},
		{300, Figures{299.596332, 24.270308, 3.999288, 20.271020, 6.073123, 6.689579, 10.668958, 1.066896, 14.668246, 0.759140, 0, 0}, 0.001346},
		{350.526316, Figures{345.489471, 30.942685, 10.539052, 20.403633, 7.049240, 7.387540, 10.738754, 1.073875, 21.277806, 0.881155, 0, 0}, 0.014369},
	}
	for _, tt := range tests {
		f := at(t, m, tt.rate)
		for of, pair := range map[string][2]float64{
			"throughput": {tt.want.Throughput, f.Throughput}, "sojourn": {tt.want.Sojourn, f.Sojourn}, "wait": {tt.want.Wait, f.Wait}, "service": {tt.want.Service, f.Service},
			"in service": {tt.want.InService, f.InService}, "batch": {tt.want.Batch, f.Batch}, "prefill": {tt.want.Prefill, f.Prefill}, "ITL": {tt.want.ITL, f.ITL},
			"TTFT": {tt.want.TTFT, f.TTFT}, "utilization": {tt.want.Utilization, f.Utilization}, "refused": {tt.refused, f.Refused},
		} {
			digits(t, pair[0], pair[1], 5, of)
		}
	}
	sizes := []struct {
		targets          Targets
		rate, throughput float64
	}{
		{Targets{TTFT: 50}, 389.473684, 370.504077},
		{Targets{ITL: 5}, 389.473684, 370.504077},
		{Targets{TTFT: 50, ITL: 5}, 389.473684, 370.504077},
		{Targets{TTFT: 50, ITL: 5, TPS: 100}, 350.526316, 345.489471},
		{Targets{ITL: 1.05}, 203.94038, 203.940168},
		{Targets{TTFT: 12}, 254.206428, 254.188270},
	}
	for _, tt := range sizes {
		rate, throughput := m.LargestRate(tt.targets)
		digits(t, tt.rate, rate, 5, "rate")
		digits(t, tt.throughput, throughput, 5, "throughput")
	}
	digits(t, 28.741764, at(t, m, high).TTFT, 5, "TTFT at the highest rate")
}

func TestSamples(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name             string
		profile          Profile
		traffic          Traffic
		one, two, batch  float64 // μ
		high, throughput float64
		targets          Targets
	}{
		{"A100", a100, sample, .372616, .727643, 1.389690, 1.388300, 0.815596, Targets{TTFT: 500, ITL: 24}},
		{"A100, TTFT binds", a100, sample, .372616, .727643, 1.389690, 1.388300, 0.492011, Targets{TTFT: 100, ITL: 24}},
		{"L40S", l40s, sample, .399508, .780378, 2.141343, 2.139202, 1.467612, Targets{TTFT: 500, ITL: 24}},
		{"H100", h100, sample, 1.106195, 2.203606, 56.585796, 56.529210, 55.038596, Targets{TTFT: 500, ITL: 24}},
		{"H100, larger TTFT", h100, sample, 1.106195, 2.203606, 56.585796, 56.529210, 55.719575, Targets{TTFT: 1000, ITL: 9}},
		{"H100, ITL binds", h100, sample, 1.106195, 2.203606, 56.585796, 56.529210, 35.699647, Targets{TTFT: 500, ITL: 8}},
		{"demo", demo, Traffic{Input: 128, Output: 512}, .279564, .555793, 35.203322, 35.168119, 10.354218, Targets{TTFT: 1000, ITL: 9}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, tt.profile, tt.traffic)
			digits(t, tt.one, perSecond/m.steps[0], 6, "μ(1)")
			digits(t, tt.two, perSecond/m.steps[1], 6, "μ(2)")
			digits(t, tt.batch, perSecond/m.steps[tt.profile.MaxBatch-1], 6, "μ(N)")
			_, high := m.RateRange()
			digits(t, tt.high, high, 6, "highest rate")
			_, throughput := m.LargestRate(tt.targets)
			digits(t, tt.throughput, throughput, 6, "throughput")
			assert.Equal(t, int64(throughput*1e6), m.Capacity(tt.targets))
		})
	}
	figures := []struct {
		name                  string
		profile               Profile
		traffic               Traffic
		rate, wait, ttft, itl float64
		batch                 float64
	}{
		{"A100", a100, sample, .5, 69.330962, 104.266598, 21.532470, 2.323097},
		{"A100", a100, sample, .9, 697.989528, 744.176730, 21.892871, 0},
		{"A100", a100, sample, 1.2, 0, 3730.486146, 0, 0},
		{"L40S", l40s, sample, .5, 0, 32.927773, 20.069159, 0},
		{"L40S", l40s, sample, 1.2, 0, 201.708248, 20.751901, 4.083950},
		{"H100", h100, sample, 8, 0, 16.299722, 7.201060, 0},
		{"H100", h100, sample, 16, 0, 17.679401, 7.414422, 0},
		{"H100", h100, sample, 24, 0, 19.146159, 7.641251, 0},
		{"H100", h100, sample, 40, 0, 22.536427, 8.140668, 0},
		{"H100", h100, sample, 35.699647, 0, 21.472271, 0, 0},
		{"demo", demo, Traffic{Input: 128, Output: 512}, 8, 0, 0, 8.451003, 0},
		{"demo", demo, Traffic{Input: 128, Output: 512}, 16, 0, 0, 10.660851, 0},
		{"demo", demo, Traffic{Input: 128, Output: 512}, 24, 0, 0, 14.435609, 0},
	}
	for _, tt := range figures {
		f := at(t, newModel(t, tt.profile, tt.traffic), tt.rate)
		for of, pair := range map[string][2]float64{"wait": {tt.wait, f.Wait}, "TTFT": {tt.ttft, f.TTFT}, "ITL": {tt.itl, f.ITL}, "batch": {tt.batch, f.Batch}} {
			if pair[0] > 0 {
				digits(t, pair[0], pair[1], 6, tt.name+" "+of)
			}
		}
	}
	a, l := newModel(t, a100, sample), newModel(t, l40s, sample)
	digits(t, 1.042459, rateOf(a, Targets{ITL: 22}), 6, "A100, arrival rate with which ITL alone is kept")
	f := at(t, a, rateOf(a, Targets{TTFT: 500, ITL: 24}))
	digits(t, 21.82424, f.ITL, 5, "A100 ITL")
	digits(t, .574123, f.Utilization, 6, "A100 utilization")
	f = at(t, l, rateOf(l, Targets{TTFT: 500, ITL: 24}))
	digits(t, 20.986454, f.ITL, 6, "L40S ITL")
	digits(t, .666378, f.Utilization, 6, "L40S utilization")
}

func rateOf(m *Model, targets Targets) float64 {
	rate, _ := m.LargestRate(targets)
	return rate
}

func TestPrefill(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ input, batch, want float64 }{{1000, 1, 11}, {2000, 8, 26}, {500, 2.5, 11.25}, {0, 4, 0}} {
		m := newModel(t, Profile{Alpha: 1, Gamma: 10, Delta: 0.001, MaxBatch: 8}, Traffic{Input: tt.input, Output: 2})
		assert.InDelta(t, tt.want, m.prefillTime(tt.batch), 1e-12)
	}
}

// TestSingleTokens has requests whose only token is made by the prefill, or by one decode step if there is none.
func TestSingleTokens(t *testing.T) {
	t.Parallel()
	p := Profile{Alpha: 5, Beta: 1, Gamma: 10, Delta: 0.1, MaxBatch: 2}
	assert.Equal(t, []float64{20, 15}, newModel(t, p, Traffic{Input: 100, Output: 1}).steps)
	assert.Equal(t, []float64{6, 3.5}, newModel(t, p, Traffic{Output: 1}).steps)
}

// sum adds up all states, as plainly as it can be written.
func sum(m *Model, rate float64) stationary {
	n, places := m.profile.MaxBatch, m.profile.MaxBatch+int(m.waiting)
	logs := make([]float64, places+1)
	top := 0.0
	for k := 1; k <= places; k++ {
		logs[k] = logs[k-1] + math.Log(rate*m.steps[min(k, n)-1])
		top = max(top, logs[k])
	}
	var all, present, served, waits float64
	for k, l := range logs {
		p := math.Exp(l - top)
		all += p
		present += p * float64(k)
		served += p * float64(min(k, n))
		if k >= n && k < places {
			waits += p
		}
	}
	full := math.Exp(logs[places] - top)
	s := stationary{throughput: rate * (1 - full/all), empty: math.Exp(-top) / all, refused: full / all, mustWait: waits / (all - full)}
	s.service = served / all / s.throughput
	s.wait = max(present/all/s.throughput-s.service, 0)
	return s
}

// TestClosedForm compares the closed form of the states above N with the sum over all of them, for batches whose weights do not fit into
// a float64, too.
func TestClosedForm(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 2, 8, 64, 256, 512, 4096} {
		for _, p := range []Profile{{20, 0.4, 5, 0.1, batch}, {7, 0.03, 15, 0.001, batch}, {100, 0, 0, 0, batch}, {0, 1, 0, 0.5, batch}} {
			m := newModel(t, p, Traffic{Input: 150, Output: 170})
			for _, load := range []float64{0.001, 0.1, 0.5, 0.9, 0.99, 0.999} {
				rate := load / m.steps[batch-1]
				want, got := sum(m, rate), m.stationaryAt(rate)
				for of, pair := range map[string][2]float64{
					"throughput": {want.throughput, got.throughput}, "service": {want.service, got.service}, "must wait": {want.mustWait, got.mustWait}, "refused": {want.refused, got.refused},
				} {
					assert.InEpsilon(t, pair[0]+1e-15, pair[1]+1e-15, 1e-8, "%s, batch %d, load %g", of, batch, load)
				}
				assert.InDelta(t, want.wait, got.wait, 1e-8*(want.wait+want.service), "wait, batch %d, load %g", batch, load)
			}
		}
	}
}

// TestProperties checks laws that hold for every profile.
func TestProperties(t *testing.T) {
	t.Parallel()
	for _, p := range []Profile{plain, a100, l40s, h100, demo} {
		for _, traffic := range []Traffic{{100, 10}, {0, 50}, {4000, 1000}, {128, 128}} {
			m := newModel(t, p, traffic)
			low, high := m.RateRange()
			var before Figures
			for step := range 200 {
				f, err := m.FiguresAt(low+(high-low)*float64(step)/200, 90)
				require.NoError(t, err)
				all := sum(m, (low+(high-low)*float64(step)/200)/perSecond)
				assert.InEpsilon(t, all.throughput*(all.wait+all.service), f.Throughput/perSecond*f.Sojourn, 1e-7, "Little's law")
				assert.GreaterOrEqual(t, f.TTFT, before.TTFT*(1-1e-12), "TTFT grows with the rate")
				assert.GreaterOrEqual(t, f.ITL, before.ITL*(1-1e-12), "ITL grows with the rate")
				assert.Greater(t, f.Throughput, before.Throughput)
				assert.LessOrEqual(t, f.Utilization, 1.0)
				before = f
			}
		}
	}
}

// TestLargest checks that a rate keeps its targets, and that no larger one does.
func TestLargest(t *testing.T) {
	t.Parallel()
	for _, p := range []Profile{plain, a100, l40s, h100} {
		m := newModel(t, p, sample)
		low, high := m.RateRange()
		for _, percentile := range []float64{0, 50, 90, 99} {
			for load := 0.05; load < 1; load += 0.09 {
				f, err := m.FiguresAt(low+(high-low)*load, percentile)
				require.NoError(t, err)
				targets := Targets{TTFT: f.TTFT * 1.01, ITL: f.ITL * 1.01, Percentile: percentile}
				rate, throughput := m.LargestRate(targets)
				kept, err := m.FiguresAt(rate, percentile)
				require.NoError(t, err)
				assert.LessOrEqual(t, kept.TTFT, targets.TTFT*(1+1e-9))
				assert.LessOrEqual(t, kept.ITL, targets.ITL*(1+1e-9))
				assert.InEpsilon(t, kept.Throughput, throughput, 1e-12)
				if missed, err := m.FiguresAt(rate*(1+1e-9), percentile); err == nil {
					assert.True(t, missed.TTFT > targets.TTFT*(1-1e-7) || missed.ITL > targets.ITL*(1-1e-7), "the rate is the largest")
				}
			}
		}
	}
	m := newModel(t, a100, sample)
	assert.Zero(t, m.Capacity(Targets{ITL: 20}), "out of reach")
	_, high := m.RateRange()
	rate, _ := m.LargestRate(Targets{})
	assert.InDelta(t, high, rate, 1e-12, "no target")
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	for name, p := range map[string]Profile{
		"alpha": {Alpha: -1, MaxBatch: 1}, "beta": {Beta: nan, MaxBatch: 1}, "gamma": {Gamma: inf, MaxBatch: 1}, "no batch": {Alpha: 1}, "a huge batch": {Alpha: 1, MaxBatch: 1 << 30},
		"no time": {MaxBatch: 4},
	} {
		_, err := New(p, sample)
		require.Error(t, err, name)
	}
	for _, traffic := range []Traffic{{Input: -1, Output: 1}, {Output: 0}, {Input: nan, Output: 1}, {Output: inf}} {
		_, err := New(a100, traffic)
		require.Error(t, err)
	}
	m := newModel(t, a100, sample)
	for _, rate := range []float64{0, -1, nan, 1.4} {
		_, err := m.FiguresAt(rate, 0)
		require.ErrorIs(t, err, errRate)
	}
}

func FuzzCapacity(f *testing.F) {
	f.Add(20.0, 0.4, 5.0, 0.1, 4, 128.0, 128.0, 500.0, 24.0, 90.0)
	f.Fuzz(func(t *testing.T, alpha, beta, gamma, delta float64, batch int, input, output, ttft, itl, percentile float64) {
		if batch > 512 {
			return
		}
		m, err := New(Profile{alpha, beta, gamma, delta, batch}, Traffic{input, output})
		if err != nil {
			return
		}
		_, high := m.RateRange()
		if c := m.Capacity(Targets{TTFT: ttft, ITL: itl, Percentile: percentile}); c < 0 || float64(c) > high*micro {
			t.Fatalf("capacity %d of at most %g", c, high*micro)
		}
	})
}

func BenchmarkCapacity(b *testing.B) {
	for _, batch := range []int{8, 64, 256} {
		p := h100
		p.MaxBatch = batch
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			for b.Loop() {
				m, err := New(p, Traffic{160, 160})
				if err != nil || m.Capacity(Targets{TTFT: 900, ITL: 75, Percentile: 90}) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
