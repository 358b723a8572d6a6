package ome

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Reasons of the ready condition of a component in mode OMENative (status: TopLevelComponentReadyFromLifecycle).
const (
	reasonReady        = "Ready"
	reasonInsufficient = "InsufficientAvailable"
	reasonNoReplicas   = "NoReplicas"
	reasonRefMissing   = "ReplicaRefMissing"
	reasonRefInvalid   = "ReplicaRefInvalid"

	messageReady      = "All Instances are Ready"
	messageNoReplicas = "Component has no desired Instances"
)

// buildReplica returns the InferenceReplica that OME creates for a component of a service.
func buildReplica(s *inferenceService, c *component, o *Options) *inferenceReplica {
	replicas := c.desired()
	replica := &inferenceReplica{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.replica, Namespace: s.Namespace, Labels: c.labels(s), OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Spec: replicaSpec{ParentRef: &reference{Name: s.Name}, Component: c.role, Replicas: &replicas},
	}
	add := func(name string, size int32, container corev1.Container) {
		replica.Spec.Runners = append(replica.Spec.Runners, runner{Name: name, Size: size, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: c.labels(s), Annotations: c.annotations(s)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
		}})
	}
	served := c.served(o)
	if c.workers == 0 {
		add(runnerDefault, 1, served)
		return replica
	}
	add(runnerLeader, 1, served)
	worker := served // unless the specification has a container for workers
	if c.Worker != nil && (c.Worker.Runner != nil || len(c.Worker.Containers) > 0) {
		worker = (&component{componentSpec: &componentSpec{podSpec: c.Worker.podSpec}}).served(o)
	}
	worker.Ports, worker.ReadinessProbe = nil, nil // workers do not serve the API
	add(runnerWorker, c.workers, worker)
	return replica
}

// buildHeadless returns the headless Service of an InferenceReplica, which is its controller. The Service selects all pods,
// including workers.
func buildHeadless(replica *inferenceReplica, c *component) *corev1.Service {
	yes := true
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: truncate(c.prefix + "-" + string(c.role) + "-headless"), Namespace: replica.Namespace, Labels: c.instances(),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: APIVersion, Kind: KindReplica, Name: replica.Name, UID: replica.UID, Controller: &yes,
				BlockOwnerDeletion: &yes,
			}},
		},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: c.instances()},
	}
}

// buildRevisions returns the Services of a component's revision (coordination/services.go). If the container declares ports,
// the first Service has the port with the name http, else the first port, and selects only leaders if there are workers. The
// last Service is headless, without ports.
func buildRevisions(s *inferenceService, c *component) []*corev1.Service {
	labels := merge(c.instances(), map[string]string{LabelRevision: c.revision()})
	build := func(suffix string, spec corev1.ServiceSpec) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Name: truncate(c.prefix + "-" + string(c.role) + "-rev-" + c.revision() + suffix), Namespace: s.Namespace, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{s.owner()},
		}, Spec: spec}
	}
	headless := build("-headless", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: labels})
	declared := c.container().Ports
	if len(declared) == 0 {
		return []*corev1.Service{headless} // OME has no default port here
	}
	selector := labels
	if c.workers > 0 {
		selector = merge(labels, leaders)
	}
	serving := declared[max(0, slices.IndexFunc(declared, func(p corev1.ContainerPort) bool { return p.Name == "http" }))]
	port := servicePort(serving.Name, serving.ContainerPort, serving.Protocol)
	if serving.Name != "" {
		port.TargetPort = intstr.FromString(serving.Name)
	}
	return []*corev1.Service{build("", corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: selector, Ports: []corev1.ServicePort{port}}), headless}
}

// buildSets returns the Deployments for the pods of an InferenceReplica, one for each runner. Their pods have the labels of
// OME's pods, except that the instance index and the pod ordinal are 0 on all pods.
func buildSets(replica *inferenceReplica, c *component) []*appsv1.Deployment {
	var sets []*appsv1.Deployment
	for i := range replica.Spec.Runners {
		r := &replica.Spec.Runners[i]
		name := c.name + "-" + r.Name
		count := *replica.Spec.Replicas * max(1, r.Size)
		labels := merge(r.Template.Labels, c.instances(), map[string]string{
			LabelRunner: r.Name, LabelOrdinal: "0", labelInstance: "0", labelIncarnation: "1", LabelRevision: c.revision(), labelSet: name,
		})
		set := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: replica.Namespace, OwnerReferences: replica.OwnerReferences,
				Labels: merge(replica.Labels, map[string]string{LabelService: c.prefix, LabelComponent: string(c.role)}),
			},
			Spec: appsv1.DeploymentSpec{
				Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{labelSet: name}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: r.Template.Annotations}, Spec: r.Template.Spec,
				},
			},
		}
		set.Annotations = map[string]string{annotationHash: digest(set)}
		sets = append(sets, set)
	}
	return sets
}

// instancesOf applies the headless Service and the pods of an InferenceReplica. It writes the counters of the instances to the
// status of the InferenceReplica, and returns them.
func (r *reconciler) instancesOf(ctx context.Context, s *inferenceService, c *component, replica *inferenceReplica) (instances, error) {
	counts := instances{
		ObservedGeneration: replica.Generation, Replicas: *replica.Spec.Replicas,
		CurrentRevision: fmt.Sprintf("%s-%s-%s", c.prefix, c.role, c.revision()),
		LabelSelector:   metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: c.instances()}),
	}
	counts.UpdateRevision, counts.UpdatedReplicas = counts.CurrentRevision, counts.Replicas
	if err := r.applyService(ctx, buildHeadless(replica, c)); err != nil {
		return counts, err
	}
	ready, err := r.readyInstances(ctx, s, c, replica)
	if err != nil {
		return counts, err
	}
	counts.ReadyReplicas, counts.ServingReplicas, counts.AvailableReplicas = ready, ready, ready
	if replica.Status == counts {
		return counts, nil
	}
	replica.Status = counts
	return counts, r.store.updateStatus(ctx, replicas, replica)
}

// readyInstances applies the Deployments, and returns the number of instances whose pods are all ready. Without
// Options.PodImage it returns the number in annotations.
func (r *reconciler) readyInstances(ctx context.Context, s *inferenceService, c *component, replica *inferenceReplica) (int32, error) {
	desired := *replica.Spec.Replicas
	if r.options.PodImage == "" {
		s.Status.ObservedGeneration = 1
		if n, given := s.number(AnnotationServing, c.role); given {
			return min(n, desired), nil
		}
		if listed, annotated := s.listed(AnnotationReady, c.role); annotated && !listed {
			return 0, nil
		}
		return desired, nil
	}
	ready := desired
	for i, set := range buildSets(replica, c) {
		live, err := r.applyDeployment(ctx, set)
		if err != nil {
			return 0, err
		}
		s.Status.ObservedGeneration = live.Status.ObservedGeneration
		ready = min(ready, live.Status.ReadyReplicas/max(1, replica.Spec.Runners[i].Size))
	}
	return ready, nil
}

// applyReplica creates or updates the InferenceReplica of a component, and returns its new state.
func (r *reconciler) applyReplica(ctx context.Context, wanted *inferenceReplica) (*inferenceReplica, error) {
	live := &inferenceReplica{ObjectMeta: metav1.ObjectMeta{Namespace: wanted.Namespace, Name: wanted.Name}}
	found, err := r.store.get(ctx, replicas, live)
	switch {
	case err != nil:
		return nil, err
	case !found:
		err = r.store.create(ctx, replicas, wanted)
	case apiequality.Semantic.DeepEqual(live.Spec, wanted.Spec) && maps.Equal(live.Labels, wanted.Labels):
		return live, nil
	default:
		live.Spec, live.Labels, live.OwnerReferences = wanted.Spec, wanted.Labels, wanted.OwnerReferences
		err = r.store.update(ctx, replicas, live)
	}
	if err != nil {
		return nil, err
	}
	live = &inferenceReplica{ObjectMeta: metav1.ObjectMeta{Namespace: wanted.Namespace, Name: wanted.Name}}
	_, err = r.store.get(ctx, replicas, live)
	return live, err
}

// native reconciles a component in mode OMENative.
func (r *reconciler) native(ctx context.Context, s *inferenceService, c *component) error {
	replica, problem, err := r.replicaOf(ctx, s, c)
	if err != nil {
		return err
	}
	reported := s.Status.Components[c.role]
	if problem != nil {
		reported.ScaleTargetRef = nil // the builders of routes must not use it
		s.report(c.role, reported)
		s.Status.set(*problem, r.now())
		return nil
	}
	if err := r.applyService(ctx, buildService(s, c)); err != nil {
		return err
	}
	counts, err := r.instancesOf(ctx, s, c, replica)
	if err != nil {
		return err
	}
	var wanted []*corev1.Service
	if !c.referenced && counts.Replicas > 0 { // without instances OME deletes the Services of revisions
		wanted = buildRevisions(s, c)
	}
	if err := r.revisions(ctx, s, c, wanted); err != nil {
		return err
	}
	reported.ScaleTargetRef = &scaleTarget{APIVersion: APIVersion, Kind: KindReplica, Name: replica.Name}
	reported.Lifecycle = &counts
	s.report(c.role, reported)
	s.Status.set(readyOf(c.role, &counts), r.now())
	return nil
}

// replicaOf returns the InferenceReplica of a component. If spec.replicaRefs names a missing or invalid InferenceReplica, it
// returns the condition that reports this.
func (r *reconciler) replicaOf(ctx context.Context, s *inferenceService, c *component) (*inferenceReplica, *condition, error) {
	if !c.referenced {
		replica, err := r.applyReplica(ctx, buildReplica(s, c, &r.options))
		return replica, nil, err
	}
	replica := &inferenceReplica{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: c.replica}}
	found, err := r.store.get(ctx, replicas, replica)
	if err != nil {
		return nil, nil, err
	}
	problem := &condition{Type: readyCondition(c.role), Status: corev1.ConditionFalse}
	field := "spec.replicaRefs." + string(c.role)
	switch {
	case !found:
		problem.Reason, problem.Message = reasonRefMissing, fmt.Sprintf("InferenceReplica %s named by %s does not exist", c.replica, field)
	case replica.Spec.ParentRef != nil:
		problem.Reason, problem.Message = reasonRefInvalid, fmt.Sprintf("InferenceReplica %s named by %s is projected by InferenceService %s", c.replica, field, replica.Spec.ParentRef.Name)
	case replica.Spec.Component != c.role:
		problem.Reason, problem.Message = reasonRefInvalid, fmt.Sprintf("InferenceReplica %s named by %s has component %s", c.replica,
			field, replica.Spec.Component)
	default:
		c.adopt(replica)
		return replica, nil, nil
	}
	return nil, problem, nil
}

// adopt copies the specification of an InferenceReplica of a user: the Service has the ports of the leader and selects only
// leaders, if there is a leader.
func (c *component) adopt(replica *inferenceReplica) {
	if replica.Spec.Replicas == nil {
		one := int32(1)
		replica.Spec.Replicas = &one
	}
	c.MinReplicas = replica.Spec.Replicas
	for i := range replica.Spec.Runners {
		switch r := &replica.Spec.Runners[i]; r.Name {
		case runnerLeader:
			c.leaderOnly, c.Containers = true, r.Template.Spec.Containers
		case runnerDefault:
			c.Containers = r.Template.Spec.Containers
		case runnerWorker:
			c.workers = max(1, r.Size)
		}
	}
}

// readyOf returns the ready condition of a component from the counters of its instances. All instances must be ready.
func readyOf(role Role, counts *instances) condition {
	ready := condition{Type: readyCondition(role), Status: corev1.ConditionFalse}
	switch {
	case counts.Replicas == 0:
		ready.Reason, ready.Message = reasonNoReplicas, messageNoReplicas
	case counts.ReadyReplicas >= counts.Replicas:
		ready.Status, ready.Reason, ready.Message = corev1.ConditionTrue, reasonReady, messageReady
	default:
		ready.Reason = reasonInsufficient
		ready.Message = fmt.Sprintf("%d/%d Instances serving, need %d", counts.ServingReplicas, counts.Replicas, counts.Replicas)
	}
	return ready
}

// report sets the status of a component.
func (s *inferenceService) report(r Role, reported componentStatus) {
	if s.Status.Components == nil {
		s.Status.Components = map[Role]componentStatus{}
	}
	s.Status.Components[r] = reported
}

// leaveMode deletes the InferenceReplica or the Deployments of a component's previous mode, like release 1.3
// (cleanup.go: cleanupReplacedBackends).
func (r *reconciler) leaveMode(ctx context.Context, s *inferenceService, c *component) error {
	labelled := r.cluster.labelled(nameOf(s))
	for _, k := range []kind{replicas, deployments} {
		for _, o := range labelled[k] {
			kept := k == replicas && c.mode == modeNative || k == deployments && slices.Contains(c.deployments(), o.GetName())
			if kept || o.GetLabels()[LabelComponent] != string(c.role) || !owned(o, s) {
				continue
			}
			if err := r.store.delete(ctx, k, o.GetNamespace(), o.GetName()); err != nil {
				return err
			}
		}
	}
	if reported := s.Status.Components[c.role]; c.mode != modeNative && reported.Lifecycle != nil {
		reported.Lifecycle = nil
		s.Status.Components[c.role] = reported
	}
	return nil
}
