package kube

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/logging"
)

const (
	defaultPollInterval = 30 * time.Second
	pollJitter          = 0.2
	firstRetry          = 500 * time.Millisecond

	// absencesToDrop is the number of consecutive discovery responses without the kind after which its objects are dropped.
	// With 1, a response from an API server that has just started would drop them; with 4, deleting a CRD takes twice as long
	// to have an effect.
	absencesToDrop = 2

	// forbiddenTimeout is the time after which a kind whose list is forbidden is treated as not served. A role that is created
	// together with a pod takes effect within seconds. Half is enough on an idle API server; with twice the time, a service
	// without the permission becomes ready ten seconds later.
	forbiddenTimeout = 10 * time.Second
)

// ResourceDiscovery is the part of a discovery client that an OptionalInformer uses. The Discovery() of every clientset
// implements it.
type ResourceDiscovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// OptionalInformerParams holds the arguments of NewOptionalInformer.
type OptionalInformerParams struct {
	Log       *zap.Logger
	Discovery ResourceDiscovery
	Resource  schema.GroupVersionResource
	// New returns a new informer each time that the kind appears. An informer runs only once, so New must not return the
	// shared informer of a factory.
	New func() cache.SharedIndexInformer
	// PollInterval is the time between two discovery requests; the default is 30 s.
	PollInterval time.Duration
	// Required keeps HasSynced false while the permission to list the kind is missing. Otherwise, such a kind is treated as
	// not served.
	Required bool
	// Preferred are other versions of the resource: where one of them is served, the informer treats the kind as not served.
	Preferred []string
}

// OptionalInformer is an informer for a kind whose CRD may be absent. It uses discovery, and needs no permission to read CRDs:
//
//	discovery response      no informer is running         an informer is running
//	served                  start an informer              -
//	not served              log once; HasSynced is true    second consecutive time: stop it and delete its objects
//	error                   retry sooner                   keep the informer and its objects
//
// A kind is not served if discovery returns NotFound for its group version, or a response without its resource, or if a preferred
// version of it is served. If the kind is served, but the permission to list it is missing, the informer logs it once and retries.
// After ten seconds, unless the kind is Required, HasSynced is true without objects, and Present is false until a list succeeds. If
// the permission is revoked later, the informer keeps its objects.
type OptionalInformer struct {
	params   OptionalInformerParams
	log      *zap.Logger
	handlers []*tracker

	current atomic.Pointer[generation]
	synced  atomic.Bool

	// Used only by the goroutine of Run.
	absences     int
	loggedAbsent bool
	retry        *wait.Backoff
}

// generation is the informer for one period in which the kind is served.
type generation struct {
	informer      cache.SharedIndexInformer
	registrations []cache.ResourceEventHandlerRegistration
	cancel        context.CancelFunc
	done          chan struct{}

	forbidden   atomic.Pointer[time.Time] // time of the first forbidden list; nil if listing is allowed
	loggedStale bool                      // used only by the goroutine of the informer
}

// NewOptionalInformer returns an informer. It starts once Run is called.
func NewOptionalInformer(p OptionalInformerParams) *OptionalInformer {
	if p.PollInterval <= 0 {
		p.PollInterval = defaultPollInterval
	}
	return &OptionalInformer{params: p, log: p.Log.With(zap.String(logging.KeyResource, p.Resource.String()))}
}

// AddEventHandler registers h. Call it before Run. Calls to h are sequential, and every added object is deleted before it is
// added again, even if the kind disappears in between. Get and List return an object before h receives its addition. When the
// kind disappears, h receives OnDelete with the last known state of every object; when Run ends, h receives nothing.
func (o *OptionalInformer) AddEventHandler(h cache.ResourceEventHandler) {
	o.handlers = append(o.handlers, newTracker(h))
}

// Run polls discovery until ctx is canceled, and returns when all goroutines that it started have ended. Call it once.
func (o *OptionalInformer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		timer := time.NewTimer(o.pollDiscovery(ctx))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	if g := o.current.Load(); g != nil {
		<-g.done
	}
}

// HasSynced returns true after discovery has reported the kind as absent, or all handlers have received all listed objects, or
// the list has been forbidden for ten seconds. It then stays true, so that a kind that appears later does not make a ready
// process unready.
func (o *OptionalInformer) HasSynced() bool {
	if o.synced.Load() {
		return true
	}
	if g := o.current.Load(); g != nil && (g.hasSynced() || o.isForbidden(g)) {
		o.synced.Store(true)
	}
	return o.synced.Load()
}

// Present reports whether the kind is served, and not treated as not served.
func (o *OptionalInformer) Present() bool {
	g := o.current.Load()
	return g != nil && !o.isForbidden(g)
}

// Listed reports whether the kind is served and the initial list is complete.
func (o *OptionalInformer) Listed() bool {
	g := o.current.Load()
	return g != nil && g.informer.HasSynced()
}

// Get returns the object with that name; do not modify it. The namespace of a cluster-scoped object is empty.
func (o *OptionalInformer) Get(name cache.ObjectName) (any, bool) {
	g := o.current.Load()
	if g == nil {
		return nil, false
	}
	// The error is always nil for an indexer.
	obj, exists, _ := g.informer.GetIndexer().GetByKey(name.String())
	return obj, exists
}

// List returns all objects in no particular order; do not modify them.
func (o *OptionalInformer) List() []any {
	g := o.current.Load()
	if g == nil {
		return nil
	}
	return g.informer.GetIndexer().List()
}

// ByIndex returns the objects that have a value in an index, in no particular order; do not modify them. It panics if the
// informers that New returns do not have the index.
func (o *OptionalInformer) ByIndex(index, value string) []any {
	g := o.current.Load()
	if g == nil {
		return nil
	}
	objects, err := g.informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		panic(err)
	}
	return objects
}

// pollDiscovery sends one discovery request, handles the response, and returns the time until the next request.
func (o *OptionalInformer) pollDiscovery(ctx context.Context) time.Duration {
	served, err := o.isServed(ctx)
	if err != nil {
		return o.handleOutage(ctx, err)
	}
	o.retry = nil
	switch present := o.current.Load() != nil; {
	case served:
		o.absences = 0
		if !present {
			o.startInformer(ctx)
		}
		o.noticeAllowed()
	case present:
		o.absences++
		if o.absences == absencesToDrop {
			o.dropInformer()
		}
	default:
		o.logAbsent("Kind not served, waiting for its CRD")
		o.synced.Store(true)
	}
	return wait.Jitter(o.params.PollInterval, pollJitter)
}

func (o *OptionalInformer) isServed(ctx context.Context) (bool, error) {
	if served, err := o.isServedIn(ctx, o.params.Resource.Version); !served || err != nil {
		return false, err
	}
	for _, version := range o.params.Preferred {
		if preferred, err := o.isServedIn(ctx, version); preferred || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (o *OptionalInformer) isServedIn(ctx context.Context, version string) (bool, error) {
	groupVersion := schema.GroupVersion{Group: o.params.Resource.Group, Version: version}
	list, err := o.params.Discovery.ServerResourcesForGroupVersionWithContext(ctx, groupVersion.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == o.params.Resource.Resource }), nil
}

// handleOutage handles a discovery error, which does not reveal whether the kind is served. It returns the backoff.
func (o *OptionalInformer) handleOutage(ctx context.Context, err error) time.Duration {
	o.absences = 0
	if o.retry == nil {
		longest := o.params.PollInterval
		o.retry = &wait.Backoff{Duration: min(firstRetry, longest), Factor: 2, Jitter: pollJitter, Steps: 32, Cap: longest}
		if ctx.Err() == nil {
			o.log.Warn("Discovery failed, kept the previous state of the kind", zap.Error(err))
		}
	}
	return o.retry.Step()
}

func (o *OptionalInformer) startInformer(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	g := &generation{informer: o.params.New(), cancel: cancel, done: make(chan struct{})}
	for _, h := range o.handlers {
		registration, err := g.informer.AddEventHandler(h)
		if err != nil {
			cancel()
			o.log.Error("Failed to start informer", zap.Error(err))
			return
		}
		g.registrations = append(g.registrations, registration)
	}
	if err := g.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		o.listFailed(ctx, r, g, err)
	}); err != nil {
		cancel()
		o.log.Error("Failed to start informer", zap.Error(err))
		return
	}
	// Store it before the first event, so that handlers can look up the object.
	o.current.Store(g)
	go func() {
		defer close(g.done)
		g.informer.RunWithContext(ctx)
	}()
	if o.loggedAbsent {
		o.log.Info("Kind now served, started watching it")
		o.loggedAbsent = false
	}
}

// dropInformer stops the informer and calls OnDelete for its objects: the watch is gone, so no delete events arrive.
func (o *OptionalInformer) dropInformer() {
	g := o.current.Swap(nil)
	g.cancel()
	<-g.done
	for _, h := range o.handlers {
		h.deleteAll()
	}
	o.absences = 0
	o.logAbsent("Kind no longer served, dropped its objects")
}

func (o *OptionalInformer) logAbsent(message string) {
	if !o.loggedAbsent {
		o.log.Info(message)
		o.loggedAbsent = true
	}
}

// listFailed handles a failed list or watch; the informer retries afterwards.
func (o *OptionalInformer) listFailed(ctx context.Context, r *cache.Reflector, g *generation, err error) {
	now := time.Now()
	switch {
	case !apierrors.IsForbidden(err):
		cache.DefaultWatchErrorHandler(ctx, r, err)
	case g.informer.HasSynced():
		if !g.loggedStale {
			o.log.Warn("Lost permission to list and watch kind, kept its objects: grant list and watch", zap.Error(err))
			g.loggedStale = true
		}
	case g.forbidden.CompareAndSwap(nil, &now):
		message := "No permission to list kind, treating it as not served: grant list and watch"
		if o.params.Required {
			message = "No permission to list required kind, waiting: grant list and watch"
		}
		o.log.Warn(message, zap.Error(err))
	}
}

// noticeAllowed logs that listing has succeeded after it was forbidden.
func (o *OptionalInformer) noticeAllowed() {
	g := o.current.Load()
	if g != nil && g.forbidden.Load() != nil && g.informer.HasSynced() {
		g.forbidden.Store(nil)
		o.log.Info("Gained permission to list kind, started watching it")
	}
}

// isForbidden reports whether the kind is treated as not served: listing has been forbidden for at least forbiddenTimeout.
func (o *OptionalInformer) isForbidden(g *generation) bool {
	since := g.forbidden.Load()
	return !o.params.Required && since != nil && time.Since(*since) >= forbiddenTimeout && !g.informer.HasSynced()
}

func (g *generation) hasSynced() bool {
	return g.informer.HasSynced() &&
		!slices.ContainsFunc(g.registrations, func(r cache.ResourceEventHandlerRegistration) bool { return !r.HasSynced() })
}
