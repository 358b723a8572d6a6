package memory

import (
	"math"
	"slices"
	"time"
)

const (
	// trendWindow is the time over which a trend is taken.
	trendWindow = 5 * time.Minute
	// trendSamples is the fewest samples of a trend.
	trendSamples = 4
	// maxTrend bounds what a trend adds, as a multiple of the largest rate in the window.
	maxTrend = 2
	// steadyDeviations is how many standard deviations of Poisson arrivals two rates may be apart to count as one load.
	steadyDeviations = 2
	// maxSamples bounds the samples of a window: passes that events cause can be many.
	maxSamples = 256
)

// trend is the line through the rates of a window.
type trend struct{ samples []rateSample }

type rateSample struct {
	at   time.Time
	rate float64
}

func (t *trend) addRate(at time.Time, rate float64) {
	kept := slices.DeleteFunc(t.samples, func(s rateSample) bool { return at.Sub(s.at) > trendWindow })
	t.samples = append(kept[max(0, len(kept)-maxSamples+1):], rateSample{at: at, rate: rate})
}

// rateAfter returns the rate of the line a time after the last sample, or 0 without enough samples.
func (t *trend) rateAfter(ahead time.Duration) float64 {
	n := float64(len(t.samples))
	if n < trendSamples {
		return 0
	}
	last := t.samples[len(t.samples)-1].at
	var sumX, sumY, sumXX, sumXY, largest float64
	for _, s := range t.samples {
		x := s.at.Sub(last).Seconds()
		sumX, sumY, sumXX, sumXY = sumX+x, sumY+s.rate, sumXX+x*x, sumXY+x*s.rate
		largest = max(largest, s.rate)
	}
	spread := n*sumXX - sumX*sumX
	if spread <= 0 {
		return 0
	}
	slope := (n*sumXY - sumX*sumY) / spread
	return min((sumY-slope*sumX)/n+slope*ahead.Seconds(), maxTrend*largest)
}

// steadyMean returns the mean of the last rates that are one load: back to the first one that differs from the mean of those after it by
// more than chance. Each was counted over a window.
func (t *trend) steadyMean(window time.Duration) float64 {
	mean, n := 0.0, 0.0
	for i := len(t.samples) - 1; i >= 0; i-- {
		rate := t.samples[i].rate
		if n > 0 {
			chance := math.Sqrt((rate+mean/n)/perSecond/window.Seconds()) * perSecond
			if math.Abs(rate-mean) > steadyDeviations*chance {
				break
			}
		}
		mean += (rate - mean) / (n + 1)
		n++
	}
	return mean
}
