package discovery

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	inferenceclient "sigs.k8s.io/gateway-api-inference-extension/client-go/clientset/versioned"

	"fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
)

// PoolGroup is the API group of InferencePools.
const PoolGroup = inferencev1.GroupName

const poolResource = "inferencepools"

// NamespaceParams are the parameters of NewNamespace.
type NamespaceParams struct {
	Log       *zap.Logger
	Core      kube.Clientset
	Inference inferenceclient.Interface // nil: do not watch InferencePools
	Namespace string
	Pool      string // name of the only InferencePool to watch; empty: all of them
	Changed   func() // called after an InferencePool came, changed or went; may be nil
	// PollInterval is the interval of checks for the kind InferencePool.
	PollInterval time.Duration
}

// Namespace holds the caches that the pools of one namespace share. An event of a pod reaches the sources that select the pod
// before or after it; an event of an InferencePool reaches its source.
type Namespace struct {
	log     *zap.Logger
	name    string
	pods    cache.SharedIndexInformer
	synced  cache.InformerSynced   // of the handler of pods
	pools   *kube.OptionalInformer // nil if there is none
	changed func()

	sources sync.Map // of *PodSource: nil
}

// NewNamespace returns the caches of a namespace. Run starts them.
func NewNamespace(p NamespaceParams) (*Namespace, error) {
	n := &Namespace{
		log: p.Log, name: p.Namespace, changed: p.Changed,
		pods: kube.NewInformer(p.Core, p.Core.CoreV1().Pods(p.Namespace), &corev1.Pod{}, kube.InformerOptions{Transform: stripPod}),
	}
	registration, err := n.pods.AddEventHandler(onChange(n.podChanged, samePod))
	if err != nil {
		return nil, fmt.Errorf("add handler of pods of %s: %w", p.Namespace, err)
	}
	n.synced = registration.HasSynced
	if p.Inference == nil {
		return n, nil
	}
	n.pools = kube.NewOptionalInformer(kube.OptionalInformerParams{
		Log:          p.Log,
		Discovery:    p.Core.Discovery(),
		Resource:     schema.GroupVersionResource{Group: PoolGroup, Version: inferencev1.GroupVersion.Version, Resource: poolResource},
		New:          func() cache.SharedIndexInformer { return newPoolInformer(p) },
		PollInterval: p.PollInterval,
	})
	n.pools.AddEventHandler(onChange(n.poolChanged, samePool))
	return n, nil
}

// newPoolInformer watches all pools, or one by name, so that permission for this object is enough.
func newPoolInformer(p NamespaceParams) cache.SharedIndexInformer {
	var options kube.InformerOptions
	if p.Pool != "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, p.Pool).String()
	}
	return kube.NewInformer(p.Inference, p.Inference.InferenceV1().InferencePools(p.Namespace), &inferencev1.InferencePool{}, options)
}

// Run watches until ctx ends, and returns when every watch has ended.
func (n *Namespace) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if n.pools != nil {
		running.Go(func() { n.pools.Run(ctx) })
	}
	n.pods.RunWithContext(ctx)
}

// PoolsSynced reports whether the InferencePools are complete, if there are any to watch.
func (n *Namespace) PoolsSynced() bool { return n.pools == nil || n.pools.HasSynced() }

// hasSynced reports whether the caches are complete.
func (n *Namespace) hasSynced() bool { return n.synced() && n.PoolsSynced() }

// AllPools returns the InferencePools. They must not be changed.
func (n *Namespace) AllPools() []*inferencev1.InferencePool {
	return informers.CastObjects[*inferencev1.InferencePool](n.pools.List())
}

// PoolReference returns the reference to an InferencePool for Events, without a UID if it does not exist.
func (n *Namespace) PoolReference(name string) corev1.ObjectReference {
	reference := corev1.ObjectReference{
		APIVersion: inferencev1.GroupVersion.String(), Kind: "InferencePool", Namespace: n.name, Name: name,
	}
	if found := n.poolNamed(name); found != nil {
		reference.UID, reference.ResourceVersion = found.UID, found.ResourceVersion
	}
	return reference
}

// poolNamed returns an InferencePool, or nil if it does not exist.
func (n *Namespace) poolNamed(name string) *inferencev1.InferencePool {
	object, _ := n.pools.Get(cache.NewObjectName(n.name, name))
	pool, _ := object.(*inferencev1.InferencePool)
	return pool
}

// listPods returns all pods. They must not be changed.
func (n *Namespace) listPods() []*corev1.Pod {
	return informers.CastObjects[*corev1.Pod](n.pods.GetStore().List())
}

// podChanged notifies the sources that select a pod, in its old or its new state. If neither is known, it notifies all.
func (n *Namespace) podChanged(before, after *corev1.Pod) {
	unknown := before == nil && after == nil
	for source := range n.sources.Range {
		if s := source.(*PodSource); unknown || s.selectsPod(before) || s.selectsPod(after) {
			s.changed()
		}
	}
}

// poolChanged notifies the source of an InferencePool. If neither state is known, it notifies all.
func (n *Namespace) poolChanged(before, after *inferencev1.InferencePool) {
	known := cmp.Or(after, before)
	for source := range n.sources.Range {
		if s := source.(*PodSource); known == nil || s.name.Name == known.Name {
			s.changed()
		}
	}
	if n.changed != nil {
		n.changed()
	}
}
