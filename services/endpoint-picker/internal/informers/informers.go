// Package informers watches the objects that the picker reads from a cluster: pods, the InferencePool that selects them, and
// the rules for requests (see Rules).
//
// It watches the pods of the whole namespace and matches them itself, instead of sending a selector to the API server: the
// pool's selector may change at any time. A watch with the selector would then have to be replaced, with an old and a new
// set of pods in between. Two measures limit the cost of other pods: the transform keeps only a few fields, and the handler
// ignores events that change none of them.
//
// The kinds may be missing: then the pool or the rules do not exist until the kinds appear. With a fixed selection there is
// no InferencePool, and the package does not use its API.
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

// spec is the specification of a pool.
type spec struct {
	podset.Selection

	appProtocol string
}

// Informers are the caches of one pool, and the functions to call after changes.
type Informers struct {
	log    *zap.Logger
	pods   *Pods
	pools  *kube.OptionalInformer // nil if the selection is fixed
	name   cache.ObjectName       // of the pool
	spec   func() *spec           // nil if the pool does not exist
	synced []cache.InformerSynced

	// Used only by the goroutine that calls Pool: the reported problems of annotations.
	told map[types.UID]string
}

// NewFixed returns informers for the pods of a selection, without an InferencePool.
func NewFixed(log *zap.Logger, pods *Pods, s podset.Selection) *Informers {
	i := newInformers(log, pods)
	i.spec = func() *spec { return &spec{Selection: s} }
	return i
}

func newInformers(log *zap.Logger, pods *Pods) *Informers {
	return &Informers{log: log, pods: pods, told: map[types.UID]string{}}
}

// OnChange registers a function to call when the endpoints may have changed. Call it before Run.
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

// Run watches the pool until ctx ends, and returns when the watch has ended. The cache of pods runs separately.
func (i *Informers) Run(ctx context.Context) {
	if i.pools == nil {
		<-ctx.Done()
		return
	}
	i.pools.Run(ctx)
}

// WaitForSync returns true when the caches are complete, or false when ctx ends first.
func (i *Informers) WaitForSync(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), i.synced...)
}

// Pool returns the pool, or nil if it does not exist. Only one goroutine may call it.
func (i *Informers) Pool() (*datastore.Pool, error) {
	s := i.spec()
	if s == nil {
		return nil, nil
	}
	endpoints, problems := podset.Build(s.Selection, i.pods.list())
	i.tell(problems)
	return &datastore.Pool{AppProtocol: s.appProtocol, Endpoints: endpoints}, nil
}

// tell logs each problem once while it lasts.
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
