package ome

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/logging"
)

var (
	errRay     = errors.New("unsupported deployment mode " + string(modeRay))
	errNoRoute = errors.New(`no kind is registered for the type v1.HTTPRoute in scheme`)
	errStale   = errors.New("the Service is not in the cache yet")
	errRoutes  = errors.New("HTTPRoutes of OME 1.3 are not emulated")
)

// cluster is the part of the caches that the reconciler reads.
type cluster interface {
	// service returns an InferenceService, or nil if it does not exist. Callers must not change it.
	service(name cache.ObjectName) *unstructured.Unstructured
	// serves reports whether the API server serves an optional kind.
	serves(k kind) bool
	// labelled returns the objects with LabelService for a service, by kind.
	labelled(name cache.ObjectName) map[kind][]metav1.Object
}

// reconciler reconciles a service in OME's order:
//
//	finalizer       added first; removed immediately when the service is deleted
//	components      Service, pods and condition of each
//	ingress         OME's own Ingress, if it is enabled
//	Service <name>  if the Ingress is disabled; otherwise any Service with that name is deleted
//	clean-up        labeled and owned objects of removed components
//	status          once, at the end; not after an error
type reconciler struct {
	options Options
	cluster cluster
	store   *store
	config  *configReader
	clock   clock.PassiveClock
}

// Reconcile implements controller.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, name cache.ObjectName) error {
	live := r.cluster.service(name)
	if live == nil {
		return nil
	}
	live, err := r.finalizer(ctx, live)
	if err != nil || live.GetDeletionTimestamp() != nil {
		return err
	}
	service, err := decode(live, r.options.Release)
	if err != nil {
		return controller.Terminal("Undecodable", err)
	}
	before := service.Status
	service.Status.Conditions = slices.Clone(before.Conditions)
	service.Status.Components = maps.Clone(before.Components)
	if mode(service.Annotations[annotationMode]) == modeVirtual {
		r.virtual(service)
	} else if err := r.reconcile(ctx, service); err != nil {
		return err
	} else if r.options.Release == Release12 {
		service.Status.setModel(before.isTrue(conditionReady))
	}
	if sameStatus(&before, &service.Status) {
		return nil
	}
	logging.FromContext(ctx).Info("Updated status")
	return r.store.updateStatus(ctx, inferenceServices, service)
}

// finalizer adds the finalizer, or removes it from a service that is being deleted.
func (r *reconciler) finalizer(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	has, wanted := slices.Contains(live.GetFinalizers(), Finalizer), live.GetDeletionTimestamp() == nil
	if has == wanted {
		return live, nil
	}
	next := live.DeepCopy()
	if wanted {
		next.SetFinalizers(append(next.GetFinalizers(), Finalizer))
		if r.options.Release == Release12 {
			admit(next)
		}
	} else {
		next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == Finalizer }))
	}
	return r.store.updateRaw(ctx, inferenceServices, next)
}

// virtual sets the status of a service whose model runs outside of OME. It removes the conditions of other writers.
func (r *reconciler) virtual(s *inferenceService) {
	url := "http://" + r.inCluster(s, s.Name)
	s.Status.URL, s.Status.Address = url, &address{URL: url}
	s.Status.Components = map[Role]componentStatus{"predictor": {URL: url}}
	s.Status.Conditions = []condition{{
		Type: conditionReady, Status: corev1.ConditionTrue, LastTransitionTime: r.now(), Reason: reasonVirtual, Message: messageVirtual,
	}}
}

// reconcile applies all objects and computes the status.
func (r *reconciler) reconcile(ctx context.Context, s *inferenceService) error {
	config, err := r.config.get(ctx)
	if err != nil {
		return err
	}
	config = config.of(s)
	list, err := components(s, &r.options)
	if err != nil {
		return err
	}
	for i := range list {
		if err := r.component(ctx, s, &list[i], config); err != nil {
			return err
		}
	}
	if err := r.exposure(ctx, s, list, config); err != nil {
		return err
	}
	if s.referenced(Engine) == "" { // OME skips the clean-up for a service with replicaRefs
		r.cleanUp(ctx, s, list, config)
	}
	return nil
}

// component applies the objects of a component, and reports the component in the status.
func (r *reconciler) component(ctx context.Context, s *inferenceService, c *component, config configuration) error {
	if r.options.Release == Release13 && !c.referenced {
		if err := r.leaveMode(ctx, s, c); err != nil {
			return err
		}
	}
	switch c.mode {
	case modeNative:
		return r.native(ctx, s, c)
	case modeServerless:
		return r.serverless(ctx, s, c)
	}
	return r.deployed(ctx, s, c, config)
}

// deployed is component for the modes with Deployments.
func (r *reconciler) deployed(ctx context.Context, s *inferenceService, c *component, config configuration) error {
	host, err := config.host(s, c.name)
	if err != nil {
		return err
	}
	if err := r.applyService(ctx, buildService(s, c)); err != nil {
		return err
	}
	if err := r.revisions(ctx, s, c, nil); err != nil {
		return err
	}
	ready, err := r.readiness(ctx, s, c)
	if err != nil {
		return err
	}
	reported := s.Status.Components[c.role]
	if ready.Status == corev1.ConditionTrue {
		reported.URL = "http://" + host
	}
	if r.options.Release == Release13 && c.mode == modeRaw {
		reported.ScaleTargetRef = &scaleTarget{APIVersion: "apps/v1", Kind: "Deployment", Name: c.name}
	}
	s.report(c.role, reported)
	s.Status.set(ready, r.now())
	return nil
}

// applyService creates a Service. It replaces an existing Service with that name, regardless of the owner, if the ports or the
// selector differ. Other differences alone, such as labels and annotations, cause no update.
func (r *reconciler) applyService(ctx context.Context, wanted *corev1.Service) error {
	live := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: wanted.Namespace, Name: wanted.Name}}
	found, err := r.store.get(ctx, services, live)
	switch {
	case err != nil:
		return err
	case !found:
		return r.store.create(ctx, services, wanted)
	case sameService(live, wanted):
		return nil
	}
	return r.store.update(ctx, services, wanted)
}

// sameService compares Services like OME: a node port that the cluster has allocated is a difference in each reconcile.
func sameService(live, wanted *corev1.Service) bool {
	return apiequality.Semantic.DeepEqual(live.Spec.Ports, wanted.Spec.Ports) && maps.Equal(live.Spec.Selector, wanted.Spec.Selector)
}

// revisions applies the wanted Services of a component's revisions, and deletes the Services of other revisions.
func (r *reconciler) revisions(ctx context.Context, s *inferenceService, c *component, wanted []*corev1.Service) error {
	for _, w := range wanted {
		if err := r.applyService(ctx, w); err != nil {
			return err
		}
	}
	for _, o := range r.cluster.labelled(nameOf(s))[services] {
		if o.GetLabels()[LabelRevision] == "" || o.GetLabels()[LabelComponent] != string(c.role) || !owned(o, s) ||
			slices.ContainsFunc(wanted, func(w *corev1.Service) bool { return w.Name == o.GetName() }) {
			continue
		}
		if err := r.store.delete(ctx, services, o.GetNamespace(), o.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// readiness returns the condition of a component. It reads the Deployment, or AnnotationReady without Options.PodImage. The
// reason is Initializing until the component is available for the first time.
func (r *reconciler) readiness(ctx context.Context, s *inferenceService, c *component) (condition, error) {
	ready := condition{Type: readyCondition(c.role), Status: corev1.ConditionFalse, Reason: reasonInitializing}
	if r.options.PodImage != "" {
		deployment, err := r.applyDeployment(ctx, buildDeployment(s, c, &r.options))
		if err != nil {
			return ready, err
		}
		if err := r.applyAutoscaler(ctx, s, c); err != nil {
			return ready, err
		}
		if workers := buildWorkers(s, c, &r.options); workers != nil {
			if _, err := r.applyDeployment(ctx, workers); err != nil {
				return ready, err
			}
		}
		// OME reports the generation of the last component's Deployment, not of the InferenceService.
		s.Status.ObservedGeneration = deployment.Status.ObservedGeneration
		for _, d := range deployment.Status.Conditions {
			if d.Type == appsv1.DeploymentAvailable {
				ready.Status, ready.Reason, ready.Message = d.Status, d.Reason, d.Message
			}
		}
	} else {
		s.Status.ObservedGeneration = 1 // the generation of an unchanged Deployment
		if listed, annotated := s.listed(AnnotationReady, c.role); listed || !annotated {
			ready.Status, ready.Reason, ready.Message = corev1.ConditionTrue, reasonAvailable, messageAvailable
		} else if was := s.Status.find(ready.Type); was != nil && was.Reason != reasonInitializing {
			ready.Reason, ready.Message = reasonUnavailable, messageUnavailable
		}
	}
	return ready, nil
}

// applyDeployment creates or updates a Deployment, and returns its previous state.
func (r *reconciler) applyDeployment(ctx context.Context, wanted *appsv1.Deployment) (*appsv1.Deployment, error) {
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: wanted.Namespace, Name: wanted.Name}}
	found, err := r.store.get(ctx, deployments, live)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return live, r.store.create(ctx, deployments, wanted)
	case live.Annotations[annotationHash] == wanted.Annotations[annotationHash]:
		return live, nil
	}
	wanted.ResourceVersion = live.ResourceVersion
	if wanted.Spec.Replicas == nil { // another program has them
		wanted.Spec.Replicas = live.Spec.Replicas
	}
	return live, r.store.update(ctx, deployments, wanted)
}

// cleanUp deletes objects that have LabelService for the service, the service as an owner, and a component label that names no
// component of the service. It does not check which program created them. The next reconcile retries failed deletions.
func (r *reconciler) cleanUp(ctx context.Context, s *inferenceService, list []component, config configuration) {
	active := map[string]bool{"": true, componentExternal: config.DisableIngressCreation}
	for i := range list {
		active[string(list[i].role)] = true
	}
	for k, objects := range r.cluster.labelled(nameOf(s)) {
		for _, o := range objects {
			of := o.GetLabels()[LabelComponent]
			if !owned(o, s) || active[of] && (of != componentExternal || k == services) {
				continue
			}
			log := logging.FromContext(ctx).With(zap.String(logging.KeyKind, k.name), zap.String("object", o.GetName()))
			if err := r.store.delete(ctx, k, o.GetNamespace(), o.GetName()); err != nil {
				log.Warn("Could not delete object of removed component; the next reconcile retries", zap.Error(err))
				continue
			}
			log.Info("Deleted object of removed component")
		}
	}
	for role := range s.Status.Components {
		if !active[string(role)] {
			delete(s.Status.Components, role) // the condition stays
		}
	}
}

// owned reports whether the service is an owner of an object, not necessarily its controller.
func owned(o metav1.Object, s *inferenceService) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.APIVersion == APIVersion && ref.Kind == Kind && ref.Name == s.Name && ref.UID == s.UID
	})
}

// inCluster returns the host name of a Service within the cluster.
func (r *reconciler) inCluster(s *inferenceService, name string) string {
	return fmt.Sprintf("%s.%s.svc.%s", name, s.Namespace, r.options.ClusterDomain)
}

// now returns the time in whole seconds, the precision of the API.
func (r *reconciler) now() metav1.Time { return metav1.NewTime(r.clock.Now()).Rfc3339Copy() }

func nameOf(s *inferenceService) cache.ObjectName {
	return cache.ObjectName{Namespace: s.Namespace, Name: s.Name}
}
