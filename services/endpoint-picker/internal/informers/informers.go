// Package informers watches what the picker reads: one InferencePool and the pods of its namespace.
//
// Pods are watched in the whole namespace and matched here, instead of by a selector sent to the API server: the
// pool's selector may change at any time, and a watch that carries it would have to be replaced then, with an old and
// a new set of pods in between. What other pods cost is bounded by the transform, which keeps a few fields of each,
// and by the handler, which looks away when none of those changed.
//
// The pool's kind may be absent: then there is no pool until it appears.
package informers

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	inferenceclient "sigs.k8s.io/gateway-api-inference-extension/client-go/clientset/versioned"
	inferenceinformers "sigs.k8s.io/gateway-api-inference-extension/client-go/informers/externalversions/api/v1"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/endpoint-picker/internal/datastore"
)

// PoolGroup is the API group of the kind that is watched.
const PoolGroup = inferencev1.GroupName

const poolResource = "inferencepools"

// Informers are the caches, and who is told when they change.
type Informers struct {
	pool    cache.ObjectName
	pools   *kube.OptionalInformer
	factory informers.SharedInformerFactory
	pods    cache.SharedIndexInformer
	lister  corelisters.PodNamespaceLister
	synced  []cache.InformerSynced
}

// Params is what Informers are made of.
type Params struct {
	Log       *zap.Logger
	Core      kubernetes.Interface
	Inference inferenceclient.Interface
	Pool      cache.ObjectName
	// PollInterval is the time between two looks for the kind of the pool.
	PollInterval time.Duration
}

// New returns informers that do nothing until Run.
func New(p Params) *Informers {
	factory := informers.NewSharedInformerFactoryWithOptions(p.Core, 0,
		informers.WithNamespace(p.Pool.Namespace), informers.WithTransform(strip))
	pods := factory.Core().V1().Pods()
	pools := kube.NewOptionalInformer(kube.OptionalInformerParams{
		Log:          p.Log,
		Discovery:    p.Core.Discovery(),
		Resource:     schema.GroupVersionResource{Group: PoolGroup, Version: inferencev1.GroupVersion.Version, Resource: poolResource},
		New:          func() cache.SharedIndexInformer { return newPoolInformer(p.Inference, p.Pool) },
		PollInterval: p.PollInterval,
	})
	return &Informers{
		pool:    p.Pool,
		pools:   pools,
		factory: factory,
		pods:    pods.Informer(),
		lister:  pods.Lister().Pods(p.Pool.Namespace),
		synced:  []cache.InformerSynced{pools.HasSynced},
	}
}

// OnChange has changed called, before Run, whenever there may be other endpoints.
func (i *Informers) OnChange(changed func()) error {
	i.pools.AddEventHandler(onChange(changed, samePool))
	registration, err := i.pods.AddEventHandler(onChange(changed, samePod))
	if err != nil {
		return fmt.Errorf("add handler of pods: %w", err)
	}
	i.synced = append(i.synced, registration.HasSynced)
	return nil
}

// Run watches until ctx ends, and returns when every watch has ended.
func (i *Informers) Run(ctx context.Context) {
	i.factory.StartWithContext(ctx)
	i.pools.Run(ctx)
	i.factory.Shutdown()
}

// WaitForSync returns when the caches are complete, or false when ctx ends before.
func (i *Informers) WaitForSync(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), i.synced...)
}

// Pool returns the pool, or nil if there is none.
func (i *Informers) Pool() *datastore.Pool {
	object, ok := i.pools.Get(i.pool)
	if !ok {
		return nil
	}
	pool, ok := object.(*inferencev1.InferencePool)
	if !ok {
		return nil
	}
	return read(pool)
}

// Pods returns the pods of the pool's namespace that match. They must not be changed.
func (i *Informers) Pods(selector labels.Selector) ([]*corev1.Pod, error) {
	pods, err := i.lister.List(selector)
	if err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", i.pool.Namespace, err)
	}
	return pods, nil
}

// newPoolInformer watches one object by its name, so that the right to read that one is enough.
func newPoolInformer(client inferenceclient.Interface, pool cache.ObjectName) cache.SharedIndexInformer {
	return inferenceinformers.NewFilteredInferencePoolInformer(client, pool.Namespace, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, pool.Name).String()
		})
}

// read converts a pool. One without a selector, which the API refuses, selects nothing rather than everything.
func read(pool *inferencev1.InferencePool) *datastore.Pool {
	set := labels.Set{}
	for key, value := range pool.Spec.Selector.MatchLabels {
		set[string(key)] = string(value)
	}
	p := &datastore.Pool{Selector: labels.Nothing()}
	if len(set) > 0 {
		p.Selector = set.AsSelectorPreValidated()
	}
	for _, port := range pool.Spec.TargetPorts {
		p.Ports = append(p.Ports, uint16(port.Number))
	}
	return p
}
