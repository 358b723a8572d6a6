package informers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kube"
)

// Pods is the cache of all pods of a namespace. Pools in the namespace can share it.
type Pods struct {
	namespace string
	informer  cache.SharedIndexInformer
}

// NewPods returns a cache. Run starts it.
func NewPods(core kube.Clientset, namespace string) *Pods {
	return &Pods{
		namespace: namespace,
		informer:  kube.NewInformer(core, core.CoreV1().Pods(namespace), &corev1.Pod{}, kube.InformerOptions{Transform: strip}),
	}
}

// Run watches until ctx ends, and returns when the watch has ended.
func (p *Pods) Run(ctx context.Context) { p.informer.RunWithContext(ctx) }

// onChange registers a function to call for every event that may change the endpoints. It returns a function that reports
// whether it was called for all initial pods.
func (p *Pods) onChange(changed func()) (cache.InformerSynced, error) {
	registration, err := p.informer.AddEventHandler(onChange(changed, samePod))
	if err != nil {
		return nil, fmt.Errorf("add handler of pods of %s: %w", p.namespace, err)
	}
	return registration.HasSynced, nil
}

// list returns all pods. They must not be changed.
func (p *Pods) list() []*corev1.Pod {
	objects := p.informer.GetStore().List()
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}
