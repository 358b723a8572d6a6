package discovery

import (
	"context"
	"sync/atomic"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/pool"
)

// A PodSource provides the endpoints of one pool in a Namespace.
type PodSource struct {
	namespace *Namespace
	name      cache.ObjectName // of the InferencePool; without a name if the selection is fixed
	fixed     *Selection       // nil if the InferencePool selects
	last      atomic.Pointer[Selection]
	changed   func()

	// Used only by the goroutine that calls ReadPool: the reported problems of annotations.
	reported map[types.UID]string
}

// PoolSource returns the source of an InferencePool, which may not exist.
func (n *Namespace) PoolSource(name string) *PodSource {
	return &PodSource{namespace: n, name: cache.NewObjectName(n.name, name), reported: map[types.UID]string{}}
}

// SelectionSource returns the source of a selection of pods, without an InferencePool.
func (n *Namespace) SelectionSource(s Selection) *PodSource {
	return &PodSource{namespace: n, name: cache.NewObjectName(n.name, ""), fixed: &s, reported: map[types.UID]string{}}
}

// OnChange registers the function to call when the endpoints may have changed. Close ends the calls.
func (s *PodSource) OnChange(changed func()) {
	s.changed = changed
	s.namespace.sources.Store(s, nil)
}

// Close ends the calls of the registered function.
func (s *PodSource) Close() { s.namespace.sources.Delete(s) }

// WaitForSync returns true when the caches are complete, or false when ctx ends first.
func (s *PodSource) WaitForSync(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), s.namespace.hasSynced)
}

// ReadPool returns the endpoints, or pool.ErrNoPool. Only one goroutine may call it.
func (s *PodSource) ReadPool() ([]endpoint.Description, error) {
	current := s.currentSelection()
	s.last.Store(current) // before the list, so that podChanged covers all pods that the list lacks
	if current == nil {
		return nil, pool.ErrNoPool
	}
	endpoints, problems := buildEndpoints(*current, s.namespace.listPods())
	s.reportProblems(problems)
	return endpoints, nil
}

func (s *PodSource) currentSelection() *Selection {
	if s.fixed != nil {
		return s.fixed
	}
	found := s.namespace.poolNamed(s.name.Name)
	if found == nil {
		return nil
	}
	return toSelection(found)
}

// selectsPod reports whether the pool selected a pod, which may be nil, when it was last read.
func (s *PodSource) selectsPod(pod *corev1.Pod) bool {
	last := s.last.Load()
	return pod != nil && last != nil && last.Selector != nil && last.Selector.Matches(labels.Set(pod.Labels))
}

// reportProblems logs each problem once while it lasts.
func (s *PodSource) reportProblems(problems []podProblem) {
	last := s.reported
	s.reported = make(map[types.UID]string, len(problems))
	for _, p := range problems {
		text := p.Value + ": " + p.Message
		s.reported[p.Pod.UID] = text
		if last[p.Pod.UID] != text {
			s.namespace.log.Warn("Could not apply active ports of pod", zap.String(logging.KeyPod, p.Pod.Namespace+"/"+p.Pod.Name),
				zap.String("value", p.Value), zap.String("reason", p.Message))
		}
	}
}

// toSelection converts a pool. A pool without a selector, which the API refuses, selects nothing instead of everything.
func toSelection(p *inferencev1.InferencePool) *Selection {
	set := labels.Set{}
	for key, value := range p.Spec.Selector.MatchLabels {
		set[string(key)] = string(value)
	}
	s := &Selection{Selector: labels.Nothing()}
	if len(set) > 0 {
		s.Selector = set.AsSelectorPreValidated()
	}
	for _, port := range p.Spec.TargetPorts {
		s.Ports = append(s.Ports, uint16(port.Number))
	}
	return s
}
