package metrics

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// attempts counts picks by model and endpoint. It drops the counters of removed endpoints at the next scrape.
type attempts struct {
	desc *prometheus.Desc

	mu    sync.RWMutex
	known map[attempt]*atomic.Uint64
}

// attempt contains the labels of a pick. Its endpoint is nil if the pick failed.
type attempt struct {
	target   string // a label's value
	endpoint *endpoint.Endpoint
}

func newAttempts() *attempts {
	return &attempts{
		known: map[attempt]*atomic.Uint64{},
		desc: upstreamDesc("scheduler_attempts_total", "Attempts to choose an endpoint, by status.",
			labelStatus, labelTarget, labelEndpoint, labelNamespace, labelPort),
	}
}

func (a *attempts) countAttempt(key attempt) {
	a.mu.RLock()
	n := a.known[key]
	a.mu.RUnlock()
	if n == nil {
		a.mu.Lock()
		if n = a.known[key]; n == nil {
			n = &atomic.Uint64{}
			a.known[key] = n
		}
		a.mu.Unlock()
	}
	n.Add(1)
}

// collectAttempts writes the attempts on current endpoints, and the failed ones.
func (a *attempts) collectAttempts(out chan<- prometheus.Metric, endpoints []*endpoint.Endpoint) {
	there := make(map[*endpoint.Endpoint]bool, len(endpoints)+1)
	there[nil] = true
	for _, e := range endpoints {
		there[e] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, n := range a.known {
		if !there[key.endpoint] {
			delete(a.known, key)
			continue
		}
		status, pod, namespace, port := statusFailure, "", "", ""
		if key.endpoint != nil {
			id := key.endpoint.Identity()
			status, pod, namespace, port = statusSuccess, id.Pod, id.Namespace, strconv.Itoa(int(id.Address.Port()))
		}
		out <- prometheus.MustNewConstMetric(a.desc, prometheus.CounterValue, float64(n.Load()), status, key.target, pod, namespace, port)
	}
}
