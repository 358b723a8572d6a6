package metrics

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/pool"
)

// waitingMetrics describes the requests that wait for an endpoint, under the names of the llm-d router and under our own.
type waitingMetrics struct {
	size, bytes, requests, oldest *prometheus.Desc
}

func newWaiting() waitingMetrics {
	own := []string{labelModel, labelTarget, labelFairness, labelPriority}
	flow := append(own[:len(own):len(own)], "inference_pool")
	return waitingMetrics{
		size: upstreamDesc("flow_control_queue_size", "Requests that wait for an endpoint. A model stays for a minute after its last one.",
			flow...),
		bytes:    upstreamDesc("flow_control_queue_bytes", "Memory of the requests that wait for an endpoint.", flow...),
		requests: newDesc("waiting_requests", "Requests that wait for an endpoint. A model stays for a minute after its last one.", own...),
		oldest: newDesc("waiting_oldest_seconds", "Time for which the oldest of the requests that wait for an endpoint has waited.",
			own...),
	}
}

func (w *waitingMetrics) describeWaiting(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.size, w.bytes, w.requests, w.oldest} {
		out <- d
	}
}

// collectWaiting exports a report. Without waiting requests there is one series of each, so that a query has a result.
func (w *waitingMetrics) collectWaiting(gauge func(d *prometheus.Desc, value float64, labels ...string), counts map[labels]pool.QueueCount,
	poolName string, now time.Time) {
	if len(counts) == 0 {
		counts = map[labels]pool.QueueCount{{fairness: defaultFairness}: {}}
	}
	for l, c := range counts {
		values, age := l.labelValues(), 0.0
		if c.Requests > 0 {
			age = max(now.Sub(c.Oldest), 0).Seconds()
		}
		flow := append(values[:len(values):len(values)], poolName)
		gauge(w.size, float64(c.Requests), flow...)
		gauge(w.bytes, float64(c.Bytes), flow...)
		gauge(w.requests, float64(c.Requests), values...)
		gauge(w.oldest, age, values...)
	}
}

// mergeCounts returns the counts by bounded labels. Names that no request with an endpoint has brought take no place of others.
func (q *requests) mergeCounts(counts []pool.QueueCount) map[labels]pool.QueueCount {
	q.mu.Lock()
	defer q.mu.Unlock()
	merged := make(map[labels]pool.QueueCount, len(counts))
	for i := range counts {
		c := &counts[i]
		l := labels{model: q.models.findLabel(c.Model), target: q.models.findLabel(c.Target),
			fairness: q.fairness.findLabel(cmp.Or(c.Fairness, defaultFairness)), priority: c.Priority}
		if _, known := merged[l]; !known && len(merged) >= maxSeries {
			l.model, l.target, l.fairness = q.foldedModel(l.model), q.foldedModel(l.target), otherName
		}
		m := merged[l]
		if c.Requests > 0 && (m.Requests == 0 || c.Oldest.Before(m.Oldest)) {
			m.Oldest = c.Oldest
		}
		m.Requests += c.Requests
		m.Bytes += c.Bytes
		merged[l] = m
	}
	return merged
}
