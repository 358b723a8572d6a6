package collect

import (
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	perSecond = 1e6 // micro-requests
	perMilli  = 1e3 // seconds to milliseconds
	maxRate   = 1e9 // requests per second: more than any server gets
)

// settledAfter is how many windows a pod must be ready for its metrics to be expected. With one, pods that were not scraped twice yet
// would count as if they took the mean load of others, and raise the load of a group that has just grown.
const settledAfter = 2

// window is what an answer says about the pods of a group.
type window struct {
	*Options
	now     time.Time
	group   *Group
	figures figures

	ready    []string // pods that are ready
	settled  []string // of these, those that should have metrics
	measured []string // pods with metrics, ready or not
	stale    []string // settled pods whose newest metrics are too old

	finished, arrived map[string]float64 // requests per second of each measured pod
	sent              map[string]float64 // by the picker, to each pod
	refused           float64
	begun             float64 // requests per second of new pods that were scraped once: an empty pod gets most requests
	picker            bool    // whether a picker of the pool is there
}

// classifyPods finds out which pods are ready, settled, measured or stale.
func (w *window) classifyPods() {
	w.finished, w.arrived = map[string]float64{}, map[string]float64{}
	for _, v := range w.group.Variants {
		for _, p := range v.Pods {
			if !p.Ready.IsZero() {
				w.ready = append(w.ready, p.Name)
				if w.now.Sub(p.Ready) > settledAfter*w.Window {
					w.settled = append(w.settled, p.Name)
				}
			}
			w.measurePod(&p)
		}
	}
	w.readPicks()
}

// measurePod reads the requests of a pod.
func (w *window) measurePod(p *snapshot.Pod) {
	pod := p.Name
	clockNow, known := w.figures.value(clock, "")
	at, sampled := w.figures.value(sampled, pod)
	if !known || !sampled {
		return
	}
	if clockNow-at > staleAfter.Seconds() {
		w.stale = append(w.stale, pod)
		return
	}
	inside := w.figures[runningNow][pod] + w.figures[waitingNow][pod]
	isNew := !p.Ready.IsZero() && w.now.Sub(p.Ready) < w.Window
	growth, grown := w.figures.value(runningGrowth, pod)
	done, counted := w.figures.value(finished, pod)
	if !counted {
		// Two samples of a gauge, and none of a counter that begins with its first event.
		if _, lazily := w.figures.value(lazy, pod); !lazily || !grown {
			if isNew {
				w.begun += inside / w.Window.Seconds()
			}
			return
		}
	}
	growth += w.figures[waitingGrowth][pod]
	w.measured = append(w.measured, pod)
	w.finished[pod] = done
	if isNew { // it had none when it became ready; by its first scrape it may have many
		growth = max(growth, inside)
	}
	// Requests that were in the pod before and did not finish are gone: the server restarted.
	w.arrived[pod] = max(done+growth/w.Window.Seconds(), w.figures[received][pod], 0)
}

// readPicks reads what the picker sent to each pod, from the metric that has the most: pickers have one, or several with the same
// requests.
func (w *window) readPicks() {
	w.picker = w.figures.hasValue(pickerReady)
	w.refused = w.figures[refused][""]
	w.sent = map[string]float64{}
	most := 0.0
	pods := w.podNames()
	for _, source := range []string{picks, attempts, oldAttempts} {
		if n := w.figures.podSum(source, pods); n > most {
			most, w.sent = n, w.figures[source]
		}
	}
}

func (w *window) podNames() []string {
	var names []string
	for _, v := range w.group.Variants {
		for _, p := range v.Pods {
			names = append(names, p.Name)
		}
	}
	return names
}

// computeLoad returns the load, or why it is not known.
func (w *window) computeLoad() snapshot.Load {
	if _, known := w.figures.value(clock, ""); !known {
		return failedLoad("Prometheus answered without its time: check that PROMETHEUS_BASE_URL leads to a Prometheus, and that no proxy changes answers")
	}
	unseen := slices.DeleteFunc(slices.Clone(w.settled), sets.New(w.measured...).Has)
	if len(w.measured) == 0 && len(w.settled) == 0 || 2*len(unseen) > len(w.settled) {
		if len(w.settled) == 0 && w.picker {
			return w.measuredLoad(nil)
		}
		return w.unknownLoad(unseen)
	}
	return w.measuredLoad(unseen)
}

func (w *window) unknownLoad(unseen []string) snapshot.Load {
	model := fmt.Sprintf("model %q in namespace %s", w.group.Model, w.group.Namespace)
	switch {
	case len(w.stale) > 0:
		age := math.Inf(1)
		for _, pod := range w.stale {
			age = min(age, w.figures[clock][""]-w.figures[sampled][pod])
		}
		return staleLoad(model, age)
	case len(w.ready) == 0:
		return missingLoad(model + " has no ready pods, and no endpoint picker with metrics: requests can only be seen when a pod is ready. " +
			"Let Prometheus scrape the picker of the InferencePool")
	case len(w.settled) == 0:
		return missingLoad(fmt.Sprintf("the pods of %s have been ready for less than %v: wait for Prometheus to scrape them twice", model,
			settledAfter*w.Window))
	}
	return missingLoad(fmt.Sprintf("Prometheus has no metrics of %d of %d ready pods of %s, such as %s: let a PodMonitor scrape them, so that their series have "+
		"the labels namespace and pod, at least twice in %v, and check that the model is served under this name",
		len(unseen), len(w.settled), model, unseen[0], w.Window))
}

func missingLoad(message string) snapshot.Load {
	return snapshot.Load{State: snapshot.Missing, Message: message}
}

func staleLoad(model string, age float64) snapshot.Load {
	return snapshot.Load{State: snapshot.Stale, Message: fmt.Sprintf("the newest metrics of %s in Prometheus are %v old: check the scrape targets of its pods",
		model, time.Duration(age*float64(time.Second)).Round(time.Second))}
}

// measuredLoad returns the load of measured pods, and of some that have no metrics.
func (w *window) measuredLoad(unseen []string) snapshot.Load {
	done := w.totalRate(w.finished, unseen)
	arrived := w.totalRate(w.arrived, unseen) + w.begun
	sent := w.refused
	for _, pod := range w.podNames() {
		sent += w.sent[pod]
	}
	rate := max(done, arrived, sent)
	if rate > maxRate {
		return failedLoad(fmt.Sprintf("the metrics of model %q in namespace %s say %.3g requests per second, which cannot be: check what its pods export",
			w.group.Model, w.group.Namespace, rate))
	}
	f := w.figures
	load := snapshot.Load{
		State:  snapshot.Found,
		Rate:   int64(math.Round(rate * perSecond)),
		Input:  f.podRatio(inputTokens, inputs, w.measured),
		Cached: min(f.podRatio(cacheHits, cacheLookups, w.measured), 1),
		Output: f.podRatio(outputTokens, outputs, w.measured),
		Queued: f[queued][""], Waiting: f.podSum(waitingNow, w.podNames()),
		TTFT: f.podRatio(ttftSum, ttftCount, w.measured) * perMilli,
		ITL:  f.podRatio(itlSum, itlCount, w.measured) * perMilli,
	}
	if len(unseen) > 0 {
		load.Message = fmt.Sprintf("%d of %d ready pods have no metrics in Prometheus, such as %s: their load is taken for the mean of the others. "+
			"Check their scrape targets", len(unseen), len(w.settled), unseen[0])
	}
	return load
}

// totalRate returns the sum of measured pods, and for each unseen one the mean of its variant's, or else of all.
func (w *window) totalRate(rates map[string]float64, unseen []string) float64 {
	total := 0.0
	for _, rate := range rates {
		total += rate
	}
	if len(unseen) == 0 || len(rates) == 0 {
		return total
	}
	mean, added, unseenPods := total/float64(len(rates)), 0.0, sets.New(unseen...)
	for _, v := range w.group.Variants {
		own, n, blank := 0.0, 0, 0
		for _, p := range v.Pods {
			if rate, ok := rates[p.Name]; ok {
				own += rate
				n++
			} else if unseenPods.Has(p.Name) {
				blank++
			}
		}
		podRate := mean
		if n > 0 {
			podRate = own / float64(n)
		}
		added += podRate * float64(blank)
	}
	return total + added
}

// meanSample returns the means over the ready replicas of a variant that have metrics.
func (w *window) meanSample(variant int) *snapshot.Sample {
	var pods []string
	for _, p := range w.group.Variants[variant].Pods {
		if _, ok := w.finished[p.Name]; ok && !p.Ready.IsZero() {
			pods = append(pods, p.Name)
		}
	}
	if len(pods) == 0 {
		return nil
	}
	f, n := w.figures, float64(len(pods))
	s := &snapshot.Sample{
		Time: w.now, Window: w.Window, Replicas: len(pods),
		Input:    f.podRatio(inputTokens, inputs, pods),
		Output:   f.podRatio(outputTokens, outputs, pods),
		Cached:   min(f.podRatio(cacheHits, cacheLookups, pods), 1),
		Running:  f.podMean(running, pods),
		Waiting:  f.podMean(waiting, pods),
		Prefill:  f.podRatio(prefillSum, prefillCount, pods) * perMilli,
		TTFT:     f.podRatio(ttftSum, ttftCount, pods) * perMilli,
		ITL:      f.podRatio(itlSum, itlCount, pods) * perMilli,
		KVUsage:  min(f.podMean(kvUsage, pods), 1),
		KVTokens: f.podMean(kvTokens, pods),
		Picker:   w.pickerFigures(pods),
	}
	for _, pod := range pods {
		s.Rate += w.finished[pod] / n
	}
	return s
}

// podUsages returns what the ready replicas of a variant have in use. A server that does not show both is left out.
func (w *window) podUsages(variant int) []Usage {
	var usages []Usage
	for _, p := range w.group.Variants[variant].Pods {
		_, current := w.finished[p.Name]
		kv, used := w.figures.value(kvUsage, p.Name)
		requests, queues := w.figures.value(waiting, p.Name)
		if current && used && queues && !p.Ready.IsZero() {
			usages = append(usages, Usage{KV: min(kv, 1), Waiting: requests})
		}
	}
	return usages
}

// pickerFigures returns what the picker learned of the servers of a variant, or nil if it learned nothing yet.
func (w *window) pickerFigures(pods []string) *snapshot.PickerSample {
	if !slices.ContainsFunc(pods, func(pod string) bool { _, says := w.figures.value(backlog, pod); return says }) {
		return w.derivedFigures(pods)
	}
	p := &snapshot.PickerSample{PrefillRate: rateOf(w.figures.podMean(tokenTime, pods)), BatchCapacity: w.figures.podMean(batch, pods)}
	if *p == (snapshot.PickerSample{}) {
		return nil
	}
	return p
}

// derivedFigures is pickerFigures for an older picker, which has only the speed of the pool and factors of its servers. Before it sent a
// request it learned nothing: its figures are then those that it begins with.
func (w *window) derivedFigures(pods []string) *snapshot.PickerSample {
	rate := rateOf(w.figures[perToken][""] * w.figures.podMean(slowdown, pods))
	if rate == 0 || len(w.sent) == 0 {
		return nil
	}
	return &snapshot.PickerSample{PrefillRate: rate}
}

// minTokenTime is less than any server needs for a token of a prompt, in seconds.
const minTokenTime = 1e-9

// rateOf returns the tokens per second of a time, or 0 for an impossible time.
func rateOf(tokenTime float64) float64 {
	if tokenTime < minTokenTime {
		return 0
	}
	return 1 / tokenTime
}

// replicaWeight returns the requests that a replica of a variant got while it was ready, in micro-requests per second: those that the
// picker sent, or, if most requests pass it by, those that arrived.
func (w *window) replicaWeight(variant int) int64 {
	rates, seen := w.sent, 0.0
	for _, pod := range w.podNames() {
		seen += w.sent[pod]
	}
	arrived := 0.0
	for _, rate := range w.arrived {
		arrived += rate
	}
	if 2*seen < arrived {
		rates = w.arrived
	}
	requests, replicaSeconds := 0.0, 0.0
	for _, p := range w.group.Variants[variant].Pods {
		rate, counted := rates[p.Name]
		age := w.now.Sub(p.Ready)
		if p.Ready.IsZero() || (!counted && age <= settledAfter*w.Window) { // what a new one gets is not counted yet
			continue
		}
		requests += rate * w.Window.Seconds()
		replicaSeconds += min(max(age, 0), w.Window).Seconds()
	}
	if replicaSeconds <= 0 {
		return 0
	}
	return int64(math.Round(min(requests/replicaSeconds, maxRate) * perSecond))
}
