package learn

import (
	"math"
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// traffic is the mean size of requests.
type traffic struct {
	Input  float64
	Output float64
	Cached float64 // part of the input
}

func (t traffic) uncachedInput() float64 { return t.Input * (1 - t.Cached) }

// contextTokens returns the mean number of tokens that a request has in the KV cache while it decodes.
func (t traffic) contextTokens() float64 { return t.Input + t.Output/2 }

// decodeSteps returns the number of decode steps.
func (t traffic) decodeSteps() float64 { return max(t.Output-1, 1) }

// point is what the servers showed at one batch size and one kind of traffic, as an average of samples.
type point struct {
	traffic
	Time    time.Time // of the last sample
	Count   float64
	Anchor  float64 // batch of the first sample: points do not follow a load that changes slowly
	Running float64
	Batch   float64 // that a request meets in a decode step, with itself
	Waiting float64
	Rate    float64
	Prefill float64
	TTFT    float64
	ITL     float64
	KVUsage float64
}

// newPoint returns the point of a sample, or false if the servers had no requests, or did not show how long they took.
func newPoint(s *snapshot.Sample) (point, bool) {
	p := point{
		traffic: traffic{s.Input, s.Output, s.Cached}, Time: s.Time, Count: 1, Running: s.Running, Waiting: s.Waiting, Rate: s.Rate,
		Prefill: s.Prefill, TTFT: s.TTFT, ITL: s.ITL, KVUsage: s.KVUsage,
	}
	if s.Rate <= 0 || s.Output < 1 || p.firstToken() <= 0 && p.ITL <= 0 {
		return p, false
	}
	// The gauge is read a few times in a window; the counters see all of it. They agree unless the load changes.
	service := p.serviceTime()
	if little := s.Rate * service / perSecond; little > 0 {
		switch ratio := s.Running / little; {
		case s.Running == 0:
			p.Running = little
		case ratio > 2./3 && ratio < 1.5:
			p.Running = (s.Running + little) / 2 // mean
		}
	}
	p.Running = min(p.Running, maxRunning)
	// A random arrival finds the mean batch and joins it. Within a window that is shorter than a request, the batch hardly changes.
	p.Batch = max(p.Running, 1)
	if !p.isFull() {
		p.Batch = max(p.Running+1/(1+service/perSecond/s.Window.Seconds()), 1)
	}
	p.Anchor = p.Batch
	return p, p.Running > 0
}

// serviceTime returns the time of a request in the batch, in milliseconds.
func (p *point) serviceTime() float64 { return p.ownPrefill() + p.decodeSteps()*p.ITL }

// ownPrefill returns the time of a prefill without the wait, as far as it is known.
func (p *point) ownPrefill() float64 {
	if p.Prefill > 0 {
		return p.Prefill
	}
	return p.TTFT
}

// firstToken returns the time to the first token of a request that need not wait for a place in the batch, or 0.
func (p *point) firstToken() float64 {
	if p.TTFT > 0 && !p.isFull() && !p.isQueuing() {
		return p.TTFT
	}
	return p.Prefill
}

// isFull reports whether requests wait because the batch has no place.
func (p *point) isFull() bool { return p.Waiting >= fullWaiting && p.Waiting >= full*p.Running }

// isQueuing reports whether so many requests wait that the batch is often full.
func (p *point) isQueuing() bool { return p.Waiting >= often && p.Waiting >= often*p.Running }

// meetsTargets reports whether the targets were kept.
func (p *point) meetsTargets(t queueing.Targets) bool {
	if t.ITL > 0 && p.decodeSteps() > 1 && !(p.ITL > 0 && p.ITL <= t.ITL) {
		return false
	}
	if t.TTFT <= 0 {
		return !p.isFull()
	}
	if p.TTFT <= 0 {
		return false
	}
	prefill := min(p.Prefill, p.TTFT)
	wait := max(p.TTFT-prefill, p.Waiting/p.Rate*perSecond) // those who still wait have no TTFT yet
	return prefill+wait*tailFactor(t.Percentile) <= t.TTFT
}

// tailFactor returns how many times the mean wait its percentile is at most. A part p of the requests waits for an exponential time of the
// mean w/p, so the percentile 1 − late is w/p·ln(p/late). This is largest at p = e·late.
func tailFactor(percentile float64) float64 {
	if percentile <= 0 {
		return 1
	}
	late := 1 - percentile/100 // percent
	if late*math.E >= 1 {
		return max(1, math.Log(1/late))
	}
	return 1 / (late * math.E)
}

// sustainedRate returns the rate that the replica would serve if the batch stayed as it is: by Little's law. In a window, more or fewer
// requests may end than begin.
func (p *point) sustainedRate() float64 {
	if service := p.serviceTime(); service > 0 && p.ITL > 0 {
		return min(p.Rate, p.Running/service*perSecond)
	}
	return p.Rate
}

// isNear reports whether a sample belongs to the point.
func (p *point) isNear(o *point) bool {
	return logDistance(p.Anchor, o.Batch) < pointWidth && p.isSimilar(o.traffic)
}

// isSimilar reports whether requests are of about the same size.
func (t traffic) isSimilar(o traffic) bool {
	return logDistance(t.uncachedInput()+1, o.uncachedInput()+1) < sizeWidth && logDistance(t.Input+1, o.Input+1) < sizeWidth &&
		logDistance(t.Output, o.Output) < sizeWidth
}

func logDistance(a, b float64) float64 { return math.Abs(math.Log(a / b)) }

// mergePoint adds a sample to the nearest point, or makes a new one.
func (l *Learner) mergePoint(p *point) {
	best := -1
	for i := range l.points {
		if l.points[i].isNear(p) && (best < 0 || logDistance(l.points[i].Anchor, p.Batch) < logDistance(l.points[best].Anchor, p.Batch)) {
			best = i
		}
	}
	if best >= 0 {
		l.points[best].addSample(p)
		return
	}
	if len(l.points) == maxPoints {
		l.evictPoint()
	}
	l.points = append(l.points, *p)
}

// evictPoint removes the point that counts least.
func (l *Learner) evictPoint() {
	least := 0
	for i := range l.points {
		if l.points[i].sampleWeight(l.last) < l.points[least].sampleWeight(l.last) {
			least = i
		}
	}
	l.points = append(l.points[:least], l.points[least+1:]...)
}

func (l *Learner) dropExpired() {
	l.points = slices.DeleteFunc(l.points, func(p point) bool { return l.last.Sub(p.Time) > maxAge })
}

// addSample adds a sample.
func (p *point) addSample(o *point) {
	p.Count = min(p.Count+1, pointWeight)
	samples := min(p.Count, pointMemory)
	p.Time = o.Time
	into := func(mean *float64, v float64) {
		step := v - *mean
		if *mean > 0 {
			step = min(max(step, -maxStep**mean), maxStep**mean)
		}
		*mean += step / samples
	}
	known := func(mean *float64, v float64) {
		switch {
		case v <= 0:
		case *mean <= 0:
			*mean = v
		default:
			into(mean, v)
		}
	}
	for _, f := range []struct {
		mean *float64
		v    float64
	}{
		{&p.Input, o.Input}, {&p.Output, o.Output}, {&p.Rate, o.Rate}, {&p.Prefill, o.Prefill}, {&p.TTFT, o.TTFT}, {&p.ITL, o.ITL},
		{&p.KVUsage, o.KVUsage},
	} {
		known(f.mean, f.v)
	}
	into(&p.Cached, o.Cached)
	into(&p.Running, o.Running)
	into(&p.Batch, o.Batch)
	p.Waiting += (o.Waiting - p.Waiting) / samples
}

// sampleWeight returns how much the point counts, in samples.
func (p *point) sampleWeight(now time.Time) float64 {
	age := max(now.Sub(p.Time), 0)
	return p.Count * max(math.Exp2(-age.Hours()/halfLife.Hours()), oldest)
}

// isUsable reports whether a sample is possible and comes from replicas.
func isUsable(s *snapshot.Sample) bool {
	return s != nil && s.Replicas > 0 && s.Window > 0 &&
		inRange(maxRate, s.Rate) && inRange(maxTokens, s.Input, s.Output) && inRange(1, s.Cached, s.KVUsage) &&
		inRange(maxRunning, s.Running) && inRange(maxWaiting, s.Waiting) && inRange(maxTime, s.Prefill, s.TTFT, s.ITL) && inRange(maxKV,
		s.KVTokens)
}

func isUsablePicker(p *snapshot.PickerSample) bool {
	return inRange(maxTokens, p.PrefillRate) && inRange(maxRunning, p.BatchCapacity)
}

// inRange reports whether all numbers are from 0 to most.
func inRange(most float64, numbers ...float64) bool {
	return slices.Min(numbers) >= 0 && slices.Max(numbers) <= most // not for NaN
}
