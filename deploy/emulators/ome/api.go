package ome

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Names that OME writes and reads.
const (
	APIVersion  = "ome.io/v1beta1"
	Kind        = "InferenceService"
	KindReplica = "InferenceReplica"
	Finalizer   = "inferenceservice.finalizers"
	ConfigName  = "inferenceservice-config"

	LabelService    = "ome.io/inferenceservice" // the service's name; on pods of spec.replicaRefs, the InferenceReplica's name
	LabelComponent  = "component"
	labelRuntime    = "serving-runtime"
	labelModel      = "base-model-name"
	labelVisibility = "networking.knative.dev/visibility"
	labelApp        = "app"
	labelNodeType   = "ray.io/node-type"

	// Labels of mode OMENative (workload/query: labels).
	LabelManagedBy     = "ome.io/managed-by"
	LabelRunner        = "ome.io/runner" // default, leader or worker
	LabelOrdinal       = "ome.io/pod-ordinal"
	LabelRevision      = "ome.io/revision-hash"
	labelInstance      = "ome.io/instance-index"
	labelIncarnation   = "ome.io/instance-incarnation"
	managedByOMENative = "OMENative"
	runnerDefault      = "default"
	runnerLeader       = "leader"
	runnerWorker       = "worker"

	annotationMode           = "ome.io/deploymentMode"
	annotationServiceType    = "ome.io/service-type"
	annotationLoadBalancerIP = "ome.io/load-balancer-ip"
	annotationTemplate       = "ome.io/ingress-domain-template"
	annotationDomain         = "ome.io/ingress-domain"
	annotationScheme         = "ome.io/ingress-url-scheme"
	annotationDisable        = "ome.io/ingress-disable-creation"

	// componentExternal is the component label of the Service with the service's own name.
	componentExternal = "external-service"
	nodeHead          = "head"
)

// Annotations of an InferenceService with which a test controls parts of OME that are not emulated.
const (
	// AnnotationReady lists the ready components. Without it all components are ready. It has no effect with Options.PodImage.
	AnnotationReady = "emulator.fairlead.dev/ready"
	// AnnotationServing lists the number of ready and serving instances of components in mode OMENative, as in "engine=1". Without
	// it either all instances are ready or none. It has no effect with Options.PodImage.
	AnnotationServing = "emulator.fairlead.dev/serving"
	// AnnotationRuntime lists the components that the serving runtime adds, instead of Options.Runtime.
	AnnotationRuntime = "emulator.fairlead.dev/runtime"
	// AnnotationRuntimeWorkers lists the components for which the serving runtime declares a leader, with the number of their
	// workers, as in "engine=2".
	AnnotationRuntimeWorkers = "emulator.fairlead.dev/runtime-workers"

	// AnnotationRuntimePorts lists the ports that the serving runtime declares for components whose specification declares none, as in
	// "engine=grpc1:8080,engine=metrics:9090".
	AnnotationRuntimePorts = "emulator.fairlead.dev/runtime-ports"

	// annotationHash is the hash of the generated Deployment.
	annotationHash = "emulator.fairlead.dev/template"
	// labelSet is the selector of Deployments that OME does not have.
	labelSet = "emulator.fairlead.dev/set"
	// leadersOfSet and workersOfSet are the suffixes of the Deployments that replace a LeaderWorkerSet.
	leadersOfSet = "-lws"
	workersOfSet = "-lws-worker"
)

// neverPropagated are annotations that OME does not copy to the objects that it creates.
var neverPropagated = []string{
	"autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/max-scale",
	"internal.ome.io/storage-initializer-sourceuri", corev1.LastAppliedConfigAnnotation,
}

// inferenceService is an InferenceService with the fields that the emulator uses.
type inferenceService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   spec   `json:"spec,omitempty"`
	Status status `json:"status,omitempty"`
}

type spec struct {
	Engine    *componentSpec `json:"engine,omitempty"`
	Decoder   *componentSpec `json:"decoder,omitempty"`
	Router    *componentSpec `json:"router,omitempty"`
	Predictor *predictorSpec `json:"predictor,omitempty"` // the engine in the older API without roles

	Model   *reference `json:"model,omitempty"`
	Runtime *reference `json:"runtime,omitempty"`

	// Release 1.3.
	DeploymentMode string            `json:"deploymentMode,omitempty"`
	ReplicaRefs    map[Role][]string `json:"replicaRefs,omitempty"`
}

type componentSpec struct {
	podSpec `json:",inline"`

	MinReplicas *int32            `json:"minReplicas,omitempty"`
	MaxReplicas int32             `json:"maxReplicas,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Leader      *podSpec          `json:"leader,omitempty"`
	Worker      *workerSpec       `json:"worker,omitempty"`
}

type podSpec struct {
	Runner     *corev1.Container  `json:"runner,omitempty"`
	Containers []corev1.Container `json:"containers,omitempty"`
}

type workerSpec struct {
	podSpec `json:",inline"`

	Size *int32 `json:"size,omitempty"`
}

type predictorSpec struct {
	componentSpec `json:",inline"`

	Model *reference `json:"model,omitempty"`
}

type reference struct {
	Name string `json:"name,omitempty"`
}

// status has the fields of OME's type. Each write of OME removes all other fields.
type status struct {
	ObservedGeneration int64                    `json:"observedGeneration,omitempty"`
	Conditions         []condition              `json:"conditions,omitempty"`
	Annotations        map[string]string        `json:"annotations,omitempty"`
	URL                string                   `json:"url,omitempty"`
	Address            *address                 `json:"address,omitempty"`
	Components         map[Role]componentStatus `json:"components,omitempty"`
	ModelStatus        map[string]any           `json:"modelStatus,omitempty"`

	// Release 1.3.
	Addresses []namedAddress `json:"addresses,omitempty"`
	Traffic   map[string]any `json:"traffic,omitempty"`
	Canary    map[string]any `json:"canary,omitempty"`
}

type address struct {
	URL string `json:"url,omitempty"`
}

type namedAddress struct {
	Name string `json:"name,omitempty"`
	URL  string `json:"url,omitempty"`
}

type componentStatus struct {
	URL                       string         `json:"url,omitempty"`
	RestURL                   string         `json:"restURL,omitempty"`
	Address                   *address       `json:"address,omitempty"`
	LatestReadyRevision       string         `json:"latestReadyRevision,omitempty"`
	LatestCreatedRevision     string         `json:"latestCreatedRevision,omitempty"`
	LatestRolledoutRevision   string         `json:"latestRolledoutRevision,omitempty"`
	PreviousRolledoutRevision string         `json:"previousRolledoutRevision,omitempty"`
	Traffic                   []any          `json:"traffic,omitempty"`
	SelectedAccelerator       map[string]any `json:"selectedAccelerator,omitempty"`

	// Release 1.3.
	ScaleTargetRef *scaleTarget `json:"scaleTargetRef,omitempty"`
	Lifecycle      *instances   `json:"lifecycle,omitempty"` // mode OMENative
}

type scaleTarget struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// instances are the counters of an InferenceReplica, and of a component in mode OMENative.
type instances struct {
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	Replicas           int32  `json:"replicas"`
	ReadyReplicas      int32  `json:"readyReplicas"`
	ServingReplicas    int32  `json:"servingReplicas"`
	AvailableReplicas  int32  `json:"availableReplicas"`
	UpdatedReplicas    int32  `json:"updatedReplicas,omitempty"`
	CurrentRevision    string `json:"currentRevision,omitempty"`
	UpdateRevision     string `json:"updateRevision,omitempty"`
	LabelSelector      string `json:"labelSelector,omitempty"`
}

// condition has exactly the fields of OME's conditions.
type condition struct {
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	Severity           string                 `json:"severity,omitempty"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime,omitempty"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
}

// inferenceReplica is an InferenceReplica of release 1.3: the instances of one component. InferenceReplicas of a user have no
// parent.
type inferenceReplica struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   replicaSpec `json:"spec,omitempty"`
	Status instances   `json:"status,omitempty"`
}

type replicaSpec struct {
	ParentRef *reference `json:"parentRef,omitempty"`
	Component Role       `json:"component,omitempty"`
	Replicas  *int32     `json:"replicas,omitempty"`
	Runners   []runner   `json:"runners,omitempty"`
}

type runner struct {
	Name     string                 `json:"name"`
	Size     int32                  `json:"size,omitempty"`
	Template corev1.PodTemplateSpec `json:"template"`
}

// decode decodes an object with the fields that a release of OME has.
func decode(u *unstructured.Unstructured, r Release) (*inferenceService, error) {
	s := &inferenceService{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s); err != nil {
		return nil, fmt.Errorf("decode InferenceService: %w", err)
	}
	if r == Release12 {
		s.Spec.DeploymentMode, s.Spec.ReplicaRefs = "", nil
		s.Status.Addresses, s.Status.Traffic, s.Status.Canary = nil, nil, nil
		for role, c := range s.Status.Components {
			c.ScaleTargetRef, c.Lifecycle = nil, nil
			s.Status.Components[role] = c
		}
	}
	return s, nil
}

// owner returns the reference that makes the service the controller of an object.
func (s *inferenceService) owner() metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: APIVersion, Kind: Kind, Name: s.Name, UID: s.UID, Controller: &yes, BlockOwnerDeletion: &yes}
}

// clusterLocal reports whether the service must be reachable only inside the cluster. OME reads only one of its two labels for
// this.
func (s *inferenceService) clusterLocal() bool { return s.Labels[labelVisibility] == "cluster-local" }

// referenced returns the name of the InferenceReplica that a user created for a role, or "". OME ignores replicaRefs without
// an engine, and all names of a role except the first.
func (s *inferenceService) referenced(r Role) string {
	if len(s.Spec.ReplicaRefs[Engine]) == 0 || len(s.Spec.ReplicaRefs[r]) == 0 {
		return ""
	}
	return s.Spec.ReplicaRefs[r][0]
}

// listed reports whether an annotation lists a role, and whether the annotation exists.
func (s *inferenceService) listed(annotation string, r Role) (listed, annotated bool) {
	text, annotated := s.Annotations[annotation]
	list, _ := parseRoles(text) // ignores other words
	return slices.Contains(list, r), annotated
}

// number returns the number for a role in an annotation such as "engine=2,decoder=1".
func (s *inferenceService) number(annotation string, r Role) (n int32, given bool) {
	for field := range strings.SplitSeq(s.Annotations[annotation], ",") {
		role, text, found := strings.Cut(strings.TrimSpace(field), "=")
		if parsed, err := strconv.ParseInt(text, 10, 32); found && err == nil && Role(role) == r {
			n, given = int32(parsed), true
		}
	}
	return n, given
}

// runtimePorts returns the ports for a role in AnnotationRuntimePorts.
func (s *inferenceService) runtimePorts(r Role) []corev1.ContainerPort {
	var ports []corev1.ContainerPort
	for field := range strings.SplitSeq(s.Annotations[AnnotationRuntimePorts], ",") {
		role, port, _ := strings.Cut(strings.TrimSpace(field), "=")
		name, number, _ := strings.Cut(port, ":")
		if parsed, err := strconv.ParseInt(number, 10, 32); err == nil && Role(role) == r {
			ports = append(ports, corev1.ContainerPort{Name: name, ContainerPort: int32(parsed)})
		}
	}
	return ports
}

// parseRoles parses a comma-separated list. With an error it also returns the valid roles of the list.
func parseRoles(s string) ([]Role, error) {
	var (
		list []Role
		err  error
	)
	for field := range strings.SplitSeq(s, ",") {
		r := Role(strings.TrimSpace(field))
		switch {
		case slices.Contains(roles, r):
			list = append(list, r)
		case r != "":
			err = fmt.Errorf("%q is not one of %s", r, joinRoles(roles))
		}
	}
	return list, err
}

func joinRoles(list []Role) string {
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = string(r)
	}
	return strings.Join(names, ",")
}
