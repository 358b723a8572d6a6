// Package metrics provides the metrics of pools and writes. pkg/controller provides those of the work queue.
package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/controller"
)

// Labels.
const (
	labelObject = "yurtingress"
	labelPool   = "pool"
	labelState  = "state"
)

// Metrics contains the collectors. All methods are safe for concurrent use.
type Metrics struct {
	writes   *prometheus.CounterVec
	ready    *prometheus.GaugeVec
	replicas *prometheus.GaugeVec
	nodes    *prometheus.GaugeVec
	reasons  *controller.Reasons

	mu    sync.Mutex
	pools map[string]map[string]bool // by YurtIngress: those with series
}

// New creates and registers the collectors.
func New(r prometheus.Registerer) *Metrics {
	pool := []string{labelObject, labelPool}
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_nodepool_writes_total", Help: "Writes of objects, by resource and result: created, updated, deleted, failed.",
		}, []string{"resource", "result"}),
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_nodepool_pool_ready", Help: "1 if the condition Ready of a pool is True, else 0.",
		}, pool),
		replicas: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_nodepool_pool_replicas", Help: "Replicas of the ingress controller of a pool, by state: desired, ready.",
		}, append(pool, labelState)),
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_nodepool_pool_nodes", Help: "Nodes of a pool, by state: all, ready.",
		}, append(pool, labelState)),
		reasons: controller.NewReasons(r, "fairlead_nodepool_pools", "Pools, by the reason of their condition Ready."),
		pools:   map[string]map[string]bool{},
	}
	r.MustRegister(m.writes, m.ready, m.replicas, m.nodes)
	return m
}

// CountWrite counts a write.
func (m *Metrics) CountWrite(resource, result string) {
	m.writes.WithLabelValues(resource, result).Inc()
}

// SetStatus records the status of a YurtIngress. Series of pools that it no longer has are deleted.
func (m *Metrics) SetStatus(name string, next *v1alpha1.YurtIngressStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.pools[name]
	m.pools[name] = map[string]bool{}
	for i := range next.Pools {
		p := &next.Pools[i]
		ready := meta.FindStatusCondition(p.Conditions, v1alpha1.ConditionReady)
		if ready == nil {
			continue // it is being removed
		}
		m.pools[name][p.Name] = true
		delete(before, p.Name)
		value := 0.0
		if ready.Status == metav1.ConditionTrue {
			value = 1
		}
		m.ready.WithLabelValues(name, p.Name).Set(value)
		m.replicas.WithLabelValues(name, p.Name, "desired").Set(float64(p.Replicas))
		m.replicas.WithLabelValues(name, p.Name, "ready").Set(float64(p.ReadyReplicas))
		m.nodes.WithLabelValues(name, p.Name, "all").Set(float64(p.Nodes))
		m.nodes.WithLabelValues(name, p.Name, "ready").Set(float64(p.ReadyNodes))
		m.reasons.Set(poolKey(name, p.Name), ready.Reason)
	}
	for pool := range before {
		m.deleteSeries(name, pool)
	}
}

// Forget deletes the series of a YurtIngress.
func (m *Metrics) Forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for pool := range m.pools[name] {
		m.deleteSeries(name, pool)
	}
	delete(m.pools, name)
}

// Clear deletes the series of all pools. A replica calls it when it stops leading.
func (m *Metrics) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready.Reset()
	m.replicas.Reset()
	m.nodes.Reset()
	m.reasons.Clear()
	clear(m.pools)
}

func (m *Metrics) deleteSeries(name, pool string) {
	series := prometheus.Labels{labelObject: name, labelPool: pool}
	m.ready.DeletePartialMatch(series)
	m.replicas.DeletePartialMatch(series)
	m.nodes.DeletePartialMatch(series)
	m.reasons.Forget(poolKey(name, pool))
}

// poolKey identifies a pool of a YurtIngress.
func poolKey(name, pool string) cache.ObjectName {
	return cache.ObjectName{Namespace: name, Name: pool}
}
