package episode

import (
	"math"

	"fairlead.dev/services/variant-autoscaler/test/modelserver"
)

// hpa is a HorizontalPodAutoscaler on one external metric with an AverageValue. Zero policies do not limit.
type hpa struct {
	tolerance  float64
	window     float64 // of stabilization, for scaling down
	up         func(replicas int) int
	upPeriod   float64
	down       int // replicas per period
	downPeriod float64

	recommended []recommended
	changes     []change
}

type recommended struct {
	at float64
	n  int
}

type change struct {
	at float64
	by int
}

const hpaEvery = 15

// syncReplicas sets the wanted replicas of a deployment, from the value of the metric divided by its target.
func (h *hpa) syncReplicas(d *deployment, now, metric float64) {
	current, want := d.wanted, d.wanted
	if current == 0 || math.Abs(metric/float64(current)-1) > h.tolerance {
		want = int(math.Ceil(metric - 1e-9))
	}
	want = min(max(h.stabilizedWant(now, current, want), d.Min), d.Max)
	switch {
	case want > current && h.up != nil:
		want = min(want, h.up(current-h.changedReplicas(now, h.upPeriod, 1)))
	case want < current && h.down > 0:
		want = max(want, current+h.changedReplicas(now, h.downPeriod, -1)*-1-h.down)
	}
	if want != current {
		h.changes = append(h.changes, change{now, want - current})
		d.wanted = want
	}
}

// stabilizedWant returns the largest recommendation of the window, if the replicas are to become fewer.
func (h *hpa) stabilizedWant(now float64, current, want int) int {
	if h.recommended == nil { // what is there counts as recommended when it begins
		h.recommended = []recommended{{now, current}}
	}
	h.recommended = append(h.recommended, recommended{now, want})
	kept, most := h.recommended[:0], want
	for _, r := range h.recommended {
		if r.at > now-h.window || r.at == now {
			kept = append(kept, r)
			most = max(most, r.n)
		}
	}
	h.recommended = kept
	if want < current {
		return min(most, current)
	}
	return want
}

// changedReplicas returns the replicas that were added in a period, or taken away as a negative number.
func (h *hpa) changedReplicas(now, period float64, sign int) int {
	total := 0
	for _, c := range h.changes {
		if c.at > now-period && c.by*sign > 0 {
			total += c.by
		}
	}
	return total
}

// NewStatic keeps the replicas.
func NewStatic(*Scenario) scaler { return static{} }

type static struct{}

func (static) stepSecond(*world) {}

// sloAware is the SLO-aware law of llm-d on KEDA: the worst of both objectives at the 90th percentile, as a part of the objective, at
// most 2, smoothed over 45 s. It scales up above 0.55 and down below 0.40. Starting replicas get credit.
type sloAware struct {
	hpa          hpa
	last         []float64
	above, below float64
}

// SLOAware returns the law with the published thresholds.
func SLOAware(s *Scenario) scaler { return SLOAwareAt(0.55, 0.40)(s) }

// SLOAwareAt returns the law with other thresholds.
func SLOAwareAt(above, below float64) func(*Scenario) scaler {
	return func(*Scenario) scaler {
		return &sloAware{
			hpa:   hpa{window: 0, up: func(n int) int { return n + max(n, 4) }, upPeriod: 60, down: 1, downPeriod: 120},
			above: above, below: below,
		}
	}
}

// lastTimes returns percentiles of the TTFT and of the time between tokens of the last minute. These are from histograms of the servers.
func (w *world) lastTimes(percentile float64) (first, rest float64) {
	const window = 60
	var firsts []float64
	for i := len(w.requests) - 1; i >= 0 && w.requests[i].Arrived > w.now-600; i-- {
		if q := w.requests[i]; q.First > w.now-window && q.First <= w.now {
			firsts = append(firsts, q.First-q.Arrived)
		}
	}
	var counts [len(modelserver.Buckets) + 1]float64
	for _, p := range w.deployments[0].pods {
		if seen := scrapesAfter(p.scrapes, w.now-window); len(seen) > 1 {
			for i := range counts {
				counts[i] += seen[len(seen)-1].page.ITLs[i] - seen[0].page.ITLs[i]
			}
		}
	}
	return modelserver.QuantileOf(firsts, percentile), modelserver.ITLQuantile(counts, percentile)
}

func (s *sloAware) stepSecond(w *world) {
	if int(w.now)%hpaEvery != 7 {
		return
	}
	d := w.deployments[0]
	const percentile, most = 90, 2
	first, rest := w.lastTimes(percentile)
	worst := min(max(first/w.TTFT, rest/w.TPOT), most)
	s.last = append(s.last, worst)
	s.last = s.last[max(0, len(s.last)-3):]
	smooth := modelserver.QuantileOf(s.last, 0)
	ready := 0
	for _, p := range d.pods {
		if p.isServing(w.now) {
			ready++
		}
	}
	switch credit := min(float64(ready)/float64(max(d.wanted, 1)), 1); {
	case smooth*credit > s.above:
		s.hpa.syncReplicas(d, w.now, float64(d.wanted)*smooth*credit/s.above)
	case smooth < s.below:
		s.hpa.syncReplicas(d, w.now, float64(d.wanted)*smooth/s.below)
	default:
		s.hpa.syncReplicas(d, w.now, float64(d.wanted))
	}
}

// tokenAware is the token-aware law: prompts in flight take a prefill throughput that was measured by hand, and may take the objective
// less the time of an idle server. The KV cache may be filled to 80 %.
type tokenAware struct{ hpa hpa }

// TokenAware returns the law, with the usual behavior of a HorizontalPodAutoscaler.
func TokenAware(*Scenario) scaler {
	return &tokenAware{hpa: hpa{tolerance: 0.1, window: 300, up: func(n int) int { return n + max(n, 4) }, upPeriod: 15}}
}

func (s *tokenAware) stepSecond(w *world) {
	if int(w.now)%hpaEvery != 7 {
		return
	}
	d := w.deployments[0]
	prompts, usage := 0.0, 0.0
	for _, p := range d.pods {
		if !p.isServing(w.now) || len(p.scrapes) == 0 {
			continue
		}
		usage += p.scrapes[len(p.scrapes)-1].page.Usage
	}
	for i := len(w.requests) - 1; i >= 0 && w.requests[i].Arrived > w.now-600; i-- {
		if q := w.requests[i]; q.First == 0 || q.First > w.now {
			prompts += float64(q.Input - q.Cached)
		}
	}
	const fill, floor = 0.8, 0.3
	s.hpa.syncReplicas(d, w.now, max(prompts/d.Prefill/(w.TTFT-floor), usage/fill))
}
