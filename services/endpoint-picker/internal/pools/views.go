package pools

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/debugpage"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
)

// Gather returns the metrics of the process and of all pools.
func (r *Registry) Gather() ([]*dto.MetricFamily, error) {
	gatherers, labeled := prometheus.Gatherers{r.params.Registry}, metrics.OwnMetrics
	if r.params.Config.Pool.IsMultiPool() {
		labeled = metrics.AllMetrics
	}
	for _, p := range r.sortedPools() {
		gatherers = append(gatherers, metrics.WithPool(p.registry, p.title, labeled))
	}
	return gatherers.Gather()
}

// DebugPools returns the pools for the debug page.
func (r *Registry) DebugPools() []debugpage.Pool {
	var views []debugpage.Pool
	for _, p := range r.sortedPools() {
		views = append(views, debugpage.Pool{Title: p.title, Snapshot: p.store.Snapshot, Estimator: p.estimator, Picks: p.picks})
	}
	return views
}

// PoolQueues returns the queues of the pools.
func (r *Registry) PoolQueues() []pool.NamedQueue {
	var queues []pool.NamedQueue
	for _, p := range r.sortedPools() {
		view := pool.NamedQueue{Name: p.title, Queue: p.Queue()}
		if p.name.Name != "" {
			view.Namespace, view.Name = p.name.Namespace, p.name.Name
		}
		queues = append(queues, view)
	}
	return queues
}

// poolReferences returns the references to the InferencePools.
func (r *Registry) poolReferences() []corev1.ObjectReference {
	var found []corev1.ObjectReference
	for _, p := range r.sortedPools() {
		if p.name.Name != "" {
			found = append(found, r.namespaces[p.name.Namespace].PoolReference(p.name.Name))
		}
	}
	return found
}
