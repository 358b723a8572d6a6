// Package queueing predicts what one replica of a model server shows at a given load, and the largest load at which it keeps its
// targets. It is pure: the same profile, traffic and targets give the same result.
//
// A replica serves a batch of up to N requests, and its speed depends on the batch. With i input and o output tokens, of which
// prefill makes the first,
//
//	prefill of a batch of n      γ + δ·i·n        0 if i = 0
//	decode step of a batch of n  α + β·n
//	decode steps D               o − 1            1 if i = 0 and o = 1
//
// so n requests take γ + αD + (δi + βD)·n together. Up to 10·N requests wait in front of the batch. Arrivals are random (Poisson), and
// requests beyond the queue are refused: a birth-death process, whose states above N have a closed form.
//
// Times are in milliseconds, rates in requests per second.
package queueing

import (
	"errors"
	"fmt"
	"math"
)

const (
	// queuePerSlot is the number of requests that may wait for each slot of the batch. Upstream has the same. Double the queue raises
	// the largest wait, and refuses less only above 95 % load; half of it refuses 1 % of the requests there.
	queuePerSlot = 10
	// edge is how near to idle and to full load the model is used: outside, its figures are not meaningful.
	edge = 0.001
	// stable is the part of the largest rate that may be used if a target for tokens per second says nothing about latency.
	stable = 0.9

	perSecond = 1e3 // milliseconds
	micro     = 1e6
)

// Profile holds the measured service times of a replica.
type Profile struct {
	// Decode step, in ms and in ms for each request of the batch.
	Alpha float64 `json:"alpha"`
	Beta  float64 `json:"beta"`
	// Prefill, in ms and in ms for each input token and request of the batch.
	Gamma    float64 `json:"gamma"`
	Delta    float64 `json:"delta"`
	MaxBatch int     `json:"maxBatch"`
}

// Traffic is the mean size of requests.
type Traffic struct{ Input, Output float64 }

// Targets are what a replica has to keep. Zero: no target.
type Targets struct {
	TTFT, ITL float64
	// TPS is a target for output tokens per second. It limits a replica to a stable load.
	TPS float64
	// Percentile of TTFT, above 0 and below 100. Zero: the mean. ITL is the mean.
	Percentile float64
}

// Figures are what a replica shows at one arrival rate.
type Figures struct {
	Throughput  float64 // requests served
	Sojourn     float64 // of a request, with its wait
	Wait        float64 // mean
	Service     float64 // without the wait
	InService   float64 // mean number of requests
	Batch       float64 // size that explains the mean service time
	Prefill     float64 // of this batch
	ITL, TTFT   float64
	Utilization float64 // of the slots
	Busy        float64 // part of the time in which the replica is not empty
	Refused     float64 // part of the arrivals
}

// Model is one replica under given traffic. It is safe for concurrent use.
type Model struct {
	profile     Profile
	traffic     Traffic
	decodes     float64
	base, slope float64   // service time of a batch
	steps       []float64 // steps[n-1]: service time per request of a batch of n
	waiting     float64   // places in the queue
	low, high   float64   // rates, per ms
}

var errRate = errors.New("the rate is outside of the model")

// New returns a Model, or an error that names the invalid number.
func New(p Profile, t Traffic) (*Model, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	if !(t.Input >= 0) || !(t.Output >= 1) || math.IsInf(t.Input, 0) || math.IsInf(t.Output, 0) {
		return nil, fmt.Errorf("requests of %g input and %g output tokens", t.Input, t.Output)
	}
	m := &Model{
		profile: p, traffic: t, decodes: t.Output - 1, waiting: float64(queuePerSlot * p.MaxBatch), steps: make([]float64, p.MaxBatch),
	}
	if t.Input == 0 && t.Output == 1 {
		m.decodes = 1
	}
	m.base, m.slope = m.decodes*p.Alpha, m.decodes*p.Beta
	if t.Input > 0 {
		m.base += p.Gamma
		m.slope += p.Delta * t.Input
	}
	for i := range m.steps {
		m.steps[i] = m.base/float64(i+1) + m.slope
	}
	m.low, m.high = edge/m.steps[0], (1-edge)/m.steps[p.MaxBatch-1]
	if !(m.low > 0) || math.IsInf(m.high, 0) {
		return nil, fmt.Errorf("a profile with which a batch takes %g ms", m.base+m.slope)
	}
	return m, nil
}

// maxBatch bounds the states of the model. Servers have 256 or 512 slots.
const maxBatch = 1 << 16

func (p *Profile) validate() error {
	for name, x := range map[string]float64{"alpha": p.Alpha, "beta": p.Beta, "gamma": p.Gamma, "delta": p.Delta} {
		if !(x >= 0) || math.IsInf(x, 0) {
			return fmt.Errorf("a profile with %s %g", name, x)
		}
	}
	if p.MaxBatch < 1 || p.MaxBatch > maxBatch {
		return fmt.Errorf("a profile with a batch of %d requests: 1 to %d are possible", p.MaxBatch, maxBatch)
	}
	return nil
}

// RateRange returns the lowest and the highest rate of the model.
func (m *Model) RateRange() (low, high float64) { return m.low * perSecond, m.high * perSecond }

// FiguresAt returns the figures at an arrival rate, TTFT at a percentile, 0 for the mean.
func (m *Model) FiguresAt(rate, percentile float64) (Figures, error) {
	rate /= perSecond
	if !(rate > 0) || rate > m.high {
		return Figures{}, errRate
	}
	s := m.stationaryAt(rate)
	f := Figures{
		Throughput: s.throughput * perSecond, Wait: s.wait, Service: s.service, Sojourn: s.wait + s.service,
		InService: s.service * s.throughput, Batch: m.batchFor(s.service), Busy: 1 - s.empty, Refused: s.refused,
	}
	f.Utilization = min(f.InService/float64(m.profile.MaxBatch), 1)
	f.Prefill = m.prefillTime(f.Batch)
	f.ITL = m.profile.Alpha + m.profile.Beta*f.Batch
	f.TTFT = s.waitAt(percentile) + f.Prefill
	return f, nil
}

// LargestRate returns the largest arrival rate that keeps the targets, and what is served of it. Both are 0 if not even the lowest rate of
// the model keeps them.
func (m *Model) LargestRate(t Targets) (rate, throughput float64) {
	excess := func(rate float64) float64 { return m.targetExcess(rate, &t) }
	low, high := m.low, m.high
	if t.TPS > 0 {
		high *= stable
	}
	switch {
	case excess(low) > 0:
		return 0, 0
	case excess(high) <= 0:
		low = high
	default:
		low = findRoot(excess, low, high)
	}
	return low * perSecond, m.stationaryAt(low).throughput * perSecond
}

// Capacity returns what a replica serves within the targets, in whole micro-requests per second. It is 0 if they are out of reach.
func (m *Model) Capacity(t Targets) int64 {
	_, throughput := m.LargestRate(t)
	return int64(throughput * micro)
}

// targetExcess is positive if a rate misses a target, and grows with the rate.
func (m *Model) targetExcess(rate float64, t *Targets) float64 {
	s := m.stationaryAt(rate)
	batch := m.batchFor(s.service)
	worst := -1.0
	if t.TTFT > 0 {
		worst = max(worst, (s.waitAt(t.Percentile)+m.prefillTime(batch))/t.TTFT-1)
	}
	if t.ITL > 0 {
		worst = max(worst, (m.profile.Alpha+m.profile.Beta*batch)/t.ITL-1)
	}
	return worst
}

func (m *Model) prefillTime(batch float64) float64 {
	if m.traffic.Input == 0 {
		return 0
	}
	return m.profile.Gamma + m.profile.Delta*m.traffic.Input*batch
}

// batchFor returns the size that explains a mean service time.
func (m *Model) batchFor(service float64) float64 {
	p, slots := &m.profile, float64(m.profile.MaxBatch)
	over := service - (p.Gamma + p.Alpha*m.decodes)
	slope := p.Delta*m.traffic.Input + p.Beta*m.decodes
	if slope == 0 {
		if over < 0 {
			return 0
		}
		return slots
	}
	return min(max(over/slope, 0), slots)
}

// stationary is the stationary state at one rate, per ms.
type stationary struct {
	throughput, wait, service float64
	mustWait                  float64 // part of the accepted requests that do not start at once
	empty, refused            float64
}

// block is the number of states between two looks at the size of the sums: a state is at most maxBatch times as likely as the one
// before, so a block adds 155 digits at most.
const block = 32

// stationaryAt sums over the states up to N, relative to the probability of the empty replica, and adds the states above in closed form.
func (m *Model) stationaryAt(rate float64) stationary {
	const large = 1e100
	weight, empty, all, present := 1.0, 1.0, 1.0, 0.0
	n := 0.0
	for steps := m.steps; len(steps) > 0; {
		part := steps[:min(block, len(steps))]
		steps = steps[len(part):]
		for _, step := range part {
			n++
			weight *= rate * step
			all += weight
			present += weight * n
		}
		if weight > large || all > large {
			weight, empty, all, present = weight/large, empty/large, all/large, present/large
		}
	}
	// A state above N is r times as likely as the one before.
	r, places := rate*m.steps[len(m.steps)-1], m.waiting
	power := math.Pow(r, places)
	states := r * (1 - power) / (1 - r)                                          // Σ r^k
	waiting := r * (1 - (places+1)*power + places*power*r) / ((1 - r) * (1 - r)) // Σ k·r^k
	served := present + n*weight*states
	all += weight * states
	full := weight * power
	s := stationary{throughput: rate * (1 - full/all), empty: empty / all, refused: full / all}
	s.service = served / all / s.throughput
	s.wait = weight * waiting / all / s.throughput
	s.mustWait = weight * (1 - power) / (1 - r) / (all - full)
	return s
}

// waitAt returns a percentile of the wait, or its mean for 0. A request that has to wait does so for a nearly exponential time.
func (s *stationary) waitAt(percentile float64) float64 {
	if percentile == 0 {
		return s.wait
	}
	late := 1 - percentile/100 // percent
	if s.mustWait <= late {
		return 0
	}
	return s.wait / s.mustWait * math.Log(s.mustWait/late)
}
