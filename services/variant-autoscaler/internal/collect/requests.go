package collect

import (
	"context"
	"fmt"
	"math"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// diagnoseMissing tells a scrape that ended from one that never was. Prometheus forgets a target that is gone at once, and other series
// after its lookback, so neither shows in a query for the present.
func (c *Collector) diagnoseMissing(ctx context.Context, selected *selection, load snapshot.Load) snapshot.Load {
	vector, err := c.querier.Query(ctx, selected.newestQuery())
	if err != nil {
		return failedLoad(err.Error())
	}
	f := readFigures(selected.namespace, vector)
	age := math.Inf(1)
	for _, at := range f[sampled] {
		age = min(age, f[clock][""]-at)
	}
	if age < staleAfter.Seconds() || math.IsInf(age, 1) {
		return load
	}
	return staleLoad(fmt.Sprintf("model %q in namespace %s", selected.model, selected.namespace), age)
}

// retainedRequests returns the requests of the retention period of a group, or why they are not known.
//
//	engines have metrics of the period, those   their finished requests, those of deleted pods included, and those that they have now
//	of all ready pods included
//	a picker was there all the time             the requests that it sent
//	both                                        the larger number
//	either, and the picker refused some         these, too
func (c *Collector) retainedRequests(ctx context.Context, selected *selection, w *window, neighbors *modelNeighbors) (*float64, string) {
	g := w.group
	switch {
	case g.Retention <= 0:
		return nil, ""
	case g.Retention > maxRetention:
		return nil, fmt.Sprintf("the longest retention period is %v, shorten it", maxRetention)
	}
	vector, err := c.querier.Query(ctx, selected.retentionQuery(g.Retention))
	if err != nil {
		return nil, err.Error()
	}
	f := readFigures(g.Namespace, vector)
	total := func(figure string) float64 {
		return f.poolSum(figure, g.Pool, neighbors) + f.poolSum(first+figure, g.Pool, neighbors)
	}

	byEngines, enginesKnown := total(finished), w.isCoveredBy(f, neighbors)
	byPicker, pickerKnown := total(picks), f.hasValue(pickerReady)
	if byPicker == 0 && !enginesKnown { // without a pool in their labels, these may be another pool's: they can only keep replicas
		byPicker = max(total(attempts), total(oldAttempts))
	}
	refused := f[refused][""] + f[first+refused][""]
	if !enginesKnown && !pickerKnown {
		return nil, "Prometheus has metrics of that time neither of all ready pods nor of the picker of the InferencePool, let it scrape them"
	}
	inServers := 0.0
	for _, p := range w.podNames() {
		inServers += w.figures[runningNow][p] + w.figures[waitingNow][p]
	}
	return new(max(byEngines, byPicker) + refused + inServers), ""
}

// isCoveredBy reports whether the engines' metrics of a period say how many requests there were: there are metrics, among them those of
// all ready pods.
func (w *window) isCoveredBy(f figures, neighbors *modelNeighbors) bool {
	for _, pod := range w.ready {
		if _, ok := f.value(sampled, pod); !ok {
			return false
		}
	}
	for pod := range f[sampled] {
		if neighbors.mayBeIn(pod, w.group.Pool) {
			return true
		}
	}
	return false
}

// poolSum returns the sum of a figure over the pods of a pool, deleted ones included.
func (f figures) poolSum(figure, pool string, neighbors *modelNeighbors) float64 {
	total := 0.0
	for pod, v := range f[figure] {
		if neighbors.mayBeIn(pod, pool) {
			total += v
		}
	}
	return total
}

// mayBeIn reports whether a pod may belong to a pool. The pool of a deleted pod is not known.
func (n *modelNeighbors) mayBeIn(pod, pool string) bool {
	podPool, known := n.pools[pod]
	return !known || podPool == pool
}
