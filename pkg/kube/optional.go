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
}

// OptionalInformer is an informer for a kind whose CRD may be absent, for good or for now. It asks discovery, so it needs
// no right to read CRDs:
//
//	discovery says          no informer runs               an informer runs
//	served                  start one                      -
//	not served              say so once; has synced        the second time in a row: stop it, delete its objects
//	anything else           try again sooner               keep it and its objects
//
// A kind is not served when its CRD was deleted or no longer has this version, or by an answer without its resource.
type OptionalInformer struct {
	log       *zap.Logger
	discovery ResourceDiscovery
	resource  schema.GroupVersionResource
	newFunc   func() cache.SharedIndexInformer
	interval  time.Duration
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
// handler was told of them. It stays true: a kind that appears later does not make a ready process unready.
func (o *OptionalInformer) HasSynced() bool {
	if o.synced.Load() {
		return true
	}
	if g := o.current.Load(); g != nil && g.hasSynced() {
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
