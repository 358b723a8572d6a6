package kube

import (
	"context"
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

	// absencesToDrop is how many answers in a row must lack a kind before its objects are dropped: one answer may come
	// from an API server that has just started.
	absencesToDrop = 2

	// forbiddenPatience is how long a list may be forbidden before the kind counts as not served. Roles that are created
	// together with a pod take effect within seconds. Half would be enough on a quiet API server; twice as long would keep a
	// service with trimmed permissions unready for as long.
	forbiddenPatience = 10 * time.Second
)

// ResourceDiscovery is the part of a discovery client that an OptionalInformer needs; every clientset's Discovery() has it.
type ResourceDiscovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// OptionalInformerParams is what NewOptionalInformer needs.
type OptionalInformerParams struct {
	Log       *zap.Logger
	Discovery ResourceDiscovery
	Resource  schema.GroupVersionResource
	// New makes a fresh informer for each time that the kind appears: an informer runs once, so one that a factory
	// shares will not do.
	New func() cache.SharedIndexInformer
	// PollInterval is the time between two looks at discovery, 30 s if zero.
	PollInterval time.Duration
	// Required keeps HasSynced false while there is no permission to list the kind. Without it such a kind counts as not
	// served.
	Required bool
}

// OptionalInformer is an informer for a kind whose CRD may be absent, for good or for now. It asks discovery, so it needs
// no right to read CRDs:
//
//	discovery says          no informer runs               an informer runs
//	served                  start one                      -
//	not served              say so once; has synced        the second time in a row: stop it, delete its objects
//	anything else           try again sooner               keep it and its objects
//
// A kind is not served when its CRD was deleted or no longer has this version, or by an answer without its resource. If the
// kind is served and there is no permission to list it, the informer says so once, has synced after ten seconds without
// objects (unless it is Required), and goes on trying. If the permission is taken away later, the objects stay.
type OptionalInformer struct {
	log       *zap.Logger
	discovery ResourceDiscovery
	resource  schema.GroupVersionResource
	newFunc   func() cache.SharedIndexInformer
	interval  time.Duration
	required  bool
	handlers  []*tracker

	current atomic.Pointer[generation]
	synced  atomic.Bool

	// Of the goroutine in Run only.
	absences   int
	saidAbsent bool
	retry      *wait.Backoff
}

// generation is one informer, from the kind's appearance to its end.
type generation struct {
	informer      cache.SharedIndexInformer
	registrations []cache.ResourceEventHandlerRegistration
	cancel        context.CancelFunc
	done          chan struct{}

	forbidden atomic.Pointer[time.Time] // when the list was first forbidden; nil: it was not, or is allowed again
	saidStale bool                      // of the informer's goroutine only
}

// NewOptionalInformer makes an informer that does nothing until Run.
func NewOptionalInformer(p OptionalInformerParams) *OptionalInformer {
	if p.PollInterval <= 0 {
		p.PollInterval = defaultPollInterval
	}
	return &OptionalInformer{
		log:       p.Log.With(zap.String(logging.KeyResource, p.Resource.String())),
		discovery: p.Discovery,
		resource:  p.Resource,
		newFunc:   p.New,
		interval:  p.PollInterval,
		required:  p.Required,
	}
}

// AddEventHandler registers h, before Run. Its calls come one at a time, and over all appearances of the kind each object
// that h was told of is deleted before it is added again. What is added is found by Get and List. When the kind goes away h
// gets OnDelete with the last known state of every object; when Run ends it gets nothing.
func (o *OptionalInformer) AddEventHandler(h cache.ResourceEventHandler) {
	o.handlers = append(o.handlers, newTracker(h))
}

// Run looks at discovery until ctx ends, and returns when everything it started has ended. It runs once.
func (o *OptionalInformer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		timer := time.NewTimer(o.poll(ctx))
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

// HasSynced is true from the moment that the kind was first found absent, or that its objects are listed and every
// handler was told of them, or that the list was forbidden for ten seconds. It stays true: a kind that appears later does
// not make a ready process unready.
func (o *OptionalInformer) HasSynced() bool {
	if o.synced.Load() {
		return true
	}
	if g := o.current.Load(); g != nil && (g.hasSynced() || !o.required && g.isForbidden()) {
		o.synced.Store(true)
	}
	return o.synced.Load()
}

// Present is true while the kind is known to be served.
func (o *OptionalInformer) Present() bool {
	return o.current.Load() != nil
}

// Listed is true while the kind is known to be served and Get and List know all its objects.
func (o *OptionalInformer) Listed() bool {
	g := o.current.Load()
	return g != nil && g.informer.HasSynced()
}

// Get returns the object of that name, which must not be changed. Objects of a cluster-scoped kind have no namespace.
func (o *OptionalInformer) Get(name cache.ObjectName) (any, bool) {
	g := o.current.Load()
	if g == nil {
		return nil, false
	}
	// The error is for stores whose lookups can fail; an indexer's cannot.
	obj, exists, _ := g.informer.GetIndexer().GetByKey(name.String())
	return obj, exists
}

// List returns all objects in no particular order; they must not be changed.
func (o *OptionalInformer) List() []any {
	g := o.current.Load()
	if g == nil {
		return nil
	}
	return g.informer.GetIndexer().List()
}

// ByIndex returns the objects with a value of an index that New's informers have, in no particular order; they must not be
// changed. An index that is not there is a mistake in the program.
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

// poll looks at discovery once, acts on the answer and says when to look again.
func (o *OptionalInformer) poll(ctx context.Context) time.Duration {
	served, err := o.served(ctx)
	if err != nil {
		return o.keep(ctx, err)
	}
	o.retry = nil
	switch present := o.Present(); {
	case served:
		o.absences = 0
		if !present {
			o.start(ctx)
		}
		o.sayAllowed()
	case present:
		o.absences++
		if o.absences == absencesToDrop {
			o.drop()
		}
	default:
		o.sayAbsent("Kind is not served, waiting for it")
		o.synced.Store(true)
	}
	return wait.Jitter(o.interval, pollJitter)
}

func (o *OptionalInformer) served(ctx context.Context) (bool, error) {
	list, err := o.discovery.ServerResourcesForGroupVersionWithContext(ctx, o.resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == o.resource.Resource {
			return true, nil
		}
	}
	return false, nil
}

// keep handles an outage of discovery, which says nothing about the kind.
func (o *OptionalInformer) keep(ctx context.Context, err error) time.Duration {
	o.absences = 0
	if o.retry == nil {
		o.retry = &wait.Backoff{Duration: min(firstRetry, o.interval), Factor: 2, Jitter: pollJitter, Steps: 32, Cap: o.interval}
		if ctx.Err() == nil {
			o.log.Warn("Could not ask whether kind is served, kept its state", zap.Error(err))
		}
	}
	return o.retry.Step()
}

func (o *OptionalInformer) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	g := &generation{informer: o.newFunc(), cancel: cancel, done: make(chan struct{})}
	for _, h := range o.handlers {
		registration, err := g.informer.AddEventHandler(h)
		if err != nil {
			cancel()
			o.log.Error("Could not start informer", zap.Error(err))
			return
		}
		g.registrations = append(g.registrations, registration)
	}
	if err := g.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		o.listFailed(ctx, r, g, err)
	}); err != nil {
		cancel()
		o.log.Error("Could not start informer", zap.Error(err))
		return
	}
	// Before the first event: a handler that looks the object up must find it.
	o.current.Store(g)
	go func() {
		defer close(g.done)
		g.informer.RunWithContext(ctx)
	}()
	if o.saidAbsent {
		o.log.Info("Kind is served, started to watch it")
		o.saidAbsent = false
	}
}

// drop ends the informer and deletes its objects: nobody else will, as the watch that would tell is gone.
func (o *OptionalInformer) drop() {
	g := o.current.Swap(nil)
	g.cancel()
	<-g.done
	for _, h := range o.handlers {
		h.deleteAll()
	}
	o.absences = 0
	o.sayAbsent("Kind is no longer served, dropped its objects")
}

func (o *OptionalInformer) sayAbsent(message string) {
	if !o.saidAbsent {
		o.log.Info(message)
		o.saidAbsent = true
	}
}

// listFailed is called when a list or a watch has failed, before the informer tries again.
func (o *OptionalInformer) listFailed(ctx context.Context, r *cache.Reflector, g *generation, err error) {
	now := time.Now()
	switch {
	case !apierrors.IsForbidden(err):
		cache.DefaultWatchErrorHandler(ctx, r, err)
	case g.informer.HasSynced():
		if !g.saidStale {
			o.log.Warn("Kind may no longer be listed and watched, kept its objects", zap.Error(err))
			g.saidStale = true
		}
	case g.forbidden.CompareAndSwap(nil, &now):
		message := "Kind may not be listed, it counts as not served"
		if o.required {
			message = "Kind may not be listed, waiting for the permission"
		}
		o.log.Warn(message, zap.Error(err))
	}
}

// sayAllowed notices that a list which was forbidden has succeeded.
func (o *OptionalInformer) sayAllowed() {
	g := o.current.Load()
	if g != nil && g.forbidden.Load() != nil && g.informer.HasSynced() {
		g.forbidden.Store(nil)
		o.log.Info("Kind may be listed, started to watch it")
	}
}

// isForbidden reports whether the list has been forbidden for too long to wait for it.
func (g *generation) isForbidden() bool {
	since := g.forbidden.Load()
	return since != nil && time.Since(*since) >= forbiddenPatience
}

func (g *generation) hasSynced() bool {
	if !g.informer.HasSynced() {
		return false
	}
	for _, r := range g.registrations {
		if !r.HasSynced() {
			return false
		}
	}
	return true
}
