// Package informers watches what the picker reads of a cluster: pods, the InferencePool that selects them, and the
// objects that say what holds for requests (see Rules).
//
// Pods are watched in the whole namespace and matched here, instead of by a selector sent to the API server: the
// pool's selector may change at any time, and a watch that carries it would have to be replaced then, with an old and
// a new set of pods in between. What other pods cost is bounded by the transform, which keeps a few fields of each,
// and by the handler, which looks away when none of those changed.
//
// The kinds may be absent: then there is no pool, or there are no rules, until they appear. With a fixed selection
// there is no InferencePool, and nothing of its API is asked for.
package informers

import (
	"context"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/datastore"
	"fairlead.dev/services/endpoint-picker/internal/podset"
)

// spec is what is said of a pool.
type spec struct {
	podset.Selection

	appProtocol string
}

// Informers are the caches of one pool, and who is told when they change.
type Informers struct {
	log    *zap.Logger
	pods   *Pods
	pools  *kube.OptionalInformer // nil if the selection is fixed
	name   cache.ObjectName       // of the pool
	spec   func() *spec           // nil if there is no pool
	synced []cache.InformerSynced

	// Of the goroutine that calls Pool only: the annotations that were complained of.
	told map[types.UID]string
}

// NewFixed returns informers of the pods of a selection, which needs no InferencePool.
func NewFixed(log *zap.Logger, pods *Pods, s podset.Selection) *Informers {
	i := newInformers(log, pods)
	i.spec = func() *spec { return &spec{Selection: s} }
	return i
}

func newInformers(log *zap.Logger, pods *Pods) *Informers {
	return &Informers{log: log, pods: pods, told: map[types.UID]string{}}
}

// OnChange has changed called, before Run, whenever there may be other endpoints.
func (i *Informers) OnChange(changed func()) error {
	if i.pools != nil {
		i.pools.AddEventHandler(onChange(changed, samePool))
	}
	synced, err := i.pods.onChange(changed)
	if err != nil {
		return err
	}
	i.synced = append(i.synced, synced)
	return nil
}

// Run watches the pool until ctx ends, and returns when the watch has ended. The cache of pods runs by itself.
func (i *Informers) Run(ctx context.Context) {
	if i.pools == nil {
		<-ctx.Done()
		return
	}
	i.pools.Run(ctx)
}

// WaitForSync returns when the caches are complete, or false when ctx ends before.
func (i *Informers) WaitForSync(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), i.synced...)
}

// Pool returns the pool, or nil if there is none. It is called by one goroutine.
func (i *Informers) Pool() (*datastore.Pool, error) {
	s := i.spec()
	if s == nil {
		return nil, nil
	}
	endpoints, problems := podset.Build(s.Selection, i.pods.list())
	i.tell(problems)
	return &datastore.Pool{AppProtocol: s.appProtocol, Endpoints: endpoints}, nil
}

// tell logs each problem once, for as long as it lasts.
func (i *Informers) tell(problems []podset.Problem) {
	last := i.told
	i.told = make(map[types.UID]string, len(problems))
	for _, p := range problems {
		said := p.Value + ": " + p.Message
		i.told[p.Pod.UID] = said
		if last[p.Pod.UID] != said {
			i.log.Warn("Could not apply active ports of pod", zap.String(logging.KeyPod, p.Pod.Namespace+"/"+p.Pod.Name),
				zap.String("value", p.Value), zap.String("reason", p.Message))
		}
	}
}
