package debugpage

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	unknown := float32(math.NaN())
	at := func(minute int64, rate float32) point { return point{at: 60 * minute, rate: rate} }
	tests := []struct {
		name string
		give points
		want string
	}{
		{"nothing", nil, ""},
		{"one", points{at(100, 5)}, "M298.0 30.0h0"},
		{"a line", points{at(0, 0), at(50, 10), at(100, 5)}, "M2.0 58.0h0L150.0 2.0L298.0 30.0"},
		{"not known for a time", points{at(0, 0), at(50, unknown), at(100, 5)}, "M2.0 58.0h0M298.0 30.0h0"},
		{"before the chart", points{at(-1, 5), at(100, 5)}, "M298.0 30.0h0"},
		{"too high", points{at(100, 50)}, "M298.0 2.0h0"},
		{"no passes for a time", points{at(0, 5), at(1, 5), at(2, 5), at(6, 5)}, "M2.0 30.0h0L5.0 30.0L7.9 30.0M19.8 30.0h0"},
		{"long between passes", points{at(0, 5), at(10, 5), at(40, 5), at(50, 5)}, "M2.0 30.0h0L31.6 30.0L120.4 30.0L150.0 30.0"},
	}
	for _, tt := range tests {
		d := drawing{points: tt.give, from: 0, to: 6000, gap: tt.give.maxGap()}
		assert.Equal(t, tt.want, d.linePath(func(p *point) float32 { return p.rate }, 10), tt.name)
	}
	d := drawing{points: points{at(100, 0)}, from: 0, to: 6000}
	assert.Equal(t, "M298.0 58.0h0", d.linePath(func(p *point) float32 { return p.rate }, 0), "only zeros")
}

// TestTargetIsInTheChart: a mean far above its target does not hide where the target is.
func TestTargetIsInTheChart(t *testing.T) {
	t.Parallel()
	v := &view{Time: noon, Since: noon}
	for ratio, want := range map[float32]string{0.5: "M0 2.0H300", 1.6: "M0 23.0H300", 50: "M0 30.0H300"} {
		c := v.Charts(&model{History: points{{at: noon.Unix(), ttft: ratio, itl: float32(math.NaN())}}})[2]
		assert.Equal(t, want, c.Mark, ratio)
		assert.True(t, c.Lines[0].Known)
		assert.InDelta(t, ratio, c.Lines[0].Last, 1e-6)
		assert.False(t, c.Lines[1].Known)
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for since, want := range map[time.Duration]time.Duration{0: shortest, time.Hour: time.Hour, 24 * time.Hour: history} {
		assert.Equal(t, want, (&view{Time: noon, Since: noon.Add(-since)}).Span())
	}
}
