// Package ome is a stand-in for OME's controller, for tests of what lives beside it: an OME that nobody has changed, as it is
// shipped.
//
// It does to InferenceServices (ome.io/v1beta1) what OME 1.2 or 1.3 does as far as others see it: Services of components
// with OME's names, labels and owners, the Service of a service's own name, clean-up, conditions and URLs in the status, and
// its own Ingress where that is switched on. Faults that others have to live with are kept, and told where they are. Models,
// runtimes, accelerators, scaling, Knative, LeaderWorkerSets and HTTPRoutes are not emulated.
//
//	what a test wants                  how
//	pods that do not exist             nothing: without Options.PodImage all components are ready at once
//	a component that is not ready      AnnotationReady
//	components of the runtime (1.3)    AnnotationRuntime, Options.Runtime
//	revisions and headless ones (1.3)  spec.deploymentMode: OMENative, or a leader or worker
//	another configuration              change the ConfigMap, and end this and start another, as one does with OME
//	peace                              Writes stays the same
package ome

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/controller"
)

// Params is what New needs.
type Params struct {
	Options

	Config   *rest.Config
	Log      *zap.Logger
	Registry prometheus.Registerer // nil keeps metrics to itself
}

// Emulator is a stand-in for OME's controller.
type Emulator struct {
	informers  *informers
	controller *controller.Controller
	ledger     *ledger
}

// New returns an Emulator that does nothing until Run.
func New(p Params) (*Emulator, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(p.Config)
	config.WarningHandlerWithContext = rest.NoWarnings{} // its finalizer is none that the API server likes
	c, err := newClients(config)
	if err != nil {
		return nil, err
	}
	if p.Registry == nil {
		p.Registry = prometheus.NewRegistry()
	}
	e := &Emulator{ledger: newLedger()}
	if err := p.Registry.Register(e.ledger); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	e.informers, err = newInformers(c, p.Log, func(name cache.ObjectName) { e.controller.Enqueue(name) })
	if err != nil {
		return nil, err
	}
	store := &store{client: c.dynamic, ledger: e.ledger}
	reader := &configReader{store: store, namespace: p.Namespace, clock: clock.RealClock{}}
	if p.Release == Release13 {
		reader.ttl = p.ConfigTTL
	}
	e.controller = controller.New(controller.Params{
		Options: controller.DefaultOptions(), Name: "ome", Log: p.Log, Metrics: controller.NewMetrics(p.Registry), Clock: clock.RealClock{},
		Reconciler: &reconciler{options: p.Options, cluster: e.informers, store: store, config: reader, clock: clock.RealClock{}},
	})
	return e, nil
}

func newClients(config *rest.Config) (clients, error) {
	var (
		c    clients
		errs [3]error
	)
	c.dynamic, errs[0] = dynamic.NewForConfig(config)
	c.metadata, errs[1] = metadata.NewForConfig(config)
	c.discovery, errs[2] = discovery.NewDiscoveryClientForConfig(config)
	if err := errors.Join(errs[:]...); err != nil {
		return clients{}, fmt.Errorf("make clients: %w", err)
	}
	return c, nil
}

// Run acts on InferenceServices until ctx ends, then finishes what is in hand. It runs once. Their CRD may come later.
func (e *Emulator) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { e.informers.run(ctx) })
	e.informers.waitForSync(ctx)
	e.controller.Run(ctx, context.WithoutCancel(ctx)) // if ctx has ended, it ends the queue
	return nil
}

// Synced reports whether all that was there when Run began has been seen.
func (e *Emulator) Synced() bool { return e.informers.hasSynced() }

// Writes returns how many requests have written, whatever came of them.
func (e *Emulator) Writes() map[Write]int { return e.ledger.snapshot() }
