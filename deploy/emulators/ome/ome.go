// Package ome emulates OME's controller, for tests of controllers that run beside an unmodified OME with the configuration of
// OME's chart.
//
// The emulator reconciles InferenceServices (ome.io/v1beta1) like OME 1.2 or 1.3, as other clients of the API server see it:
// Services of components with OME's names, labels, selectors and owners; the Service with the service's name; InferenceReplicas
// and the Services of revisions (1.3); clean-up; conditions and URLs in the status; OME's own Ingress, if it is enabled. The
// emulator also has the faults of OME that affect other controllers; comments describe them. It is as slow as OME: one worker, and 20
// requests a second. Without a webhook, the defaults of OME's admission (1.2) are set in the first reconcile. Not emulated: models and
// their choice of a runtime (a service without spec.model is served, too), accelerators, scaling (but for the replicas of RawDeployment:
// autoscaler.go), LeaderWorkerSets (two Deployments, of leaders and of workers, replace one), HTTPRoutes, rollouts, and the clean-up of
// kinds that no program here writes.
//
//	a test needs                                how
//	no pods                                     default: without Options.PodImage all components are ready immediately
//	a component that is not ready               AnnotationReady
//	some ready instances (1.3)                  AnnotationServing
//	components of the serving runtime (1.3)     AnnotationRuntime, Options.Runtime
//	workers of the serving runtime (1.3)        AnnotationRuntimeWorkers
//	InferenceReplicas, revision Services (1.3)  spec.deploymentMode: OMENative, or a leader or worker
//	InferenceReplicas of a user (1.3)           spec.replicaRefs
//	another configuration                       change the ConfigMap and restart the emulator, as with OME
//	a settled cluster                           wait until Writes stays the same
//
// The behavior follows OME's source; no code is copied. Release 1.2 is sgl-project/ome at 17b77eda (chart 0.1.5), and release 1.3
// is ome-projects/ome at 58a57f25. These are the files of 1.3, below pkg/controller/v1beta1 unless the path says otherwise:
//
//	charts/ome-resources: configmap.yaml, values.yaml        the ConfigMap
//	inferenceservice/utils/deployment.go                     deployment modes, IsMultiPodComponent
//	inferenceservice/components/base.go                      selectors of Services (ReconcileStableSubresources)
//	inferenceservice/reconcilers/irprojector                 InferenceReplicas: names, owners, status (roles, projector, status)
//	inferenceservice/replicarefs (reconcileReferencedReplicas), pkg/validation (ValidateReplicaRefs)   spec.replicaRefs
//	inferenceservice/reconcilers/omenative/coordination      Services of revisions (services, reconciler)
//	inferenceservice/reconcilers/external_service            the Service with the service's name
//	inferenceservice/cleanup.go, inferenceservice/status     clean-up, ready conditions
//	workload/query (labels, names), workload pod rendering   labels of pods, names
//	inferencereplica/convert.go                              the headless Service
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

// Params are the parameters of New.
type Params struct {
	Options

	Config   *rest.Config
	Log      *zap.Logger
	Registry prometheus.Registerer // nil: metrics are not exported
}

// Emulator emulates OME's controller.
type Emulator struct {
	informers  *informers
	controller *controller.Controller
	ledger     *ledger
}

// New returns an Emulator. Run starts it.
func New(p Params) (*Emulator, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(p.Config)
	config.WarningHandlerWithContext = rest.NoWarnings{}       // the API server warns about OME's finalizer
	config.QPS, config.Burst, config.RateLimiter = 20, 30, nil // the defaults of controller-runtime, which OME keeps
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
	e.informers, err = newInformers(c, p.Release, p.Log, func(name cache.ObjectName) { e.controller.Enqueue(name) })
	if err != nil {
		return nil, err
	}
	store := &store{client: c.dynamic, ledger: e.ledger}
	reader := &configReader{store: store, namespace: p.Namespace, release: p.Release, clock: clock.RealClock{}}
	if p.Release == Release13 {
		reader.ttl = p.ConfigTTL
	}
	workers := controller.DefaultOptions()
	workers.Workers = 1 // OME's manager sets no number
	e.controller = controller.New(controller.Params{
		Options: workers, Name: "ome", Log: p.Log, Metrics: controller.NewMetrics(p.Registry), Clock: clock.RealClock{},
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
		return clients{}, fmt.Errorf("create clients: %w", err)
	}
	return c, nil
}

// Run reconciles InferenceServices until ctx ends, then finishes the reconciles in progress. Call it once. The CRD of
// InferenceServices can be created later.
func (e *Emulator) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { e.informers.run(ctx) })
	e.informers.waitForSync(ctx)
	e.controller.Run(ctx, context.WithoutCancel(ctx)) // shuts the queue down even if ctx has ended
	return nil
}

// Synced reports whether the caches contain all objects that existed when Run started.
func (e *Emulator) Synced() bool { return e.informers.hasSynced() }

// Writes returns the numbers of write requests, successful or not.
func (e *Emulator) Writes() map[Write]int { return e.ledger.snapshot() }
