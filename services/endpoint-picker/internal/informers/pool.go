package informers

import (
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	inferenceclient "sigs.k8s.io/gateway-api-inference-extension/client-go/clientset/versioned"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/endpoint-picker/internal/podset"
)

// PoolGroup is the API group of the watched kind.
const PoolGroup = inferencev1.GroupName

const poolResource = "inferencepools"

// PoolParams are the parameters of NewPool.
type PoolParams struct {
	Log       *zap.Logger
	Pods      *Pods // of the pool's namespace
	Discovery kube.ResourceDiscovery
	Inference inferenceclient.Interface
	Pool      cache.ObjectName
	// PollInterval is the interval of checks for the kind of the pool.
	PollInterval time.Duration
}

// NewPool returns informers of one InferencePool and its pods. Run starts them.
func NewPool(p PoolParams) *Informers {
	pools := kube.NewOptionalInformer(kube.OptionalInformerParams{
		Log:          p.Log,
		Discovery:    p.Discovery,
		Resource:     schema.GroupVersionResource{Group: PoolGroup, Version: inferencev1.GroupVersion.Version, Resource: poolResource},
		New:          func() cache.SharedIndexInformer { return newPoolInformer(p.Inference, p.Pool) },
		PollInterval: p.PollInterval,
	})
	i := newInformers(p.Log, p.Pods)
	i.pools, i.name = pools, p.Pool
	i.synced = append(i.synced, pools.HasSynced)
	i.spec = func() *spec {
		object, _ := pools.Get(p.Pool)
		pool, ok := object.(*inferencev1.InferencePool)
		if !ok {
			return nil
		}
		return read(pool)
	}
	return i
}

// newPoolInformer watches one object by name, so that permission for this object is enough.
func newPoolInformer(client inferenceclient.Interface, pool cache.ObjectName) cache.SharedIndexInformer {
	return kube.NewInformer(client, client.InferenceV1().InferencePools(pool.Namespace), &inferencev1.InferencePool{}, kube.InformerOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, pool.Name).String(),
	})
}

// read converts a pool. A pool without a selector, which the API refuses, selects nothing instead of everything.
func read(pool *inferencev1.InferencePool) *spec {
	set := labels.Set{}
	for key, value := range pool.Spec.Selector.MatchLabels {
		set[string(key)] = string(value)
	}
	s := &spec{Selection: podset.Selection{Selector: labels.Nothing()}, appProtocol: string(pool.Spec.AppProtocol)}
	if len(set) > 0 {
		s.Selector = set.AsSelectorPreValidated()
	}
	for _, port := range pool.Spec.TargetPorts {
		s.Ports = append(s.Ports, uint16(port.Number))
	}
	return s
}
